"""Prompts that rate and compare answers."""
