"""Cited answers by a language model."""
