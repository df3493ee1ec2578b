"""TREC files: topics, runs and relevance judgments."""
