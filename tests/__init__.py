"""Tests, one file a module or a promise."""
