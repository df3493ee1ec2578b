"""Topics and queries in, rankings out."""
