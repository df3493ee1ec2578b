"""Folders that tests use, and what they do without those that have to be set up."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

SHARED = ROOT.parent / "shared" / "data"
"""Real test collections, on machines that have them."""


def require(folder: Path, setup: str) -> None:
    """If a folder is not set up, skip the test; on CI, fail it. `setup` says how to set it up."""
    if not (folder / ".ready").exists():
        missing = f"{folder} is not set up: run {setup}"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
