"""The engines that search indexes, imported when needed: to add one, write its openers and a line here."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pkgutil import resolve_name
from typing import Any, Protocol

import numpy as np

from keystone.indexing.embedder import Vectors
from keystone.indexing.errors import UserError
from keystone.indexing.index import Index, of_one_index
from keystone.indexing.types import Store, Tick
from keystone.retrieval.types import BEST_PASSAGE, BM25, Bm25, PassageScore, Queries, Rankings


class Sparse(Protocol):
    """BM25 with Anserini's analyzer for the language of the index."""

    def search(
        self, query_ids: Sequence[str], queries: Queries, depth: int, threads: int = 1, tick: Tick = ...
    ) -> Rankings:
        """Rank the top `depth` documents by BM25, ties by id; `tick` gets the number of finished queries."""

    def stems(self, text: str) -> list[str]:
        """Return the stems of a text in order, as the index holds them."""

    def stem_frequencies(self, stems: Sequence[str]) -> list[int]:
        """Count the documents that hold each stem."""

    def document_frequencies(self, words: Sequence[str]) -> list[int]:
        """Count the documents that hold the stem of each word; 0 for a stop word."""
        own = [stems[0] if len(stems := self.stems(word)) == 1 else "" for word in words]
        known = sorted(set(own) - {""})
        frequency = dict(zip(known, self.stem_frequencies(known), strict=True))
        return [frequency.get(stem, 0) for stem in own]


class Dense(Protocol):
    """Inner products of query vectors and the vectors of documents, or of their passages."""

    @property
    def dimension(self) -> int:
        """The number of entries in a vector."""

    def search(self, query_ids: Sequence[str], queries: Vectors, depth: int, threads: int = 1) -> Rankings:
        """Rank the top `depth` documents of each query vector (float32[queries, dimension]); ties by document id."""


class Impacts(Protocol):
    """Inner products of the impacts of queries and of documents."""

    def search(
        self,
        query_ids: Sequence[str],
        queries: Sequence[Mapping[str, float]],
        depth: int,
        threads: int = 1,
        tick: Tick = ...,
    ) -> Rankings:
        """Rank the top `depth` documents of each query, a mapping from tokens to impacts; ties by document id."""


@dataclass(frozen=True, slots=True)
class Backend:
    """The import paths, `MODULE:NAME`, of an engine's functions or classes, and how a corpus in the engine is named."""

    store: str
    """A function of (index) that returns the documents, a `Store`."""
    sparse: str
    """A function of (index, store, bm25) that returns a `Sparse`; `store` is the one of `open_store(index)`."""
    dense: str | None = None
    """A function of (index, parameters, score) that returns a `Dense`; None if the engine searches no vectors."""
    impacts: str | None = None
    """A function of (index, name) that returns the `Impacts` of a set; None if the engine holds none."""
    attach: str | None = None
    """A function of (corpus, out, settings, progress) that makes an index folder over an index in the engine."""
    prefix: str = ""
    """The beginning of the name of such a corpus."""
    cuts: bool = False
    """Whether an attached index takes segments, or lets Keystone cut windows."""
    counts_words: bool = True
    """Whether the engine tells how many documents hold a word."""
    replaces_words: bool = False
    """Whether the impacts of an index stand in place of its words, so that it has no BM25."""
    grows: bool = False
    """Whether a store knows only the documents that searches with it have found."""


