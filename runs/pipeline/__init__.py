"""The stages of a run, from topics to submission files."""
