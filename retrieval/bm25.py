"""Systems of the kind `bm25`: BM25 for a query, or for the question and a passage that answers it (query2doc).

In pseudo-relevance feedback, the documents that a query finds first add weighted stems to the query. A term vector maps
stems to weights. Feedback may add a stem of 2 to 20 ASCII letters or digits that occurs in at most a tenth of all
documents. The parameters and this filter are those of Anserini's baselines. For a language other than English, the 2 to
20 characters of a stem may be any.

For an index without embeddings, `weigh_segments` gives BM25 over the segments of some documents.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from keystone.indexing.embedder import GRID_STEP, Vectors
from keystone.indexing.languages import DEFAULT_LANGUAGE
from keystone.indexing.settings import NoneNamed, leave_out
from keystone.indexing.words import list_stems
from keystone.retrieval.backends import BACKENDS, Sparse, open_sparse, renew_rows
from keystone.retrieval.languages import fuse_languages
from keystone.retrieval.system import OpenIndex, Rows, System
from keystone.retrieval.types import K1, B, Bm25, Queries, Query, Rankings, Statistics

QUESTION_REPEATS = 5
"""How often `query2doc` repeats the question before the passage (Query2Doc, section 3)."""


class Bm25System(System):
    """BM25. If it reads passages, it searches for the question five times and the passage once (query2doc)."""

    lowest: ClassVar[float] = 0.0
    lane: ClassVar[str] = "java"

    kind: Literal["bm25"] = "bm25"
    """The kind of the system."""
    k1: float = Field(default=K1, ge=0, le=100)
    """As `retrieval.k1`."""
    b: float = Field(default=B, ge=0, le=1)
    """As `retrieval.b`."""
    feedback: Annotated[Literal["rm3", "rocchio"] | None, NoneNamed("none", "rm3", "rocchio")] = None
    """As `retrieval.feedback`."""
    language: str | None = None
    """The language that is searched; null: [all](corpora.md#languages)."""
    statistics: Statistics = "global"
    """As `retrieval.statistics`."""

    @model_serializer(mode="wrap")
    def _write(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        return leave_out(self, handler, ("language",))

    @property
    def parameters(self) -> Bm25:
        """The parameters with which an engine opens the search."""
        return Bm25(self.k1, self.b, self.statistics)

    def describe(self) -> dict[str, Any]:
        """Describe the method: BM25 with its parameters."""
        return {"method": "BM25", "k1": self.k1, "b": self.b, **({"language": self.language} if self.language else {})}

    def open_parts(self, opened: OpenIndex) -> None:
        """Open the postings."""
        open_sparse(opened.index, opened.store, self.parameters)

    def search(self, opened: OpenIndex, queries: Sequence[Query], within: Rows | None) -> Rankings:
        """Rank documents for each query by BM25, after a first search for feedback if the settings name a method.

        If documents have languages of their own, each language is searched by itself, and `fuse_languages` puts the
        rankings together. `UserError` from the engine, for feedback that it does not support, and for a language that
        the index lacks.
        """
        assert within is None  # no setting gives candidates to this kind
        bm25, ids = replace(self.parameters, feedback=self.feedback), [query.id for query in queries]
        found = search_languages(
            opened, bm25, ids, lambda code: [self._read(one, code) for one in queries], self.depth, self.language
        )
        from keystone.indexing.lucene.java import detach_thread

        detach_thread()
        return found

    def _read(self, query: Query, language: str) -> str:
        if self.reads == "query":
            return dict(query.translations).get(language, query.sparse_text)
        return " ".join([query.question] * QUESTION_REPEATS + [query.passage])


def search_languages(
    opened: OpenIndex,
    bm25: Bm25,
    ids: Sequence[str],
    write_texts: Callable[[str], Sequence[str]],
    depth: int,
    language: str | None = None,
) -> Rankings:
    """Rank documents for each query as `Bm25System.search` does. `write_texts` writes the queries for a language."""
    index = opened.index
    searched = index.list_languages() if language is None else [index.with_language(language)]
    found = [
        _search_language(replace(opened, index=one), bm25, ids, write_texts(one.language), depth) for one in searched
    ]
    if len(found) == 1:
        return found[0]
    return fuse_languages([renew_rows(index, opened.store, one) for one in found], depth)


def _search_language(opened: OpenIndex, bm25: Bm25, ids: Sequence[str], texts: Sequence[str], depth: int) -> Rankings:
    """Search an index in one language, or the documents in one language of an index in several."""
    searcher = open_sparse(opened.index, opened.store, bm25)
    queries: Queries = texts
    if bm25.feedback and BACKENDS[opened.index.backend].counts_words:
        queries = _expand_queries(opened, searcher, texts, bm25.feedback)
    with opened.progress("BM25 search", len(ids)) as tick:
        return searcher.search(ids, queries, depth, opened.threads, tick)


def _expand_queries(opened: OpenIndex, searcher: Sparse, texts: Sequence[str], feedback: str) -> list[dict[str, float]]:
    """Expand each query text into weighted stems, by the documents that it finds first. `feedback`: see `METHODS`."""
    index, store = opened.index, opened.store
    with opened.progress(f"BM25 search for {feedback}", len(texts)) as tick:
        places = [str(place) for place in range(len(texts))]
        first = searcher.search(places, texts, FEEDBACK_DOCUMENTS, opened.threads, tick)
    documents, any_script = index.count_documents(len(store)), index.language != DEFAULT_LANGUAGE
    rows = np.unique(first.docs)
    counts = [Counter(searcher.stems(document.contents)) for document in store.get(rows)]
    stems = sorted(set().union(*counts))
    frequency = dict(zip(stems, searcher.stem_frequencies(stems), strict=True))
    serving = {stem for stem in stems if serves(stem, frequency[stem], documents, any_script)}
    vectors = {
        row: {stem: count for stem, count in own.items() if stem in serving}
        for row, own in zip(rows.tolist(), counts, strict=True)
    }
    return [
        METHODS[feedback](
            Counter(searcher.stems(text)), [vectors[row] for row in first.of(i).tolist()], first.scores_of(i).tolist()
        )
        for i, text in enumerate(texts)
    ]


FEEDBACK_STEMS = 10
"""The maximum number of stems that each document, and the whole feedback, may add."""
FEEDBACK_DOCUMENTS = 10
COMMON_SHARE = 0.1
"""The share of all documents above which a stem is too common to be added."""
ORIGINAL_WEIGHT = 0.5
BETA = 0.75

Vector = dict[str, float]
Feedback = Callable[[Mapping[str, float], Sequence[Mapping[str, float]], Sequence[float]], Vector]

_STEM = re.compile(r"[a-z0-9]{2,20}")
_STEM_OF_ANY_SCRIPT = re.compile(r"\S{2,20}")


def serves(stem: str, documents_with_it: int, documents: int, any_script: bool = False) -> bool:
    """Tell whether feedback may add a stem, which must be rare.

    For English, as in Anserini, it has 2 to 20 ASCII letters or digits; with `any_script`, 2 to 20 characters.
    """
    form = _STEM_OF_ANY_SCRIPT if any_script else _STEM
    return bool(form.fullmatch(stem)) and documents_with_it <= COMMON_SHARE * documents


def rm3(query: Mapping[str, float], documents: Sequence[Mapping[str, float]], scores: Sequence[float]) -> Vector:
    """Expand a query by RM3 (Abdul-Jaleel et al., TREC 2004): half the query's model, half a relevance model.

    `query` and `documents` hold term frequencies; `scores` are the documents' scores. The relevance model (Lavrenko
    and Croft, SIGIR 2001) weighs each document's 10 most frequent stems by its score.
    """
    model: Vector = {}
    for document, score in zip(documents, scores, strict=True):
        top = _largest(document)
        _add(model, top, score / (sum(top.values()) or 1.0))
    top = _largest(model)
    return _mixture(
        ORIGINAL_WEIGHT, _divide(query, sum(query.values())), 1 - ORIGINAL_WEIGHT, _divide(top, sum(top.values()))
    )


def rocchio(query: Mapping[str, float], documents: Sequence[Mapping[str, float]], scores: Sequence[float]) -> Vector:
    """Expand term frequencies by Rocchio (1971): plus 0.75 of the mean of the documents, at unit length.

    Each document counts alike, whatever its score.
    """
    mean: Vector = {}
    for document, _ in zip(documents, scores, strict=True):
        _add(mean, _largest(_divide(document, math.hypot(*document.values()))), 1 / len(documents))
    return _mixture(1.0, _divide(query, math.hypot(*query.values())), BETA, _largest(mean))


METHODS: dict[str, Feedback] = {"rm3": rm3, "rocchio": rocchio}


def _largest(vector: Mapping[str, float]) -> Vector:
    return dict(sorted(vector.items(), key=lambda item: (-item[1], item[0]))[:FEEDBACK_STEMS])


def _divide(vector: Mapping[str, float], length: float) -> Vector:
    return {stem: weight / (length or 1.0) for stem, weight in vector.items()}


def _add(to: Vector, vector: Mapping[str, float], factor: float) -> None:
    for stem, weight in vector.items():
        to[stem] = to.get(stem, 0.0) + factor * weight


def _mixture(a: float, first: Vector, b: float, second: Vector) -> Vector:
    mixed: Vector = {}
    _add(mixed, first, a)
    _add(mixed, second, b)
    return mixed


def weigh_segments(
    texts: Sequence[str], documents: Sequence[Sequence[str]], k1: float, b: float
) -> tuple[Vectors, list[Vectors]]:
    """Weigh the words of texts, and of the segments of documents, so that their inner products are scores of BM25.

    The segments are the collection, in which rare words weigh more. Each text's scores are divided by the sum of its
    weights, so that texts of any length compare. Returns float32[texts, words], and float32[segments, words] for each
    document. Entries are on a grid, so inner products are the same in any order of summation.
    """
    asked = [Counter(list_stems(text)) for text in texts]
    place = {stem: number for number, stem in enumerate(sorted(set().union(*asked)))}
    held = [[list_stems(segment) for segment in segments] for segments in documents]
    lengths = [len(stems) for own in held for stems in own]
    mean = sum(lengths) / (len(lengths) or 1) or 1.0
    counts = Counter(stem for own in held for stems in own for stem in place.keys() & set(stems))

    weights = np.zeros((len(texts), len(place)))
    for row, own_counts in zip(weights, asked, strict=True):
        for stem, count in own_counts.items():
            row[place[stem]] = count * math.log1p((len(lengths) - counts[stem] + 0.5) / (counts[stem] + 0.5))
    weights /= np.maximum(weights.sum(axis=1, keepdims=True), GRID_STEP)

    found = [np.zeros((len(own), len(place))) for own in held]
    for rows, own in zip(found, held, strict=True):
        for row, stems in zip(rows, own, strict=True):
            for stem, count in Counter(stem for stem in stems if stem in place).items():
                row[place[stem]] = count / (count + k1 * (1 - b + b * len(stems) / mean))
    return _round(weights), [_round(rows) for rows in found]


def _round(values: NDArray[np.float64]) -> Vectors:
    """Round down to multiples of `GRID_STEP`, so that no sum of products exceeds 1."""
    return (np.floor(values / GRID_STEP) * GRID_STEP).astype(np.float32)
