"""Indexes that others made: Lucene indexes on disk and REST servers."""
