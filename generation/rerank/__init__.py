"""Rerankers: the best documents of a narrative in a better order, by one of several methods."""
