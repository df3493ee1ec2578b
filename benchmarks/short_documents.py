"""(e) Growth to five million short documents, of 20 words: processor time of a further document, and peak memory.

The index has no embeddings, because each of them would take more than a hundred times as long.
"""

import random
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import islice, pairwise
from pathlib import Path

import orjson

from benchmarks.table import Row, compare_costs
from benchmarks.texts import iterate_passages

BUILDS = {10_000: 3, 100_000: 3, 300_000: 3, 1_000_000: 3, 5_000_000: 1}
"""How often an index of each size is built. The sizes take turns, and the least processor time counts."""
WORDS = 20
MOST_MEMORY_BYTES = 1e9
LARGEST_GROWTH = 1.1
"""How much more a further document may cost in a large index than in the smallest."""
SEED = 36


def rows() -> list[Row]:
    """The cost of a document between two sizes, beside that between the first two, and peak memory beside 1 GB.

    Start-up, which is the same at each size, does not count in the cost of a document. Texts come in a random order, so
    that each size holds the same mixture of long and short words.
    """
    sizes = list(BUILDS)
    texts = list(islice(_list_texts(), sizes[-1]))
    random.Random(SEED).shuffle(texts)
    turns = [size for turn in range(max(BUILDS.values())) for size in sizes if turn < BUILDS[size]]
    builds = [(size, *_measure(texts[:size])) for size in turns]
    measured = {size: min(build[1:] for build in builds if build[0] == size) for size in sizes}
    costs = {b: (measured[b][0] - measured[a][0]) / (b - a) * 1e6 for a, b in pairwise(sizes)}
    found, first = list[Row](), costs[sizes[1]]
    for size in sizes[1:]:
        seconds, memory = measured[size]
        name, bound = f"index of {size:,} short documents", f"{seconds:.0f} CPU s in all; Lucene's analysis"
        target = 1 / LARGEST_GROWTH if size > sizes[1] else None
        found += [
            compare_costs(f"{name}: a further document", costs[size], first, target, bound, "CPU us"),
            compare_costs(
                f"{name}: peak memory against 1 GB", memory / 1e9, MOST_MEMORY_BYTES / 1e9, 1.0, "Lucene's buffer", "GB"
            ),
        ]
    return found


def _list_texts() -> Iterator[str]:
    """Texts of 20 words from the installed packages, over and over, each time cut in other places."""
    for turn in range(WORDS):
        for passage in iterate_passages():
            words = passage.split()
            for start in range(turn, len(words) - WORDS + 1, WORDS):
                yield " ".join(words[start : start + WORDS])


def _measure(texts: Sequence[str]) -> tuple[float, int]:
    """The processor time in seconds and the peak bytes of an index of so many documents."""
    with tempfile.TemporaryDirectory() as place:
        corpus = Path(place) / "corpus.jsonl"
        with corpus.open("wb") as out:
            out.writelines(
                orjson.dumps({"id": f"d{number}", "text": text}) + b"\n" for number, text in enumerate(texts)
            )
        command = [sys.executable, "-m", "benchmarks.peak", "index", str(corpus), "--out", f"{place}/index"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run([*command, "--no-dense", "--quiet"], check=True, capture_output=True, text=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, int(done.stderr.split()[-1])
