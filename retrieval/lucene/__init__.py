"""Searches of Lucene indexes."""
