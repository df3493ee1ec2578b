"""Tests of `indexing/io/`."""
