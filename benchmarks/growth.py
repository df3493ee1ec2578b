"""(e) Growth: indexing time, memory and queries per second at 2,000, 10,000 and 30,000 documents.

If the test collections lie beside the project, the documents are theirs, otherwise passages of `texts`.
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
from benchmarks.texts import draw_questions, read_passages
from keystone.indexing.lucene.postings import open_postings
from keystone.retrieval.lucene.postings import PostingsSearcher

SIZES_DOCUMENTS = (2_000, 10_000, 30_000)
QUERIES, DEPTH, REPEATS = 200, 1000, 3
COLLECTIONS_FOLDER = Path(__file__).parents[2] / "shared" / "data"
COLLECTION_NAMES = (
    "medline",
    "cisi",
    "scifact",
    "arguana",
    "multihop-mini",
    "time",
    "ibm-claims-wiki",
    "msmarco-v2.1-sample",
)


def rows() -> list[Row]:
    """Time for each document and memory, at each size beside the smallest. 1 means linear time and constant memory."""
    texts = list(islice(chain(read_collections(), read_passages(SIZES_DOCUMENTS[-1])), SIZES_DOCUMENTS[-1]))
    query_texts = draw_questions(read_passages(2_000), QUERIES)
    with tempfile.TemporaryDirectory() as folder:
        measured = {size: measure(texts[:size], query_texts, Path(folder)) for size in SIZES_DOCUMENTS}
    first = SIZES_DOCUMENTS[0]
    found = []
    for size in SIZES_DOCUMENTS[1:]:
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
class Measurement:
    """The costs of an index without embeddings.

    The `seconds` of building it and the bytes of `store` and `lucene` are for one record. `memory` is the peak in
    bytes, `rate` the number of queries in a second.
    """

    seconds: float
    store: float
    lucene: float
    memory: float
    rate: float


def read_collections() -> Iterator[str]:
    """The texts of the test collections."""
    for name in COLLECTION_NAMES:
        for file in sorted(COLLECTIONS_FOLDER.glob(f"{name}/corpus.jsonl*")):
            with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
                for line in stream:
                    record = orjson.loads(line)
                    yield record.get("text") or record.get("segment") or record["title"]


def measure(texts: list[str], query_texts: list[str], folder: Path, repeats: int = REPEATS) -> Measurement:
    """Index texts by `keystone index --no-dense`, then search by BM25; returns medians over the repeats."""
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
    searcher, rates = PostingsSearcher(open_postings(out / "postings")), []
    for _ in range(REPEATS + 1):
        start = time.perf_counter()
        searcher.search(query_texts, query_texts, DEPTH, os.cpu_count() or 1)
        rates.append(len(query_texts) / (time.perf_counter() - start))
    store, lucene = (sum(f.stat().st_size for f in (out / part).iterdir()) for part in ("store", "lucene"))
    count = len(texts)
    return Measurement(median(seconds) / count, store / count, lucene / count, median(peaks), median(rates[1:]))
