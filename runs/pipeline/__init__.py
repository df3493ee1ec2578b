"""A run: its stages from topics to the files that are submitted, its directory and its manifest."""
