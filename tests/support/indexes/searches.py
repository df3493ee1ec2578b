"""Searches of an index by systems of the short form, with their settings by keyword."""

from collections.abc import Sequence
from typing import Any

from keystone.indexing.index import Index
from keystone.indexing.types import Store
from keystone.indexing.vectors.of_documents import TextsOf, join_title_and_text
from keystone.retrieval import search
from keystone.retrieval.backends import open_store
from keystone.retrieval.bm25 import Bm25System
from keystone.retrieval.dense import DenseSystem
from keystone.retrieval.system import OpenIndex, System
from keystone.retrieval.types import BEST_PASSAGE, PassageScore, Query, Rankings


def make_system(name: str, **settings: Any) -> System:
    """Make `bm25`, `dense`, `hyde` or `query2doc`, with the given settings that its kind has."""
    kind = DenseSystem if name in ("dense", "hyde") else Bm25System
    own = {key: value for key, value in settings.items() if key in kind.model_fields}
    return kind(reads="query" if name in ("bm25", "dense") else "passage", **own)


def search_all(
    index: Index,
    store: Store,
    queries: Sequence[Query],
    systems: Sequence[str] = ("bm25", "dense"),
    depth: int = 1000,
    threads: int = 1,
    texts_of: TextsOf = join_title_and_text,
    passages: PassageScore = BEST_PASSAGE,
    **settings: Any,
) -> dict[str, Rankings]:
    """Search by each system, as a run without the long form does."""
    settings |= {"depth": depth, "best_passages": passages.best, "first_passage_weight": passages.first_weight}
    opened = OpenIndex(index, store, threads, texts_of=texts_of)
    made = {name: make_system(name, **settings) for name in systems}
    return search.search_all(made, opened, queries, make_system("bm25", **settings))


def search_bm25(index: Index, store: Store, queries: Sequence[Query], **settings: Any) -> Rankings:
    """Search by BM25 alone."""
    return search_all(index, store, queries, ["bm25"], **settings)["bm25"]


def search_embeddings(index: Index, queries: Sequence[Query], **settings: Any) -> Rankings:
    """Search all documents of the index by embeddings alone."""
    return search_all(index, open_store(index), queries, ["dense"], **settings)["dense"]
