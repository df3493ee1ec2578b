"""Tests of `retrieval/`."""
