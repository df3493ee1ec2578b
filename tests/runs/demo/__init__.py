"""Tests of `runs/demo/`."""
