"""Answers from claims: statements with checked quotes, chosen for coverage, and written as prose."""
