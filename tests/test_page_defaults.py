"""The defaults that sentences of the pages state are those of the configuration. docs/config.md is made from it."""

import re
from functools import reduce
from typing import Any

import pytest
import yaml

from keystone.runs.config.read import read_config
from tests.support.pages import PAGES

STATED = re.compile(
    r"`([a-z_]+(?:\.[a-z_]+)*): ([^`]+)`(?:, | \()the default"
    r"|by default \(`([a-z_]+(?:\.[a-z_]+)*): ([^`]+)`\)"
    r"|`([a-z_]+(?:\.[a-z_]+)+)` is `([^`]+)` by default",
    re.IGNORECASE,
)
"""`KEY: VALUE`, the default; by default (`KEY: VALUE`); `KEY` is `VALUE` by default."""


def list_statements() -> list[tuple[str, str, str]]:
    """List each page, key and value."""
    texts = [(page.name, " ".join(page.read_text().split())) for page in PAGES if page.name != "config.md"]
    return [(name, *filter(None, found.groups())) for name, text in texts for found in STATED.finditer(text)]


@pytest.mark.parametrize(("page", "key", "value"), list_statements())
def test_the_default_of_a_page_is_that_of_the_configuration(page: str, key: str, value: str) -> None:
    given = ["run_id=a", "index=index", "topics=topics.jsonl"]
    settings: Any = read_config(None, given, None).model_dump(mode="json")
    assert reduce(lambda section, name: section[name], key.split("."), settings) == yaml.safe_load(value), page


def test_pages_state_defaults() -> None:
    """So that the test above cannot pass by finding nothing."""
    assert list_statements()
