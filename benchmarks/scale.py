"""What a record costs at 10,000, 30,000 and 100,000 records: the slopes from which docs/scale.md extrapolates.

Records are the documents of the test collections, then their segments, where they lie beside the project; else
passages of `texts`.
"""

import os
import tempfile
import time
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from statistics import median

import numpy as np

from benchmarks.growth import collected, measure
from benchmarks.table import Row
from benchmarks.texts import WORDS as PASSAGE
from benchmarks.texts import passages, questions
from indexing.corpora.segments import segmented
from indexing.types import Document
from indexing.vectors.faiss_index import faiss_module
from indexing.vectors.minilm import MiniLM

SIZES = (10_000, 30_000, 100_000)
QUERIES, DEPTH, DIMENSION = 100, 1000, 384
EMBEDDED, WORDS = 300, (158, 819)
"""Texts whose embedding is timed, of as many words as the segments and documents of MS MARCO V2.1 have."""


def rows() -> list[Row]:
    """Each cost of a record at each size beside that of the smallest; 1 means that it does not change."""
    texts = list(islice(chain(_records(), passages(SIZES[-1])), SIZES[-1]))
    asked = questions([text for text in texts[: SIZES[0]] if len(text.split()) >= PASSAGE], QUERIES)
    with tempfile.TemporaryDirectory() as folder:
        measured = {size: measure(texts[:size], asked, Path(folder), repeats=1) for size in SIZES}
    flat = {size: _flat(size) for size in SIZES}
    found, first = [], SIZES[0]
    for size in SIZES:
        words = sum(len(text.split()) for text in texts[:size]) / size
        own, least = measured[size], measured[first]
        bound = f"{words:.0f} words a record"
        found += [
            _slope(f"{size:,} records: indexing", own.seconds * 1e3, least.seconds * 1e3, "ms a record", bound),
            _slope(f"{size:,} records: document store", own.store, least.store, "bytes a record", bound),
            _slope(f"{size:,} records: Lucene index", own.lucene, least.lucene, "bytes a record", bound),
            _slope(f"{size:,} records: peak memory", own.memory / 1e6, least.memory / 1e6, "MB", "the JVM's heap"),
            _slope(f"{size:,} records: BM25", 1e3 / own.rate, 1e3 / least.rate, "ms a query", "postings of its words"),
            _slope(f"{size:,} vectors: exact search", flat[size] / size * 1e9, flat[first] / first * 1e9,
                   "ns a query and vector", "inner products and heaps"),
        ]  # fmt: skip
    rates = [_embedding(words) for words in WORDS]
    return [*found, *(
        Row(f"embedding texts of {words} words by MiniLM", rate, rates[0], "texts a CPU s", rate / rates[0], None,
            "multiply-adds, of 256 tokens at most")
        for words, rate in zip(WORDS, rates, strict=True)
    )]  # fmt: skip


def _slope(name: str, ours: float, least: float, unit: str, bound: str) -> Row:
    return Row(name, ours, least, unit, least / ours, None, bound)


def _records() -> Iterator[str]:
    texts = list(collected())
    yield from texts
    for number, text in enumerate(texts):
        document = segmented(Document(f"d{number}", text))
        yield from (document.segment_text(segment) for segment in document.segments)


def _embedding(words: int) -> float:
    """Texts of so many words that are embedded in a second of processor time."""
    stream = " ".join(passages(EMBEDDED * 10)).split()
    texts = [" ".join(stream[i * words : (i + 1) * words]) for i in range(EMBEDDED)]
    model = MiniLM()
    model.embed(texts[:20])
    start = time.process_time()
    model.embed(texts, os.cpu_count() or 1)
    return EMBEDDED / (time.process_time() - start)


def _flat(size: int) -> float:
    """Wall seconds of a query among so many vectors, in a batch."""
    faiss, random = faiss_module(), np.random.default_rng(1)
    index = faiss.IndexFlatIP(DIMENSION)
    index.add(random.normal(size=(size, DIMENSION)).astype(np.float32))
    queries = random.normal(size=(QUERIES, DIMENSION)).astype(np.float32)
    seconds = []
    for _ in range(4):
        start = time.perf_counter()
        index.search(queries, DEPTH)
        seconds.append((time.perf_counter() - start) / QUERIES)
    return median(seconds[1:])
