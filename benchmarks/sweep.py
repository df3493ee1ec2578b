"""A sweep of 24 settings beside one run, on cisi and scifact: the command line, from nothing to the table."""

import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

from benchmarks.table import Row, take_turns
from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings

DATA = Path(__file__).parents[2] / "shared" / "data"
OUT = Path(__file__).parent / "out" / "sweep"
TRIES = (
    *("fusion.dense_weight=[0.75, 0.85, 0.95]", "fusion.k_narrative=[10, 60]", "fusion.depth=[50, 100]"),
    "queries.narrative_weight=[1, 2]",
)
"""24 combinations of settings; one of them is the default."""
MOST_TIMES = 3
"""How many times as long as one run the sweep may take."""
TURNS = 1


def measure(name: str) -> Row:
    """Measure the sweep of a collection beside one run of it: each begins without a run directory, in turns."""
    folder, index, config, runs = DATA / name, OUT / name, OUT / f"{name}.yaml", OUT / "runs"
    if not index.exists():
        build_index(next(folder.glob("corpus.jsonl*")), index, BuildSettings(threads=2))
    config.write_text(f"run_id: r\nindex: {index}\ntopics: {folder / 'topics.jsonl'}\nout: {runs}\ntrack: none\n")
    tries = [part for attempt in TRIES for part in ("--try", attempt)]
    commands = {"run": [], "sweep": ["--qrels", folder / "qrels.txt", *tries]}

    def make_anew(command: str) -> None:
        shutil.rmtree(runs, ignore_errors=True)
        arguments = map(str, (command, config, *commands[command], "--quiet"))
        subprocess.run([sys.executable, "-m", "keystone.runs.cli.main", *arguments], check=True, capture_output=True)

    seconds = take_turns({command: partial(make_anew, command) for command in commands}, repeats=TURNS)
    limit, times = MOST_TIMES * seconds["run"], f"{seconds['sweep'] / seconds['run']:.2f} times one run"
    ratio = limit / seconds["sweep"]
    return Row(f"{name}, a sweep of 24 settings", seconds["sweep"], limit, "s", ratio, 1, times)


def rows() -> list[Row]:
    """A row for each collection that is there."""
    return [measure(name) for name in ("cisi", "scifact") if (DATA / name).exists()]
