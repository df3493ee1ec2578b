"""Tests of `runs/pipeline/grading/`."""
