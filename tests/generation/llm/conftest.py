"""Fixtures of the tests of language models."""

import pytest

from keystone.indexing.io import retry
from tests.support.models.client import SECRET


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client repeats requests at once, and its key is `SECRET`."""
    monkeypatch.setattr(retry, "FIRST_PAUSE_S", 0.004)
    monkeypatch.setattr(retry, "LONGEST_PAUSE_S", 0.1)
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
