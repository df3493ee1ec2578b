"""Prompts that write answers, cite sources, check sentences, and shorten."""
