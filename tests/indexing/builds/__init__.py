"""Tests of `indexing/builds/`."""
