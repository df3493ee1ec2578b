"""Evaluation: measures of runs on relevance judgments, tests of their differences, and tuning of settings."""
