"""Prompts that turn a narrative into its topic, queries, passages and further searches."""
