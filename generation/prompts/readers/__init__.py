"""Prompts of the structure-aware readers."""
