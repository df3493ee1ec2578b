"""Queries from narratives by a language model."""
