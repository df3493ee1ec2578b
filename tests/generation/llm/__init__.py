"""Tests of `generation/llm/`."""
