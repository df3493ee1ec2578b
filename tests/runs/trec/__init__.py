"""Tests of `runs/trec/`."""
