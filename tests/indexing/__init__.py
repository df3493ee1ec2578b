"""Tests of `indexing/`."""
