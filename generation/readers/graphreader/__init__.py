"""The reader GraphReader: agents explore a graph of key elements and atomic facts (arXiv 2406.14550)."""
