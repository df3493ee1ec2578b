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
from itertools import chain, islice
from pathlib import Path
from statistics import median

import orjson

from benchmarks.table import Row
from benchmarks.texts import passages, questions
from retrieval.lucene import LuceneSearcher

SIZES = (2_000, 10_000, 30_000)
QUERIES, DEPTH, REPEATS = 200, 1000, 3
COLLECTIONS = Path(__file__).parents[2] / "shared" / "data"
NAMES = ("medline", "cisi", "scifact", "arguana", "multihop-mini", "time", "ibm-claims-wiki", "msmarco-v2.1-sample")


def rows() -> list[Row]:
    """Time a document and memory at each size against the smallest; 1 means linear time and flat memory."""
    texts = list(islice(chain(_collected(), passages(SIZES[-1])), SIZES[-1]))
    asked = questions(passages(2_000), QUERIES)
    with tempfile.TemporaryDirectory() as folder:
        measured = {size: _measure(texts[:size], asked, Path(folder)) for size in SIZES}
    first = SIZES[0]
    found = []
    for size in SIZES[1:]:
        per_document, memory, rate = measured[size]
        name = f"growth from {first:,} to {size:,} documents"
        found += [
            Row(f"{name}: indexing time a document", per_document * 1e3, measured[first][0] * 1e3, "ms",
                measured[first][0] / per_document, 0.8, "reading, sentences and Lucene's analysis; no embeddings"),
            Row(f"{name}: peak memory of indexing", memory / 1e6, measured[first][1] / 1e6, "MB",
                measured[first][1] / memory, 0.8, "the JVM's heap and Lucene's buffer"),
            Row(f"{name}: BM25 queries a second", rate, measured[first][2], "1/s",
                rate / measured[first][2], None, "documents that hold a word of the query, up to 1,000 kept"),
        ]  # fmt: skip
    return found


def _collected() -> Iterator[str]:
    for name in NAMES:
        for file in sorted(COLLECTIONS.glob(f"{name}/corpus.jsonl*")):
            with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
                for line in stream:
                    record = orjson.loads(line)
                    yield record.get("text") or record.get("segment") or record["title"]


def _measure(texts: list[str], asked: list[str], folder: Path) -> tuple[float, float, float]:
    """Seconds a document and peak bytes of `keystone index --no-dense`, and BM25 queries a second."""
    corpus = folder / f"{len(texts)}.jsonl"
    corpus.write_bytes(b"".join(orjson.dumps({"id": f"d{i}", "text": text}) + b"\n" for i, text in enumerate(texts)))
    seconds, peaks = [], []
    for turn in range(REPEATS):
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
    return median(seconds) / len(texts), median(peaks), median(rates[1:])
