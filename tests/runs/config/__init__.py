"""Tests of `runs/config/`."""
