"""Keystone beside its peers: every row is a ratio of medians taken in one run."""
