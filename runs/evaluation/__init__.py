"""Measures of runs against judgments, and the choice of settings by them."""
