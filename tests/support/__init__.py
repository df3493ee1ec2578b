"""Helpers of tests: programs and waits, corpora, servers and models."""
