"""Tracks: their rules as data, and the reading, writing, judging and repair of submission files."""
