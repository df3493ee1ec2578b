"""Tests of the reader GraphReader."""
