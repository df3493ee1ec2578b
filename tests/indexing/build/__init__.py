"""Tests of `indexing/build/`."""
