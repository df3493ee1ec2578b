"""Impact search beside Anserini's searcher of impacts, which Pyserini calls; the opening of an index of four parts."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.table import Row, compare_costs, take_turns
from benchmarks.texts import draw_questions, read_passages
from keystone.indexing.builds.index import build_index
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.impacts import settle_impacts
from keystone.indexing.lucene.java import java_class
from keystone.indexing.lucene.postings import open_postings, write_postings
from keystone.indexing.lucene.write import build_lucene
from keystone.indexing.types import Document, Embedding
from keystone.retrieval.lucene.postings import ImpactSearcher
from tests.support.models.checkpoints import write_checkpoint
from tests.support.servers.embeddings import serving

DOCUMENTS, QUERIES, QUERY_TERMS, DEPTH = 20_000, 100, 24, 1000
PARTED, THREADS = 5_000, os.cpu_count() or 1
OPENING = """
import sys, time
from pathlib import Path
from keystone.indexing.impacts import open_impact_encoder
from keystone.indexing.index import open_index
from keystone.retrieval.backends import open_store
from keystone.retrieval.search import KINDS
from keystone.retrieval.system import OpenIndex

start = time.process_time()
index = open_index(Path(sys.argv[1]))
opened = OpenIndex(index, open_store(index))
for kind, settings in (("bm25", {}), ("dense", {}), ("dense", {"vectors": "more"}), ("impact", {"impacts": "words"})):
    KINDS[kind](**settings).open_parts(opened)
open_impact_encoder(index.impacts["words"])
print(time.process_time() - start)
"""
"""Opens the parts of an index in a new process, and prints the seconds of processor time without the first imports."""


def rows() -> list[Row]:
    """Speed beside Anserini's searcher, one query after another, whose hits come to Python as objects."""
    texts = read_passages(DOCUMENTS)
    with tempfile.TemporaryDirectory() as folder:
        return [
            _search_impacts(Path(folder) / "impacts", texts),
            _open_four_parts(Path(folder) / "parts", texts[:PARTED]),
        ]


def _open_four_parts(folder: Path, texts: list[str]) -> Row:
    """Open BM25, two sets of vectors and a set of impacts with its encoder, for the first time in a process."""
    folder.mkdir()
    documents = ({"id": str(row), "text": text} for row, text in enumerate(texts))
    (folder / "corpus.jsonl").write_text("".join(json.dumps(document) + "\n" for document in documents))
    impacts = {"words": settle_impacts(str(write_checkpoint(folder / "words", head="words")))}
    with serving() as server:
        letters = Embedding("letters", server.url)
        settings = BuildSettings(embedding=letters, vectors={"more": letters}, impacts=impacts, threads=THREADS)
        build_index(folder / "corpus.jsonl", folder / "index", settings)
    done = subprocess.run(
        [sys.executable, "-c", OPENING, str(folder / "index")], capture_output=True, text=True, check=True
    )
    name = f"opening of an index of {len(texts):,} passages with BM25, two sets of vectors and impacts: a second"
    return compare_costs(name, float(done.stdout), 1.0, 1.0, "imports of Numba and ONNX Runtime", "CPU s")


def _search_impacts(folder: Path, texts: list[str]) -> Row:
    """Search an index of words as if their frequencies were impacts, which is the same work."""
    folder.mkdir()
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
