"""Tests of `runs/evaluation/`."""
