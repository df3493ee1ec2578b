"""The configuration of a run, and presets of it."""
