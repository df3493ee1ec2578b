"""Tests of `indexing/attached/`."""
