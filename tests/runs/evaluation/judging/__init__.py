"""Tests of judgments of pooled documents by a model."""
