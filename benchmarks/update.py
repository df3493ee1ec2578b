"""(u) The update of an index: 1 % of the documents change, beside a new build, in processor time of the command.

Nearly all of a build embeds its passages, about 60 ms each. So this takes eight minutes of processor time.
"""

import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import orjson

from benchmarks.table import Row, compare_costs
from benchmarks.texts import read_passages

DOCUMENTS, CHANGED = 8_000, 80
LARGEST_SHARE = 0.03
"""The most that an update may cost, as a share of a build."""


def rows() -> list[Row]:
    """The seconds of a build and of an update; the ratio is how often an update fits into a build."""
    texts = read_passages(DOCUMENTS)
    with tempfile.TemporaryDirectory() as place:
        corpus, new, out = (Path(place) / name for name in ("corpus.jsonl", "new.jsonl", "index"))
        corpus.write_bytes(b"".join(_line(number, text) for number, text in enumerate(texts)))
        step = DOCUMENTS // CHANGED
        new.write_bytes(b"".join(_line(number, f"New. {texts[number]}") for number in range(0, DOCUMENTS, step)))
        build = _measure(corpus, "--out", out, "--dense", "all")
        update = _measure("--update", new, "--out", out)
    name = f"update of {CHANGED:,} of {DOCUMENTS:,} documents, beside a new build"
    bound = (
        f"{update / build:.1%} of a build, at most {LARGEST_SHARE:.0%}; start-up, Lucene's analysis of all documents"
    )
    return [compare_costs(name, update, build, 1 / LARGEST_SHARE, bound)]


def _line(number: int, text: str) -> bytes:
    return orjson.dumps({"id": f"d{number}", "text": text}) + b"\n"


def _measure(*arguments: str | Path) -> float:
    """The processor time in seconds of `keystone index` with these arguments."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-m", "benchmarks.peak", "index", *arguments, "--quiet"], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
