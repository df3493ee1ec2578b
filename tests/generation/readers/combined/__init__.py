"""Tests of readers that combine others."""
