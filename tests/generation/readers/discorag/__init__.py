"""The reader DiscoRAG."""
