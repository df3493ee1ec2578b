"""Depths of single narratives, from a file of two columns."""

from pathlib import Path
from typing import Any

from keystone.indexing.errors import UserError
from keystone.indexing.io.reading import read_text_lines
from keystone.runs.tracks.violations import shorten_value


def load_depths(value: Any) -> Any:
    """Load the depths that a setting names by their file. Any other value is kept, with ids as text."""
    if isinstance(value, str | Path):
        return _read_depths(Path(value))
    return {str(topic): depth for topic, depth in value.items()} if isinstance(value, dict) else value


def _read_depths(path: Path) -> dict[str, int]:
    """Read a topic id and a number from each line. `UserError` with file and line for another one."""
    found: dict[str, int] = {}
    for number, line in read_text_lines(path):
        columns = line.split()
        if not columns:
            continue
        if len(columns) != 2 or not columns[1].isdecimal() or len(columns[1]) > 9:
            raise UserError(f"{path}:{number}: expected a topic id and a whole number, found {shorten_value(line)}")
        if columns[0] in found:
            raise UserError(f"{path}:{number}: topic {shorten_value(columns[0])} has a depth already")
        found[columns[0]] = int(columns[1])
    return found
