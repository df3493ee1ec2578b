"""The command `keystone convert`: files of one tool in the form of another."""

from pathlib import Path
from typing import Annotated

import typer

from keystone.runs.report.say import say


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
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse a conversion that drops or changes a value.")
    ] = False,
    _forms: Annotated[
        bool, typer.Option("--forms", callback=_print_forms, is_eager=True, help="List the forms and exit.")
    ] = False,
) -> None:
    """Convert a file into the form of another tool, and list the values that this form cannot hold.

    Example: keystone convert requests.jsonl run.trec --to run
    """
    from keystone.runs.cli.outputs import check_outputs
    from keystone.runs.exchange.convert import ConversionSettings, describe
    from keystone.runs.exchange.convert import convert as convert_file

    check_outputs([file, topics], {"OUT": out})
    done = convert_file(file, out, ConversionSettings(to, source, strict, topics))
    say(f"{file}: {done.source.name}", err=True)
    for line in describe(done.losses):
        say(f"warning: {line}", err=True)
    say(out)
