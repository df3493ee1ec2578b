"""Options that several commands have, with their completion, and what commands do with them before they begin.

They check that no output is an input, and read the configuration of their model. If the user types an option of
another tool, the error says what to type here.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperCommand

from keystone.indexing.errors import UserError
from keystone.runs.config.presets import find_presets
from keystone.runs.pipeline.file_names import CONFIG

if TYPE_CHECKING:
    from keystone.runs.config.run_config import RunConfig
    from keystone.runs.evaluation.measures import Measure
    from keystone.runs.pipeline.model_runner import RunWithModel


def complete_preset(incomplete: str) -> list[str]:
    """Complete the name of a preset."""
    return [name for name in find_presets() if name.startswith(incomplete)]


def complete_setting(incomplete: str) -> list[str]:
    """Complete the key of a setting, with the `=` before its value. A key with a value is not completed."""
    from keystone.runs.config.run_config import RunConfig

    found = dict.fromkeys(f"{key}=" for key in _list_keys(RunConfig, ""))
    return [key for key in found if key.startswith(incomplete)]


def _list_keys(model: Any, above: str) -> Iterator[str]:
    """List the keys of a model and of the models below it, joined by points."""
    from keystone.runs.config.reference import find_models

    for name, field in model.model_fields.items():
        below = [one for one in find_models(field.annotation) if one is not model]
        for one in below:
            yield from _list_keys(one, f"{above}{name}.")
        if not below:
            yield f"{above}{name}"


Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress bars, only errors and results.")]
Threads = Annotated[int, typer.Option(min=1, help="Threads to use.", show_default="all cores")]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        help="KEY=VALUE, which overrides the file. Repeat for several keys.",
        autocompletion=complete_setting,
    ),
]
BudgetLimits = Annotated[
    list[str] | None,
    typer.Option(
        "--budget",
        help="The most that all calls of the model may cost: tokens=N, calls=N or dollars=N. Repeat for several.",
    ),
]
Preset = Annotated[str | None, typer.Option(help="A preset, as for run.", autocompletion=complete_preset)]
JUDGMENTS = typer.Option(help="Judgments of documents or segments, in any form (see the page on corpora).")
WANTED = typer.Option(help="Nuggets with their documents, in any form (see the page on judging).")
RelevantFrom = Annotated[int, typer.Option(min=1, help="The grade from which a document of the judgments is relevant.")]
SkipOwn = Annotated[
    bool, typer.Option("--skip-own", help="Leave out each topic's document with the same id, as BEIR does.")
]
Sort = Annotated[str | None, typer.Option(help="The measure that ranks runs.", show_default="the first")]
Baseline = Annotated[
    str | None, typer.Option(help="The file or tag of a run, or best: all others are tested against it.")
]
OnlyTable = Annotated[bool, typer.Option("--only-table", help="Print the leaderboard, without tests.")]
Pairs = Annotated[
    bool, typer.Option("--pairs", help="Test all pairs by randomised Tukey HSD, with letters of what ties.")
]
ByTopic = Annotated[bool, typer.Option("--by-topic", help="Add a table of topics, hardest first.")]
Format = Annotated[
    Literal["text", "markdown", "latex", "csv", "json"],
    typer.Option(help="The form of the table. csv has every number."),
]
"""`keystone.runs.report.tables.TABLES` has all forms but `text` and `json`."""
SkipBad = Annotated[bool, typer.Option("--skip-bad", help="List bad files, and measure the good ones.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, as the page for engineers describes.")]
JsonFile = Annotated[
    Path | None,
    typer.Option("--out", metavar="FILE", help="Write means, values of each topic and p-values to this file, as JSON."),
]
CORES = os.cpu_count() or 1
DEFAULT_MEASURE = "nDCG@10"
"""The measure of options that name one."""
REPORTED_RECORDS = 5
"""The number of skipped records, and of violations of each kind, that are printed one by one."""


def read_measure(given: Sequence[str] | None) -> "Measure":
    """Read the measure of an option that names one, or else `DEFAULT_MEASURE`. `UserError` for several."""
    from keystone.runs.evaluation.measures import parse_measure

    name, *others = given or [DEFAULT_MEASURE]
    if others:
        raise UserError(f"--measure: found {', '.join([name, *others])}, expected one measure")
    return parse_measure(name)


def read_with_budget(
    read: "Callable[[list[str]], RunConfig]", overrides: Sequence[str], budget: Sequence[str] | None, source: str
) -> "RunConfig":
    """Read a configuration by `read` from overrides, with the limits of --budget for its model.

    `source` names where the model comes from. `UserError` for limits without a model, and for a bad limit.
    """
    settings = read([*overrides])
    if not budget:
        return settings
    if settings.model is None:
        raise UserError(f"--budget: found no model in {source}, expected one under the key model")
    for limit in budget:
        if not re.match(r"\w+=\s*\S", limit):
            raise UserError(f"--budget {limit}: expected tokens=N, calls=N or dollars=N")
    try:
        return read([*overrides, *(f"model.budget.{limit}" for limit in budget)])
    except UserError as error:  # which names the option that does the same
        raise UserError(str(error).replace("--set model.budget.", "--budget ")) from None


def read_model_settings(config: Path | None, overrides: Sequence[str] | None) -> "RunConfig":
    """Read the configuration for its model. Without a file, the paths that a run needs lead nowhere."""
    from keystone.runs.config.read import read_config

    unread = ["run_id=evaluate", f"index={os.devnull}", f"topics={os.devnull}"] if config is None else []
    return read_config(config, [*unread, *(overrides or [])])


@contextmanager
def open_runner(config: "RunConfig", step: str, quiet: bool, folder: Path | None = None) -> "Iterator[RunWithModel]":
    """Open a runner of the configuration's model, with a progress bar of this step. `folder` keeps the cost."""
    from keystone.runs.pipeline.model_runner import open_model_runner
    from keystone.runs.report.terminal import progress_bars

    with progress_bars(quiet) as progress, progress(step, None), open_model_runner(config, folder) as run_with_model:
        yield run_with_model


