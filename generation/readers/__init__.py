"""Readers: each gathers evidence for a topic from its documents, and answers the topic from that evidence."""
