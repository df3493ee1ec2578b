"""(u) The update of an index: 1 % of the documents change, beside a new build, in processor time of the command."""

import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

import orjson

from benchmarks.table import Row, compare_costs
from benchmarks.texts import read_passages

CASES = ((10_000, "all", "embeddings"), (10_000, "none", "no embeddings"), (100_000, "none", "no embeddings"))
"""The number of documents, the option `--dense`, and what it means."""
STEP = 100
"""One document in this number changes."""
UPDATES = 5
"""The number of updates; their median counts."""
LEAST_RATIO = 1 / 0.03


def rows() -> list[Row]:
    """The seconds of a build and of an update; the ratio is how often an update fits into a build."""
    return [_compare(*case) for case in CASES]


def _compare(documents: int, dense: str, words: str) -> Row:
    texts = read_passages(documents)
    with tempfile.TemporaryDirectory() as place:
        corpus, new, out = (Path(place) / name for name in ("corpus.jsonl", "new.jsonl", "index"))
        corpus.write_bytes(b"".join(_line(number, text) for number, text in enumerate(texts)))
        new.write_bytes(b"".join(_line(number, f"New. {texts[number]}") for number in range(0, len(texts), STEP)))
        _measure(place, new, "--out", Path(place) / "small", "--dense", "none")  # compiles the modules
        build, updates = _measure(place, corpus, "--out", out, "--dense", dense), list[float]()
        for turn in range(UPDATES):
            copy = shutil.copytree(out, Path(place) / f"copy{turn}")
            updates.append(_measure(place, "--update", new, "--out", copy))
    name = f"update of one in {STEP} of {documents:,} documents, {words}, beside a new build"
    return compare_costs(
        name, median(updates), build, LEAST_RATIO, "start-up, which takes most of the update of 10,000"
    )


def _line(number: int, text: str) -> bytes:
    return orjson.dumps({"id": f"d{number}", "text": text}) + b"\n"


def _measure(place: str, *arguments: str | Path) -> float:
    """The processor time in seconds of `keystone index` with these arguments. `place` keeps the compiled modules."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-m", "benchmarks.peak", "index", *arguments, "--quiet"],
        check=True,
        env={**environment, "PYTHONPYCACHEPREFIX": place},
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
