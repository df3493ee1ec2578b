"""Tests of `indexing/structures/`."""
