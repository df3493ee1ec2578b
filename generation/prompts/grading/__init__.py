"""Prompts that judge documents: grades of one document, and the order of many."""
