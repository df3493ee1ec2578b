"""Printing of plain text, for all commands, to standard output or standard error."""

from pathlib import Path

import typer

from runs.wording import escape_controls


def say(text: str | Path, err: bool = False) -> None:
    """Print a line. Control characters in it, which files and servers may contain, become escapes."""
    typer.echo(escape_controls(str(text)), err=err)
