"""TREC files: topics, runs and relevance judgments, read, written and fused."""
