"""Tests of `fusion/`."""
