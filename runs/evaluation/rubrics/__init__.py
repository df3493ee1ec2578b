"""Weighted rubrics: what an answer should do, and what it should not, each with a weight."""
