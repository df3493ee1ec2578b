"""Queries from narratives and cited answers from documents."""
