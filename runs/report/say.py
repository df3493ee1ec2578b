"""Printing of plain text, for all commands, to standard output or standard error."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from math import isfinite
from pathlib import Path
from typing import Any

import typer

from keystone.runs.wording import escape_controls, plural


def say(text: str | Path, err: bool = False) -> None:
    """Print a line. Control characters in it, which files and servers may contain, become escapes."""
    typer.echo(escape_controls(str(text)), err=err)


def say_warnings(warnings: Sequence[str], most: int | None = None) -> None:
    """Print warnings on standard error: the first `most`, and the number of further ones."""
    for warning in warnings[:most]:
        say(f"warning: {warning}", err=True)
    if left := len(warnings[len(warnings) if most is None else most :]):
        say(f"warning: {plural(left, 'further warning')}", err=True)


def align_columns(rows: Sequence[Sequence[str]], left: Collection[int]) -> Iterator[str]:
    """Align the columns of a table: those at the places `left` begin together, the others end together."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = zip(row, widths, strict=True)
        aligned = [cell.ljust(n) if place in left else cell.rjust(n) for place, (cell, n) in enumerate(cells)]
        yield "  ".join(aligned).rstrip()


def say_result(command: str, given: Any, result: Any) -> None:
    """Print the result of a command as one object of JSON on a line, as docs/engineer.md describes.

    `given` is the input as the user gave it. Dataclasses become objects, and paths become texts. NaN, for a number that
    cannot be computed, becomes null.
    """
    envelope = {"command": command, "input": given, "result": result}
    typer.echo(json.dumps(_make_plain(envelope), allow_nan=False))


def say_output(command: str, given: Any, out: Path, as_json: bool, warnings: Sequence[str] = ()) -> None:
    """Print warnings, and the file or folder that a command has written: its path, or the object of `say_result`."""
    say_warnings(warnings)
    if as_json:
        say_result(command, given, {"out": out})
    else:
        say(out)


def _make_plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: _make_plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {name: _make_plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return list(map(_make_plain, value))
    plain = value.item() if hasattr(value, "item") else value
    if isinstance(plain, float):
        return plain if isfinite(plain) else None
    return plain if plain is None or isinstance(plain, str | int) else str(plain)
