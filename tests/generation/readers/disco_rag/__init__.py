"""Tests of the reader Disco-RAG."""
