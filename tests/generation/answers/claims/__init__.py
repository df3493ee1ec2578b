"""Tests of `generation/answers/claims/`."""
