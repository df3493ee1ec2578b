"""The reader `agent`: it searches, reads and notes by itself, and judges whether its notes suffice."""
