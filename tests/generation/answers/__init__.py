"""Tests of `generation/answers/`."""
