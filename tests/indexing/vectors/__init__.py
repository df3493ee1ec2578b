"""Tests of `indexing/vectors/`."""
