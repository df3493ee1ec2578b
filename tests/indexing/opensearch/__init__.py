"""Tests of `indexing/opensearch/`."""
