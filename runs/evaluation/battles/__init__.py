"""Battles of answers: which of two a model prefers, in both orders, narrative by narrative."""