NOT_PATHS = ("ir_datasets:", "pyserini:", "rest:", "opensearch:")
"""Beginnings of corpus names that are no paths."""


def check_outputs(inputs: Iterable[str | Path | None], outputs: Mapping[str, Path | None]) -> None:
    """Raise `UserError` if an output is an input, lies in one, or holds one.

    `outputs` maps names of options to paths. Links, hard links and other spellings of a path count as the same file.
    """
    from keystone.runs.trec.collections import find_folder

    paths = [Path(name) for name in inputs if name is not None and not str(name).startswith(NOT_PATHS)]
    read = [folder[0] if (folder := find_folder(path)) else path for path in paths]
    written = [(option, out) for option, out in outputs.items() if out is not None]
    for (option, out), found in product(written, read):
        if overlap := _describe_overlap(Path(os.path.realpath(found)), Path(os.path.realpath(out))):
            raise UserError(f"{option} {out}: {overlap} {found}, which the command reads; expected another place")


def name_config(path: Path | None) -> Path | None:
    """Name the file that a path of a configuration names: in a run directory, its configuration."""
    return path / CONFIG if path is not None and (path / CONFIG).is_file() else path


def check_run_outputs(
    config: "RunConfig | None", read: Iterable[Path | None], outputs: Mapping[str, Path | None]
) -> None:
    """Check the outputs of a command that reads the inputs of a configuration, if it has one, besides the files `read`.

    A run may read the configuration in its own run directory. `UserError` as from `check_outputs`.
    """
    if config is None:
        check_outputs(read, outputs)
        return
    model, kept = config.model, os.path.realpath(config.out / config.run_id / CONFIG)
    inputs = [path for path in read if path is not None and os.path.realpath(path) != kept]
    recorded = (model.replies, model.key_file) if model else ()
    cache = {"model.cache": model.cache if model else None}
    check_outputs([*inputs, config.index, config.topics, *config.retrieval.runs, *recorded], {**outputs, **cache})
    check_outputs([model.replies_in(config.out)] if model else [], outputs)


