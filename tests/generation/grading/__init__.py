"""Tests of `generation/grading/`."""
