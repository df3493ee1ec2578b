"""The cost of a record at 10,000, 30,000 and 100,000 records; docs/index.md extrapolates from these slopes.

If the test collections lie beside the project, the records are their documents, then their segments. Otherwise they are
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

from benchmarks.growth import measure, read_collections
from benchmarks.table import Row
from benchmarks.texts import PASSAGE_WORDS, draw_questions, read_passages
from keystone.indexing.corpora.segments import cut_segments
from keystone.indexing.encoders.dense import open_encoder
from keystone.indexing.types import MINILM, Document
from keystone.indexing.vectors.faiss_index import import_faiss

SIZES_RECORDS = (10_000, 30_000, 100_000)
QUERIES, DEPTH, DIMENSION = 100, 1000, 384
EMBEDDED_TEXTS, TEXT_WORDS = 300, (158, 819)
"""The number of texts whose embedding is timed, and their words: those of MS MARCO V2.1's segments and documents."""


def rows() -> list[Row]:
    """Each cost of a record at each size, beside the smallest size. 1 means that the cost is constant."""
    texts = list(islice(chain(_read_records(), read_passages(SIZES_RECORDS[-1])), SIZES_RECORDS[-1]))
    query_texts = draw_questions(
        [text for text in texts[: SIZES_RECORDS[0]] if len(text.split()) >= PASSAGE_WORDS], QUERIES
    )
    with tempfile.TemporaryDirectory() as folder:
        measured = {size: measure(texts[:size], query_texts, Path(folder), repeats=1) for size in SIZES_RECORDS}
    flat = {size: _measure_flat_search(size) for size in SIZES_RECORDS}
    found, first = [], SIZES_RECORDS[0]
    for size in SIZES_RECORDS:
        words = sum(len(text.split()) for text in texts[:size]) / size
        own, least = measured[size], measured[first]
        bound = f"{words:.0f} words a record"
        found += [
            _slope_row(f"{size:,} records: indexing", own.seconds * 1e3, least.seconds * 1e3, "ms a record", bound),
            _slope_row(f"{size:,} records: document store", own.store, least.store, "bytes a record", bound),
            _slope_row(f"{size:,} records: Lucene index", own.lucene, least.lucene, "bytes a record", bound),
            _slope_row(f"{size:,} records: peak memory", own.memory / 1e6, least.memory / 1e6, "MB", "the JVM's heap"),
            _slope_row(
                f"{size:,} records: BM25", 1e3 / own.rate, 1e3 / least.rate, "ms a query", "postings of its words"
            ),
            _slope_row(
                f"{size:,} vectors: exact search",
                flat[size] / size * 1e9,
                flat[first] / first * 1e9,
                "ns a query and vector",
                "inner products and heaps",
            ),
        ]
    rates = [_measure_embedding(words) for words in TEXT_WORDS]
    return [
        *found,
        *(
            Row(
                f"embedding texts of {words} words by MiniLM",
                rate,
                rates[0],
                "texts a CPU s",
                rate / rates[0],
                None,
                "multiply-adds, of 256 tokens at most",
            )
            for words, rate in zip(TEXT_WORDS, rates, strict=True)
        ),
    ]


def _slope_row(name: str, ours: float, least: float, unit: str, bound: str) -> Row:
    return Row(name, ours, least, unit, least / ours, None, bound)


def _read_records() -> Iterator[str]:
    texts = list(read_collections())
    yield from texts
    for number, text in enumerate(texts):
        document = cut_segments(Document(f"d{number}", text))
        yield from (document.segment_text(segment) for segment in document.segments)


def _measure_embedding(words: int) -> float:
    """The number of texts of `words` words that are embedded in a second of processor time."""
    stream = " ".join(read_passages(EMBEDDED_TEXTS * 10)).split()
    texts = [" ".join(stream[i * words : (i + 1) * words]) for i in range(EMBEDDED_TEXTS)]
    model = open_encoder(MINILM)
    model.embed(texts[:20])
    start = time.process_time()
    model.embed(texts, os.cpu_count() or 1)
    return EMBEDDED_TEXTS / (time.process_time() - start)


def _measure_flat_search(size: int) -> float:
    """The wall seconds of a query in a batch, among `size` vectors."""
    faiss, random = import_faiss(), np.random.default_rng(1)
    index = faiss.IndexFlatIP(DIMENSION)
    index.add(random.normal(size=(size, DIMENSION)).astype(np.float32))
    queries = random.normal(size=(QUERIES, DIMENSION)).astype(np.float32)
    seconds = []
    for _ in range(4):
        start = time.perf_counter()
        index.search(queries, DEPTH)
        seconds.append((time.perf_counter() - start) / QUERIES)
    return median(seconds[1:])
