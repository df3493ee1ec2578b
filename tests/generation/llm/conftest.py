"""Fixtures of the tests of language models."""

import pytest

from generation.llm import endpoints
from tests.support.models.client import SECRET


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client repeats requests at once, and its key is `SECRET`."""
    monkeypatch.setattr("indexing.io.limit.BACKOFF", 0.002)
    monkeypatch.setattr(endpoints, "LONGEST_PAUSE", 0.1)
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
