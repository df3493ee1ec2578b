"""Tests of readers."""
