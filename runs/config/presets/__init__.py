"""The runs of the paper, and our own best, as configurations."""
