"""The score sheet of several runs: everything that a track would measure, in one table."""
