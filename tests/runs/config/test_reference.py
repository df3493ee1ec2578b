"""The page docs/config.md agrees with the models of the configuration, key by key."""

import re
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from keystone.runs.config import reference
from keystone.runs.config.run_config import RunConfig

PAGE = (Path(__file__).parents[3] / "docs/config.md").read_text()


def keys(values: dict[str, Any], above: str = "") -> set[str]:
    """List all keys of nested values, dotted, without the keys of parts."""
    return {
        key
        for name, value in values.items()
        for key in (keys(value, f"{above}{name}.") if isinstance(value, dict) and value else {f"{above}{name}"})
    }


def test_the_page_is_the_one_that_the_models_make() -> None:
    assert reference.make_reference() + "\n" == PAGE, (
        "docs/config.md differs: run python -m keystone.runs.config.reference > docs/config.md"
    )


def test_every_key_has_a_row_with_a_meaning() -> None:
    prices = {"prompt": 1, "cached": 1, "completion": 1}
    model = {"name": "m", "prices": prices}
    minimal = {"run_id": "r", "index": "i", "topics": "t", "model": model}
    rows = {}
    for section in PAGE.split("\n## ")[1:]:
        heading = section.split("\n")[0].strip("`").split("`")[0]
        above = "" if heading == "The run" else f"{heading}."
        for key, *_, meaning in re.findall(r"^\| `(\w+)` \| (.*) \| (.*) \| (.*) \|$", section, re.MULTILINE):
            rows[above + key] = meaning
    assert all(rows.values())
    assert keys(RunConfig.model_validate(minimal).model_dump(mode="json")) <= rows.keys()


class Inner(BaseModel):
    """A part."""

    size: int | None = Field(default=None, ge=2)
    """How many | how much."""


class Outer(BaseModel):
    """A whole."""

    kind: Literal["a", "b"] = "a"
    """Which
    one."""
    shares: dict[str, float] = {}
    """The shares."""
    inner: Inner = Inner()


@pytest.mark.parametrize(
    "row",
    [
        "| `kind` | `a`, `b` | `a` | Which one. |",
        "| `shares` | names with a number each | `{}` | The shares. |",
        "## `inner`",
        "| `size` | whole number or `null`, at least 2 | `null` | How many \\| how much. |",
    ],
)
def test_a_row_has_type_limits_default_and_meaning(row: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "RunConfig", Outer)
    assert row in reference.make_reference().splitlines()


def test_a_key_without_a_meaning_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mute(BaseModel):
        """A model that does not explain its key."""

        size: int = 1

    monkeypatch.setattr(reference, "RunConfig", Mute)
    with pytest.raises(KeyError, match="size"):
        reference.make_reference()
