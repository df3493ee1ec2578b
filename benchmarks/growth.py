"""(e) Growth: indexing time, memory and queries per second at 2,000, 10,000 and 30,000 documents.

The documents are those of the test collections where they lie beside the project, else passages of `texts`.
"""

import gzip
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from statistics import median

import orjson

from benchmarks.table import Row
from benchmarks.texts import passages, questions
from retrieval.lucene.search import LuceneSearcher

SIZES = (2_000, 10_000, 30_000)
QUERIES, DEPTH, REPEATS = 200, 1000, 3
COLLECTIONS = Path(__file__).parents[2] / "shared" / "data"
NAMES = ("medline", "cisi", "scifact", "arguana", "multihop-mini", "time", "ibm-claims-wiki", "msmarco-v2.1-sample")


def rows() -> list[Row]:
    """Time a document and memory at each size against the smallest; 1 means linear time and flat memory."""
    texts = list(islice(chain(collected(), passages(SIZES[-1])), SIZES[-1]))
    asked = questions(passages(2_000), QUERIES)
    with tempfile.TemporaryDirectory() as folder:
        measured = {size: measure(texts[:size], asked, Path(folder)) for size in SIZES}
    first = SIZES[0]
    found = []
    for size in SIZES[1:]:
        own, least = measured[size], measured[first]
        name = f"growth from {first:,} to {size:,} documents"
        found += [
            Row(f"{name}: indexing time a document", own.seconds * 1e3, least.seconds * 1e3, "ms",
                least.seconds / own.seconds, 0.8, "reading, sentences and Lucene's analysis; no embeddings"),
            Row(f"{name}: peak memory of indexing", own.memory / 1e6, least.memory / 1e6, "MB",
                least.memory / own.memory, 0.8, "the JVM's heap and Lucene's buffer"),
            Row(f"{name}: BM25 queries a second", own.rate, least.rate, "1/s",
                own.rate / least.rate, None, "documents that hold a word of the query, up to 1,000 kept"),
        ]  # fmt: skip
    return found


@dataclass(frozen=True, slots=True)
class Measured:
    """Of an index without embeddings: seconds to make it and bytes on disk, a record; peak bytes; queries a second."""

    seconds: float
    store: float
    lucene: float
    memory: float
    rate: float


def collected() -> Iterator[str]:
    """The texts of the test collections."""
    for name in NAMES:
        for file in sorted(COLLECTIONS.glob(f"{name}/corpus.jsonl*")):
            with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
                for line in stream:
                    record = orjson.loads(line)
                    yield record.get("text") or record.get("segment") or record["title"]


def measure(texts: list[str], asked: list[str], folder: Path, repeats: int = REPEATS) -> Measured:
    """`keystone index --no-dense` of these texts, then BM25 of these queries; medians of so many times."""
    corpus = folder / f"{len(texts)}.jsonl"
    corpus.write_bytes(b"".join(orjson.dumps({"id": f"d{i}", "text": text}) + b"\n" for i, text in enumerate(texts)))
    seconds, peaks = [], []
    for turn in range(repeats):
        out = folder / f"{len(texts)}.{turn}"
        command: list[str | Path] = [sys.executable, "-m", "benchmarks.peak", "index", corpus, "--out", out]
        start = time.perf_counter()
        done = subprocess.run([*command, "--no-dense", "--quiet"], check=True, capture_output=True, text=True)
        seconds.append(time.perf_counter() - start)
        peaks.append(int(done.stderr.split()[-1]))
    searcher, rates = LuceneSearcher(out / "lucene"), []
    for _ in range(REPEATS + 1):
        start = time.perf_counter()
        searcher.search(asked, asked, DEPTH, os.cpu_count() or 1)
        rates.append(len(asked) / (time.perf_counter() - start))
    store, lucene = (sum(f.stat().st_size for f in (out / part).iterdir()) for part in ("store", "lucene"))
    count = len(texts)
    return Measured(median(seconds) / count, store / count, lucene / count, median(peaks), median(rates[1:]))
