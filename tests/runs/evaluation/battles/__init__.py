"""Tests of battles of answers."""
