"""Rankings in, one ranking or set out: pure functions, no files, no models."""
