"""Tests of tournaments of answers."""
