"""Rules of TREC tracks: answer files, validation and repair."""
