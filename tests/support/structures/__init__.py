"""Texts with known structure, for tests of readers."""
