"""Tests of the evidence and the answers of a run."""
