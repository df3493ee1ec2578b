"""The demo: its corpus, narratives and judgments, and the two runs that it compares."""
