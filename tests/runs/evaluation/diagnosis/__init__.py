"""Tests of the evaluation of diagnosis."""
