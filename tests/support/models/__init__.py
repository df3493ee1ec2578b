"""Language models for tests, without a server."""
