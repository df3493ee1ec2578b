"""Tests of `runs/cli/`."""
