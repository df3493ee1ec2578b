"""Speeds of this machine, and the time that a large corpus would take by them."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from keystone.indexing.errors import UserError
from keystone.indexing.types import MINILM, Document
from keystone.runs.doctor.machine import Finding
from keystone.runs.wording import plural

SENTENCE = "The students of the northern valley study wild bees, their 12 species and the flowers that they visit. "
"""A sentence of 18 words, of which the measured texts are made."""
TEXT = SENTENCE * 10
"""A measured text, of 180 words, as many as a passage of a web page."""
BATCH_TEXTS = 16
"""The texts of a call, for each core."""
MEASURED_S = 1.0
"""The time for which embeddings are measured."""
CORPUS_DOCUMENTS = 1_000_000


INDEXED_TEXTS = 4_000
"""The texts of which an index is built."""


def measure_speeds() -> Iterator[Finding]:
    """Measure how many texts a second this machine indexes for BM25, and embeds by the default model."""
    for subject, measure in (("speed of BM25", _measure_indexing), ("speed of embeddings", _measure_embedding)):
        try:
            rate, described = measure()
            yield Finding("ok", subject, f"{rate:,.0f} {described}{_estimate(rate)}")
        except UserError as error:
            yield Finding("problem", subject, str(error))


def _measure_indexing() -> tuple[float, str]:
    """Build an index of Lucene and its postings twice, once to warm up; returns texts a second and what they are."""
    from keystone.indexing.lucene.postings import write_postings
    from keystone.indexing.lucene.write import build_lucene

    documents = [Document(f"{number:04d}", f"{number} {TEXT}") for number in range(INDEXED_TEXTS)]
    spent = 0.0
    with TemporaryDirectory() as folder:
        for name in ("first", "second"):
            place, start = Path(folder, name), time.perf_counter()
            build_lucene(documents, place)
            write_postings(place, Path(folder, f"{name}.postings"))
            spent = time.perf_counter() - start
    return INDEXED_TEXTS / spent, f"texts of {len(TEXT.split())} words indexed a second"


def _measure_embedding() -> tuple[float, str]:
    """Embed texts for a while; returns vectors a second and what they are."""
    from keystone.indexing.vectors.encoder import open_encoder

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    texts, encoder = [TEXT] * BATCH_TEXTS * cores, open_encoder(MINILM)
    encoder.embed(texts, cores)
    start, done = time.perf_counter(), 0
    while (spent := time.perf_counter() - start) < MEASURED_S:
        encoder.embed(texts, cores)
        done += len(texts)
    where = "a GPU" if encoder.device == "cuda" else plural(cores, "core")
    return done / spent, f"vectors of such texts made a second by {MINILM.label} on {where}"


def _estimate(rate: float) -> str:
    """Say how long a corpus takes at a rate of texts a second."""
    minutes = CORPUS_DOCUMENTS / rate / 60
    taken = f"{minutes:,.0f} minutes" if minutes < 120 else f"{minutes / 60:,.1f} hours"
    return f": {CORPUS_DOCUMENTS:,} such documents take {taken}"
