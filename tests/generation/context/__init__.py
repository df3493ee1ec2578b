"""Tests of `generation/context/`."""
