"""Tests of `generation/queries/`."""
