"""The commands `keystone convert`, and `push` and `pull` for folders on the Hugging Face hub."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from keystone.indexing.errors import UserError
from keystone.runs.cli.options import Json, Quiet, check_outputs
from keystone.runs.report.say import say, say_output, say_result
from keystone.runs.wording import plural

if TYPE_CHECKING:
    from keystone.runs.track_rules import KeyContent


def _print_forms(asked: bool) -> None:
    if asked:
        from keystone.runs.exchange.table import FORMS

        for form in FORMS.values():
            say(f"{form.name:<17} {form.kind:<9} {form.used_by}")
        raise typer.Exit


def complete_form(incomplete: str) -> list[str]:
    """Complete the name of a form."""
    from keystone.runs.exchange.table import FORMS

    return [name for name in FORMS if name.startswith(incomplete)]


def convert(
    file: Annotated[Path, typer.Argument(metavar="IN", help="The file to read, plain or compressed.")],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="The file to write.")],
    to: Annotated[str, typer.Option(help="The form to write; --forms lists them.", autocompletion=complete_form)],
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="The form of IN.",
            show_default="recognised from its content",
            autocompletion=complete_form,
        ),
    ] = None,
    topics: Annotated[
        Path | None, typer.Option(help="Topics, for the queries of a file that names topics by their ids alone.")
    ] = None,
    team: Annotated[str | None, typer.Option(help="The team, in place of the one in IN.")] = None,
    run_id: Annotated[str | None, typer.Option(help="The run's id, in place of the one in IN.")] = None,
    run_desc: Annotated[str | None, typer.Option(help="The run's description, in place of the one in IN.")] = None,
    type: Annotated[str | None, typer.Option(help="The run's type: automatic or manual.")] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse a conversion that drops or changes a value.")
    ] = False,
    json: Json = False,
    quiet: Quiet = False,
    _forms: Annotated[
        bool, typer.Option("--forms", callback=_print_forms, is_eager=True, help="List the forms and exit.")
    ] = False,
) -> None:
    """Convert a file into the form of another tool, and list the values that this form cannot hold.

    Example: keystone convert requests.jsonl run.trec --to run
    """
    from keystone.runs.exchange.convert import ConversionSettings, describe, describe_missing
    from keystone.runs.exchange.convert import convert as convert_file
    from keystone.runs.track_rules import OPTIONS

    check_outputs([file, topics], {"OUT": out})
    given: dict[KeyContent, str | None] = {"team": team, "run": run_id, "description": run_desc, "type": type}
    for holds, value in given.items():
        if value is not None and not value.strip():
            raise UserError(f"{OPTIONS[holds]}: expected text, found {value!r}")
    named = {holds: value for holds, value in given.items() if value is not None}
    done = convert_file(file, out, ConversionSettings(to, source, strict, topics, named))
    if not quiet:
        say(f"{file}: {done.source.name}", err=True)
    say_output("convert", file, out, json, [*describe(done.losses), *describe_missing(done)])


def push(
    path: Annotated[Path, typer.Argument(help="The folder of an index or a run, or a file such as a bundle.")],
    repository: Annotated[str, typer.Argument(metavar="USER/NAME", help="The data set of the hub.")],
    public: Annotated[bool, typer.Option("--public", help="Make a new data set public, not private.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what would be sent, and contact nobody.")] = False,
    json: Json = False,
    _quiet: Quiet = False,
) -> None:
    """Send an index, a run directory or a bundle to the Hugging Face hub.

    The token is read from HF_TOKEN. Example: keystone push index me/my-index --dry-run
    """
    from keystone.indexing.io import hub

    repository = repository.removeprefix("hf:")
    files = hub.list_files_to_push(path)
    if dry_run and json:
        say_result("push", [path], {"out": path, "files": {one.path: one.size_bytes for one in files}})
        return
    if dry_run:
        for one in files:
            say(f"{one.path}: {one.size_bytes:,} bytes")
        size = sum(one.size_bytes for one in files)
        say(f"{plural(len(files), 'file')}, {size:,} bytes, would be sent to {repository}")
        return
    url = hub.push(path, repository, private=not public)
    if json:
        say_result("push", [path], {"out": path, "url": url})
        return
    say(f"Sent {plural(len(files), 'file')} to {url}")
    say(path)


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
