"""A run: configuration, stages, run directory, track files, validation, evaluation, command line."""
