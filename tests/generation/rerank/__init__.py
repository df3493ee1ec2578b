"""Tests of `generation/rerank/`."""
