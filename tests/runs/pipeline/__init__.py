"""Tests of `runs/pipeline/`."""
