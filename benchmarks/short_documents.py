"""(e) Growth towards a million short documents, of 20 words: processor time of a further document, and peak memory.

The index has no embeddings, of which each would take more than a hundred times as long.
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

SIZES_DOCUMENTS = (10_000, 100_000, 300_000, 1_000_000)
WORDS = 20
MOST_MEMORY_BYTES = 1e9
LARGEST_GROWTH = 1.1
"""How much more a further document may cost in a large index than in the smallest."""
TURNS = 3
"""The builds of each size, in turns, of which the least processor time counts."""
SEED = 36


def rows(sizes: tuple[int, ...] = SIZES_DOCUMENTS) -> list[Row]:
    """The cost of a document between two sizes, beside that between the first two, and peak memory beside 1 GB.

    Start-up, which is the same at each size, does not count in the cost of a document. Texts come in a random order, so
    that each size holds the same mixture of long and short words.
    """
    texts = list(islice(_list_texts(), max(sizes)))
    random.Random(SEED).shuffle(texts)
    builds = [{size: _measure(texts[:size]) for size in sizes} for _ in range(TURNS)]
    measured = {size: min(build[size] for build in builds) for size in sizes}
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
    """Texts of 20 words of the installed packages, over and over, each time in other pieces."""
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
