"""Tests of `runs/report/html/`."""
