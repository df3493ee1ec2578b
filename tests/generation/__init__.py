"""Tests of `generation/`."""
