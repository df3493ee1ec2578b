"""Impact search beside Anserini's searcher of impacts, which Pyserini calls."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.table import Row, compare_costs, take_turns
from benchmarks.texts import draw_questions, read_passages
from keystone.indexing.lucene.java import java_class
from keystone.indexing.lucene.postings import open_postings, write_postings
from keystone.indexing.lucene.write import build_lucene
from keystone.indexing.types import Document
from keystone.retrieval.lucene.postings import ImpactSearcher

DOCUMENTS, QUERIES, QUERY_TERMS, DEPTH = 20_000, 100, 24, 1000


def rows() -> list[Row]:
    """Speed beside Anserini's searcher, one query after another, whose hits come to Python as objects."""
    texts = read_passages(DOCUMENTS)
    with tempfile.TemporaryDirectory() as folder:
        return [_search_impacts(Path(folder), texts)]


def _search_impacts(folder: Path, texts: list[str]) -> Row:
    """Search an index of words as if their frequencies were impacts, which is the same work."""
    build_lucene((Document(f"{row:07d}", text) for row, text in enumerate(texts)), folder / "lucene")
    write_postings(folder / "lucene", folder / "postings")
    ours, random = ImpactSearcher(open_postings(folder / "postings")), np.random.default_rng(1)
    stems = sorted({stem for text in draw_questions(texts, 2_000) for stem in text.lower().split() if len(stem) > 3})
    asked = [
        {str(stem): float(random.integers(1, 200)) for stem in random.choice(stems, QUERY_TERMS, replace=False)}
        for _ in range(QUERIES)
    ]
    ids = [str(number) for number in range(QUERIES)]
    searcher = java_class("io.anserini.search.SimpleImpactSearcher")(str(folder / "lucene"))
    maps = []
    for query in asked:
        maps.append(java_class("java.util.HashMap")())
        for stem, weight in query.items():
            maps[-1].put(stem, java_class("java.lang.Integer")(int(weight)))
    jobs: dict[str, Any] = {
        "ours": lambda: ours.search(ids, asked, DEPTH, 1),
        "peer": lambda: [searcher.search(one, DEPTH) for one in maps],
    }
    seconds = take_turns(jobs, repeats=5)
    name = f"impact search, {QUERIES} queries of {QUERY_TERMS} terms, {DOCUMENTS:,} passages: Anserini's searcher"
    return compare_costs(
        name,
        seconds["ours"],
        seconds["peer"],
        4.0,
        "adding postings; one thread each; the peer also turns each hit into an object of Python",
    )
