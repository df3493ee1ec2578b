"""Folders that tests use."""

from pathlib import Path

ROOT = Path(__file__).parents[2]

SHARED = ROOT.parent / "shared" / "data"
"""Real test collections, on machines that have them."""
