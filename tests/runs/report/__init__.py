"""Tests of `runs/report/`."""
