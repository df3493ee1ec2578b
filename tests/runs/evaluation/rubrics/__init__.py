"""Tests of the diagnosis of runs."""
