"""The demo: a corpus, narratives and judgments, and the command that makes and compares two runs on them."""