def _describe_overlap(found: Path, out: Path) -> str:
    try:
        same = out.samefile(found)
    except OSError:  # one of them does not exist yet
        same = out == found
    if same:
        return "is"
    if found in out.parents:
        return "lies in"
    return "holds" if out in found.parents else ""


OF_OTHER_TOOLS: Mapping[str, Mapping[str, str]] = {
    "index": {
        "--input": "name the corpus first: keystone index CORPUS --out INDEX",
        "--index": "name the new index by --out INDEX",
        "--collection": "name the form by --format or leave it to be guessed",
        "--generator": "leave it out: the form of the corpus decides",
        "--storePositions": "leave it out: the index stores all that Keystone reads",
        "--storeDocvectors": "leave it out: feedback needs none",
        "--storeRaw": "leave it out: the index always keeps the documents",
        "--stemmer": "leave it out: the analyzer is Anserini's for English",
    },
    "search": {
        "--index": "name the index first: keystone search INDEX TEXT",
        "--query": "name the text second: keystone search INDEX TEXT",
        "--hits": "name the number of documents by --top",
        "--k": "name the number of documents by --top",
        "--bm25": "use --set 'retrieval.systems=[bm25]'",
        "--rm3": "use --set retrieval.feedback=rm3",
        "--rocchio": "use --set retrieval.feedback=rocchio",
        "--topics": "for a file of topics, use keystone run --preset bm25 --index INDEX --topics TOPICS",
        "--output": "for a run file, use keystone run --preset bm25 --index INDEX --topics TOPICS",
    },
    "run": {
        "--output": "name the folder of runs by --out",
        "--hits": "use --set retrieval.depth=N",
        "--bm25": "use --preset bm25",
        "--k1": "use --set retrieval.k1=X",
        "--b": "use --set retrieval.b=X",
        "--rm3": "use --set retrieval.feedback=rm3",
        "--rocchio": "use --set retrieval.feedback=rocchio",
        "--tag": "use --set run_id=TAG",
        "--runtag": "use --set run_id=TAG",
    },
    "fuse": {
        "--runs": "name the run files without an option: keystone fuse A B --out FUSED",
        "--output": "name the run file to write by --out",
        "--runtag": "name the tag by --tag",
        "--k": "use --depth for documents of each topic, or --set k=60 for rrf",
        "--rrf.k": "use --set k=60",
        "--alpha": "use --method wsum --weights ALPHA,1-ALPHA",
    },
    "evaluate": {
        "-c": "leave it out: topics without a ranking always count 0",
        "-l": "use --relevant-from",
        "-J": "use --condensed",
        "-M": "use a measure with a cutoff, such as map_cut.100",
        "--complete_rel_info_wanted": "leave it out: topics without a ranking always count 0",
        "--level_for_rel": "use --relevant-from",
    },
    "answer": {"--output": "name the file to write by --out", "--input": "name the narratives by --topics"},
    "validate": {"--input": "name the files without an option: keystone validate FILE --topics TOPICS"},
}
"""Options of Pyserini, trec_eval and ragnarok by command, each with what to type here."""


class Command(TyperCommand):
    """A command of the table. Its error for an option of another tool says what to type."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments. For an option of another tool, fail with advice."""
        known = {name for parameter in self.params for name in (*parameter.opts, *parameter.secondary_opts)}
        typed = {arg.partition("=")[0] for arg in args} - known
        found = [item for item in OF_OTHER_TOOLS.get(self.name or "", {}).items() if item[0] in typed]
        if found:
            ctx.fail("\n".join(f"No such option: {option}; {advice}." for option, advice in found))
        return super().parse_args(ctx, args)
