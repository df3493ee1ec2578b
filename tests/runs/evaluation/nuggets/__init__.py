"""Tests of nuggets."""
