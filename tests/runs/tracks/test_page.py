"""The table of docs/participant.md, cell by cell beside the rules."""

from collections.abc import Callable

import pytest

from keystone.runs.track_rules import TRACKS, Track
from tests.support.places import ROOT


def read_table() -> dict[str, dict[str, str]]:
    """Read the cells of the table by row and track. A cell that refers to another track's has that one's text."""
    lines = (ROOT / "docs" / "participant.md").read_text().splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith("| | rag24 |"))
    split = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[start:] if line.startswith("|")]
    names = split[0][1:]
    found = {row[0]: dict(zip(names, row[1:], strict=True)) for row in split[2:] if len(row) == len(split[0])}
    for cells in found.values():
        for name, cell in cells.items():
            if cell.startswith("as `"):
                other = cell.split("`")[1]
                cells[name] = cells[other] + cell.partition("`,")[2] + cell.partition("`;")[2]
    return found


def name_number(number: int | None) -> str:
    return "any" if number is None else f"{number:,}"


ROWS: dict[str, Callable[[Track], list[str]]] = {
    "ranked and cited": lambda track: ["segments" if track.segments else "documents"],
    "rows for a topic": lambda track: [name_number(track.rows)],
    "required metadata": lambda track: [f"`{key.name}`" for key in track.keys],
    "run ids": lambda track: [name_number(track.run_id_length)],
    "list of sentences": lambda track: [f"`{track.sentences}`"],
    "citations of a sentence": lambda track: [name_number(track.cited)],
    "length": lambda track: (
        ["characters", f"`{track.topic_limit}`"]
        if track.length.unit == "characters"
        else [name_number(track.length.limit)]
    ),
}


@pytest.mark.parametrize("row", ROWS)
def test_each_cell_says_what_the_rules_say(row: str) -> None:
    cells = read_table()[row]
    assert cells.keys() == TRACKS.keys()
    wrong = {name: cells[name] for name, track in TRACKS.items() if any(s not in cells[name] for s in ROWS[row](track))}
    assert wrong == {}


def test_the_number_of_references_is_that_of_the_rules() -> None:
    cells = read_table()["references"]
    assert {name: cell for name, cell in cells.items() if cell.isdecimal()} == {
        name: str(track.references) for name, track in TRACKS.items() if track.references
    }
