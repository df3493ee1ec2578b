"""The demo: a corpus, narratives, judgments and recorded replies, and the command that compares four runs."""
