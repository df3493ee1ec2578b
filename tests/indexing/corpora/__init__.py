"""Tests of `indexing/corpora/`."""
