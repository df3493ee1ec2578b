"""Fusion: pure functions that turn rankings and grades into one ranking or one set. They read no files."""
