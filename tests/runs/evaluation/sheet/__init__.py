"""Tests of the score sheet of runs."""
