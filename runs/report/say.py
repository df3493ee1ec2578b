"""How every command speaks: plain text to standard output, or to standard error."""

from pathlib import Path

import typer

from runs.wording import plain


def say(text: str | Path, err: bool = False) -> None:
    """Print a line; what names and servers have put into it cannot steer the terminal."""
    typer.echo(plain(str(text)), err=err)
