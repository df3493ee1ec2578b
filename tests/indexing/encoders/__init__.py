"""Tests of models that run on this machine."""
