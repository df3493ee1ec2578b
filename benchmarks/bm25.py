"""(c) BM25 from texts of queries to rankings of integers, beside Pyserini's batch search, Lucene, tantivy and bm25s."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peak import read_peak_memory
from benchmarks.pyserini_batch import open_pyserini, read_rankings
from benchmarks.table import Row, compare_costs, take_turns
from benchmarks.texts import draw_questions, read_passages
from keystone.indexing.lucene.postings import open_postings, write_postings
from keystone.indexing.lucene.write import build_lucene
from keystone.indexing.types import Document
from keystone.retrieval.lucene.postings import PostingsSearcher
from keystone.retrieval.lucene.search import LuceneSearcher
from keystone.retrieval.types import K1, B

PASSAGES, QUERIES, DEPTH, REPEATS = 100_000, 500, 1000, 5
COMPARED_QUERIES = 10_000
"""The queries whose rankings are compared with Lucene's."""
THREADS = os.cpu_count() or 1


def rows() -> list[Row]:
    """Speed beside three peers, with a target for Pyserini, and peak memory beside 1 GB."""
    texts = read_passages(PASSAGES)
    query_texts = draw_questions(texts, QUERIES)
    ids = [str(i) for i in range(QUERIES)]
    with tempfile.TemporaryDirectory() as folder:
        build_lucene((Document(f"{row:07d}", text) for row, text in enumerate(texts)), Path(folder, "lucene"))
        write_postings(Path(folder, "lucene"), Path(folder, "postings"))
        ours, lucene = PostingsSearcher(open_postings(Path(folder, "postings"))), LuceneSearcher(Path(folder, "lucene"))
        is_lucenes = _is_same_ranking(ours, lucene, draw_questions(texts, COMPARED_QUERIES, seed=11))
        rankings = ours.search(ids, query_texts, DEPTH, THREADS)
        memory = _measure_memory(Path(folder), query_texts)
        with open_pyserini(Path(folder), texts, query_texts, THREADS, DEPTH) as search_by_pyserini:
            jobs: dict[str, Callable[[], Any]] = {
                "ours": lambda: ours.search(ids, query_texts, DEPTH, THREADS),
                "Lucene": lambda: lucene.search(ids, query_texts, DEPTH, THREADS),
                "Pyserini": search_by_pyserini,
                "tantivy": _open_tantivy(texts, query_texts),
                "bm25s": _open_bm25s(texts, query_texts),
            }
            seconds = take_turns(jobs, repeats=REPEATS)
        theirs = read_rankings(Path(folder))
        same = all(np.array_equal(rankings.of(i), rows) for i, rows in enumerate(theirs))
    name = f"BM25 top {DEPTH}, {QUERIES} queries, {PASSAGES:,} passages"
    ranking = "same rankings" if same else "OTHER RANKINGS"
    bound = f"adding postings; {QUERIES / seconds['ours']:.0f} queries a second on {THREADS} threads; {ranking}"
    beside_pyserini = compare_costs(f"{name}: Pyserini", seconds["ours"], seconds["Pyserini"], 30.0, bound)
    compared = f"{'same' if is_lucenes else 'ANOTHER'} ranking and scores for {COMPARED_QUERIES:,} queries"
    beside_lucene = compare_costs(f"{name}: Lucene in this process", seconds["ours"], seconds["Lucene"], 3.0, compared)
    return [
        beside_pyserini if same else replace(beside_pyserini, ratio=0.0),
        beside_lucene if is_lucenes else replace(beside_lucene, ratio=0.0),
        compare_costs(f"{name}: tantivy", seconds["ours"], seconds["tantivy"], 3.0, "another analyzer, other rankings"),
        compare_costs(f"{name}: bm25s", seconds["ours"], seconds["bm25s"], 1.5, "scores every document in memory"),
        compare_costs(f"{name}: peak memory against 1 GB", memory / 1e9, 1.0, 1.0, "a process of its own", "GB"),
    ]


def _is_same_ranking(ours: PostingsSearcher, lucene: LuceneSearcher, query_texts: list[str]) -> bool:
    """Whether two searches give the same documents in the same order, with the same scores, to the last bit."""
    found, expected = (own.search(query_texts, query_texts, DEPTH, THREADS) for own in (ours, lucene))
    return found.docs.tobytes() == expected.docs.tobytes() and found.scores.tobytes() == expected.scores.tobytes()


def _measure_memory(folder: Path, query_texts: list[str]) -> int:
    """The peak bytes of a process that searches the index twice."""
    (folder / "query_texts.txt").write_text("\n".join(query_texts))
    done = subprocess.run([sys.executable, "-m", "benchmarks.bm25", folder], check=True, stdout=subprocess.PIPE)
    return int(done.stdout)


def _search_twice(folder: Path) -> None:
    query_texts = (folder / "query_texts.txt").read_text().splitlines()
    searcher = PostingsSearcher(open_postings(folder / "postings"))
    for _ in range(2):
        searcher.search(query_texts, query_texts, DEPTH, THREADS)
    print(read_peak_memory())


def _open_tantivy(texts: list[str], query_texts: list[str]) -> Callable[[], list[Any]]:
    import tantivy

    schema = tantivy.SchemaBuilder()
    schema.add_unsigned_field("row", stored=False, indexed=False, fast=True)
    schema.add_text_field("text", stored=False, tokenizer_name="en_stem", index_option="freq")
    index = tantivy.Index(schema.build())
    writer = index.writer(heap_size=200_000_000, num_threads=1)
    for row, text in enumerate(texts):
        document = tantivy.Document()
        document.add_unsigned("row", row)
        document.add_text("text", text)
        writer.add_document(document)
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    searcher = index.searcher()
    queries = [
        index.parse_query(" ".join(words.replace("'", " ").replace("-", " ").split()).lower(), ["text"])
        for words in query_texts
    ]

    def search() -> list[Any]:
        return [searcher.search(query, DEPTH, count=False).hits for query in queries]

    return search


def _open_bm25s(texts: list[str], query_texts: list[str]) -> Callable[[], Any]:
    import bm25s
    import Stemmer

    stemmer = Stemmer.Stemmer("english")
    index = bm25s.BM25(k1=K1, b=B, method="lucene", backend="numba")
    index.index(bm25s.tokenize(texts, stopwords="en", stemmer=stemmer, show_progress=False), show_progress=False)

    def search() -> Any:
        tokens = bm25s.tokenize(query_texts, stopwords="en", stemmer=stemmer, show_progress=False)
        return index.retrieve(tokens, k=DEPTH, n_threads=THREADS, show_progress=False)

    return search


if __name__ == "__main__":
    _search_twice(Path(sys.argv[1]))
