"""Corpora and indexes of tests."""
