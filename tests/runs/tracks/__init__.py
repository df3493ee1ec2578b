"""Tests of `runs/tracks/`."""
