"""The page docs/config.md agrees with the models of the configuration, key by key."""

import re
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from keystone.runs.config import reference
from keystone.runs.config.run_config import RunConfig

DOCS = Path(__file__).parents[3] / "docs"
PAGE, PAPERS = ((DOCS / f"{name}.md").read_text() for name in ("config", "papers"))


def keys(values: dict[str, Any], above: str = "") -> set[str]:
    """List all keys of nested values, dotted, without the keys of parts."""
    return {
        key
        for name, value in values.items()
        for key in (keys(value, f"{above}{name}.") if isinstance(value, dict) and value else {f"{above}{name}"})
    }


def test_the_pages_are_those_that_the_models_make(tmp_path: Path) -> None:
    (tmp_path / "papers.md").write_text(PAPERS)
    reference.write_pages(tmp_path)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {"config.md": PAGE, "papers.md": PAPERS}, (
        "docs/config.md or docs/papers.md differs: run python -m keystone.runs.config.reference"
    )


def test_every_key_has_a_row_with_a_meaning() -> None:
    prices = {"prompt": 1, "cached": 1, "completion": 1}
    model = {"name": "m", "prices": prices}
    minimal = {"run_id": "r", "index": "i", "topics": "t", "model": model}
    rows = {}
    for section in f"{PAGE}\n{reference.make_readers()}".split("\n## ")[1:]:
        heading = section.split("\n")[0]
        above = "" if heading == "The run" else f"{heading.split('`')[1]}."
        for key, *_, meaning in re.findall(r"^\| `(\w+)` \| (.*) \| (.*) \| (.*) \|$", section, re.MULTILINE):
            rows[above + key] = meaning
    assert all(rows.values())
    assert keys(RunConfig.model_validate(minimal).model_dump(mode="json")) <= rows.keys()


class Inner(BaseModel):
    """A part."""

    size: int | None = Field(default=None, ge=2)
    """How many | how much. More is for readers of the code."""
    share: float = Field(default=0.5, ge=0, le=1)
    """The share."""
    weight: float = Field(default=2, gt=0, le=20)
    """The weight."""


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
        "| `size` | whole number, at least 2 | `null` | How many \\| how much. |",
        "| `share` | 0.0–1.0 | `0.5` | The share. |",
        "| `weight` | number, above 0, at most 20 | `2` | The weight. |",
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
