"""DiscoRAG (LREC 2026): agents that walk through discourse trees, and its baselines."""
