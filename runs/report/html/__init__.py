"""Runs as one HTML file for a browser: an overview, measures, and each narrative from its queries to its answer."""