_REST = Backend(
    "keystone.indexing.attached.rest_store:RestStore",
    "keystone.retrieval.rest:RestSearcher",
    attach="keystone.indexing.attached.rest_store:adopt_server",
    prefix="rest:",
    counts_words=False,
    grows=True,
)
BACKENDS = {
    "lucene": Backend(
        "keystone.indexing.store:open_store",
        "keystone.retrieval.lucene.search:open_sparse",
        "keystone.retrieval.faiss_search:open_dense",
        "keystone.retrieval.lucene.postings:open_impacts",
    ),
    "opensearch": Backend(
        "keystone.indexing.opensearch.store:OpenSearchStore",
        "keystone.retrieval.opensearch.sparse:open_sparse",
        "keystone.retrieval.opensearch.dense:OpenSearchDense",
        "keystone.retrieval.opensearch.sparse:OpenSearchImpacts",
        "keystone.indexing.opensearch.build:attach",
        "opensearch:",
    ),
    "rest": _REST,
    "routir": replace(_REST, prefix="routir:"),  # an index at such a server is one of the backend `rest`
    "pyserini": Backend(
        "keystone.indexing.attached.lucene_index:PrebuiltStore",
        "keystone.retrieval.lucene.search:open_attached",
        impacts="keystone.retrieval.lucene.postings:open_impacts",
        attach="keystone.indexing.attached.lucene_index:adopt_prebuilt",
        prefix="pyserini:",
        cuts=True,
        replaces_words=True,
    ),
}
"""The engines by `Index.backend`."""


@of_one_index
def open_store(index: Index) -> Store:
    """Open the documents of an index. `UserError` for an unknown backend, and if the backend cannot open them."""
    if index.backend not in BACKENDS:
        raise UserError(f"{index.folder}: found an index at {index.at}, which this version cannot open")
    store: Store = resolve_name(BACKENDS[index.backend].store)(index)
    return store


def counts_words(index: Index) -> bool:
    """Tell whether the engine of an index counts the documents that hold a word, as BM25 does."""
    engine = BACKENDS[index.backend]
    return engine.counts_words and not (engine.replaces_words and index.impacts)


def renew_store(index: Index, store: Store) -> Store:
    """Open a store of one's own if the engine's stores grow, so that its rows are freed; else return `store`."""
    return open_store(index) if BACKENDS[index.backend].grows else store


def renew_rows(index: Index, store: Store, rankings: Rankings) -> Rankings:
    """Give rankings the newest rows of their documents if the engine's stores grow, so that all rankings compare."""
    if not BACKENDS[index.backend].grows:
        return rankings
    rows, row_of = np.unique(rankings.docs, return_inverse=True)
    return replace(rankings, docs=store.rows(store.ids(rows))[row_of])


@of_one_index
def open_sparse(index: Index, store: Store, bm25: Bm25 = BM25) -> Sparse:
    """Open the BM25 search of an index and its `store`, to which a REST search adds what it finds.

    `UserError` if the backend cannot open it, or cannot score with `bm25`.
    """
    opener = _resolve(index, "sparse")
    made_here = BACKENDS[index.backend].counts_words
    found: Sparse = opener(index, store, replace(bm25, feedback=None) if made_here else bm25)
    return found


@of_one_index
def open_dense(index: Index, parameters: str = "", score: PassageScore = BEST_PASSAGE) -> Dense:
    """Open the dense search of an index that holds vectors of all documents, or of all their passages.

    `parameters` are those of an inexact index, as in `nprobe=16`. `score` combines the scores of a document's passages,
    if the index has any. `UserError` for a backend that is unknown or searches no vectors, for impossible parameters,
    and if the backend cannot open the index.
    """
    found: Dense = _resolve(index, "dense")(index, parameters, score)
    return found


@of_one_index
def open_impacts(index: Index, name: str) -> Impacts:
    """Open the search of a set of impacts, or take the open one. `UserError` if it is missing or unusable."""
    index.impacts_of(name)
    opener = _resolve(index, "impacts")
    found: Impacts = index.take(("impacts", name), lambda: opener(index, name))
    return found


def _resolve(index: Index, part: str) -> Any:
    """Import an opener of a `Backend`. `UserError` if this version has none for the index."""
    if (path := getattr(BACKENDS.get(index.backend), part, None)) is None:
        raise UserError(f"{index.folder}: found an index at {index.at}, which this version cannot search")
    return resolve_name(path)
