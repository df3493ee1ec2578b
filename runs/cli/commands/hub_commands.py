"""The commands `keystone push` and `keystone pull`, for folders on the Hugging Face hub."""

from pathlib import Path
from typing import Annotated

import typer

from keystone.runs.cli.options import Json, Quiet
from keystone.runs.report.say import say, say_output
from keystone.runs.wording import plural


def push(
    path: Annotated[Path, typer.Argument(help="The folder of an index or a run, or a file such as a bundle.")],
    repository: Annotated[str, typer.Argument(metavar="USER/NAME", help="The data set of the hub.")],
    public: Annotated[bool, typer.Option("--public", help="Make a new data set public, not private.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what would be sent, and ask nothing.")] = False,
    json: Json = False,
    _quiet: Quiet = False,
) -> None:
    """Send an index, a run directory or a bundle to the Hugging Face hub.

    The token is read from HF_TOKEN. Example: keystone push index me/my-index --dry-run
    """
    from keystone.indexing.io import hub

    files = hub.list_files_to_push(path)
    if dry_run:
        for one in files:
            say(f"{one.path}: {one.size_bytes:,} bytes")
        size = sum(one.size_bytes for one in files)
        say(f"{plural(len(files), 'file')}, {size:,} bytes, would be sent to {repository}")
        return
    say(f"Sent {plural(len(files), 'file')} to {hub.push(path, repository, private=not public)}")
    say_output("push", [path], path, json)


def pull(
    repository: Annotated[str, typer.Argument(metavar="USER/NAME", help="The data set of the hub.")],
    out: Annotated[Path, typer.Option(help="The folder to write. Files that are there already are kept.")],
    revision: Annotated[str | None, typer.Option(help="A commit or a branch.", show_default="main")] = None,
    json: Json = False,
    _quiet: Quiet = False,
) -> None:
    """Fetch an index, a run directory or any data set from the Hugging Face hub into a folder.

    Example: keystone pull me/my-index --out index
    """
    from keystone.indexing.io.hub import fetch_folder

    fetch_folder(repository.removeprefix("hf:"), revision, out)
    say_output("pull", [], out, json)
