"""Runs, their files and their commands, for tests."""
