"""BM25 and dense search by OpenSearch. Rankings are those of Lucene and FAISS: same scores, ties by row.

Scores of 2.x are (k1 + 1) times Lucene's and are divided by that. A dense score of OpenSearch is 1 + p for an inner
product p of at least 0, else 1 / (1 - p), of which a float32 holds less than of p alone. So queries are multiplied by
2^23: the products of vectors on the grid (`indexing.vectors.embed`), multiples of 2^-24, are then whole halves, and
1 + p is exact; what is below 0 is rounded to the grid again, which is exact down to about -0.35.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexing.errors import UserError
from indexing.index import Index
from indexing.io.error_text import show_value
from indexing.opensearch.cluster import Request, as_expected
from indexing.opensearch.index import CONTENTS, ROW, VECTOR
from indexing.opensearch.requests import ask
from indexing.opensearch.search import Cluster, open_cluster, search_each, search_of
from indexing.types import Tick
from indexing.vectors.types import Vectors
from retrieval.lucene.analyzer import stems_of
from retrieval.lucene.search import K1
from retrieval.threshold import best_sums
from retrieval.types import Rankings, Statistics, ranked

SCALE = 2.0**23
GRID = 2.0**24
CLAUSES = 1024
"""Words of a query that a cluster takes where nobody has changed that."""
DEEPEST = 10_000
"""Neighbours that OpenSearch finds in a graph at most."""

_EF_SEARCH = re.compile(r"efSearch=([1-9]\d{0,5})")


class OpenSearchSparse:
    """BM25 with k1=0.9, b=0.4 over an index in a cluster."""

    def __init__(self, index: Index, statistics: Statistics = "global") -> None:
        self._cluster = open_cluster(index)
        everywhere = statistics == "global" and self._cluster.shards > 1
        self._header = {"search_type": "dfs_query_then_fetch"} if everywhere else {}
        self._factor = 1 / (K1 + 1) if self._cluster.version < (3,) else 1.0

    def search(
        self,
        query_ids: Sequence[str],
        queries: Sequence[str] | Sequence[Mapping[str, float]],
        depth: int,
        threads: int = 1,  # noqa: ARG002
        tick: Tick = lambda _: None,
    ) -> Rankings:
        """The top `depth` documents of each query, a text or weighted stems, by BM25; ties by document id."""
        weights = [Counter(stems_of(query)) if isinstance(query, str) else query for query in queries]
        long = [number for number, own in enumerate(weights) if len(own) > CLAUSES and len(own) > self._clauses()]
        asked = [{} if number in long else own for number, own in enumerate(weights)]
        found = self._pages(query_ids, [_of_stems(own) for own in asked], depth, tick)
        docs = [found.of(number) for number in range(len(found))]
        scores = [found.scores_of(number) for number in range(len(found))]
        for number in long:
            docs[number], scores[number] = self._long(query_ids[number], weights[number], depth)
        return ranked(query_ids, docs, scores, depth) if long else found

    def _pages(self, names: Sequence[str], queries: Sequence[Any], depth: int, tick: Tick = lambda _: None) -> Rankings:
        return search_pages(self._cluster, names, queries, depth, self._score, self._header, tick)

    def _clauses(self) -> int:
        """The words of a query that the cluster takes."""
        wanted = {"flat_settings": "true", "include_defaults": "true"}
        found = ask(self._cluster.nodes, Request("GET", "/_cluster/settings", params=wanted)).checked()
        with as_expected(self._cluster.place):
            known = found["defaults"] | found["persistent"] | found["transient"]
            return max(2, int(known.get("indices.query.bool.max_clause_count", CLAUSES)))

    def _long(
        self, name: str, weights: Mapping[str, float], depth: int
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """The ranking of a query of more words than the cluster takes, from searches for some of them each."""
        stems, most = sorted(weights), self._clauses() - 1
        parts = [
            _of_stems({stem: weights[stem] for stem in stems[start : start + most]})
            for start in range(0, len(stems), most)
        ]

        def sums(rows: NDArray[np.int32]) -> NDArray[np.float64]:
            totals = np.zeros(len(rows))
            for start in range(0, len(rows), self._cluster.window):
                chunk = rows[start : start + self._cluster.window]
                only = {"filter": {"terms": {ROW: chunk}}, "minimum_should_match": 1}
                found = self._pages([name] * len(parts), [{"bool": part["bool"] | only} for part in parts], len(chunk))
                np.add.at(totals, np.searchsorted(rows, found.docs), found.scores)
            return totals

        rows, totals = best_sums(lambda deep: self._pages([name] * len(parts), parts, deep), sums, depth)
        return rows, totals.astype(np.float32)

    def _score(self, scores: NDArray[np.float64]) -> NDArray[np.float32]:
        return (scores * self._factor).astype(np.float32)

    def stems(self, text: str) -> list[str]:
        """The stems of a text in order, as they are indexed."""
        return stems_of(text)

    def stem_frequencies(self, stems: Sequence[str]) -> list[int]:
        """In how many documents each stem occurs."""
        searches = [
            search_of(_of_stem(stem, 1.0), 0, f"frequency of {stem!r}", [], track_total_hits=True) for stem in stems
        ]
        return search_each(self._cluster, searches, self._count)

    def _count(self, answer: Any) -> int:
        found = answer["hits"]["total"]["value"]
        if type(found) is not int or not 0 <= found <= self._cluster.documents:
            raise ValueError(
                f"found {show_value(found)} documents with a word, expected 0 to {self._cluster.documents}"
            )
        return found

    def document_frequencies(self, words: Sequence[str]) -> list[int]:
        """In how many documents the stem of each word occurs; 0 for a stop word."""
        own = [stems[0] if len(stems := stems_of(word)) == 1 else "" for word in words]
        known = sorted({stem for stem in own if stem})
        frequency = dict(zip(known, self.stem_frequencies(known), strict=True))
        return [frequency.get(stem, 0) for stem in own]


class OpenSearchDense:
    """Inner products with the vectors of an index in a cluster: exact for `Flat`, else by its graph."""

    def __init__(self, index: Index, parameters: str = "") -> None:
        self._cluster = open_cluster(index)
        self._exact = index.faiss == "Flat"
        chosen = _EF_SEARCH.fullmatch(parameters)
        if parameters and (self._exact or not chosen):
            expected = "none: a Flat index is searched exactly" if self._exact else "efSearch=N alone for OpenSearch"
            raise UserError(f"retrieval.faiss: found {parameters!r}, expected {expected}")
        self._method = {"method_parameters": {"ef_search": int(chosen[1])}} if chosen else {}
        place = self._cluster.place
        mapping = ask(self._cluster.nodes, Request("GET", f"{place.path}/_mapping")).checked()
        with as_expected(place):
            self._dimension = int(mapping[place.name]["mappings"]["properties"][VECTOR]["dimension"])

    @property
    def dimension(self) -> int:
        """Entries of a vector."""
        return self._dimension

    def search(
        self,
        query_ids: Sequence[str],
        queries: Vectors,
        depth: int,
        threads: int = 1,  # noqa: ARG002
    ) -> Rankings:
        """The top `depth` documents of each query vector (float32[queries, dimension]); ties by document id."""
        if not self._exact and depth > DEEPEST:
            raise UserError(
                f"retrieval.depth: found {depth}, expected at most {DEEPEST}: OpenSearch finds no more by a graph; "
                "an index of kind Flat has no such bound"
            )
        scaled = queries * np.float32(SCALE)
        asked = [self._exactly(query) if self._exact else self._nearest(query, depth) for query in scaled]
        return search_pages(self._cluster, query_ids, asked, depth, inner_products)

    def _exactly(self, query: Vectors) -> dict[str, Any]:
        parameters = {"field": VECTOR, "query_value": query, "space_type": "innerproduct"}
        script = {"source": "knn_score", "lang": "knn", "params": parameters}
        return {"script_score": {"query": {"match_all": {}}, "script": script}}

    def _nearest(self, query: Vectors, depth: int) -> dict[str, Any]:
        return {"knn": {VECTOR: {"vector": query, "k": depth, **self._method}}}


def inner_products(scores: NDArray[np.float64]) -> NDArray[np.float32]:
    """The inner products that OpenSearch's scores of scaled queries stand for. `ValueError` for other scores."""
    if np.any(scores <= 0):
        raise ValueError(f"found the score {scores.min():g} of a vector, expected more than 0")
    products = np.where(scores >= 1, scores - 1, 1 - 1 / scores) * (GRID / SCALE)
    return (np.rint(products) / GRID).astype(np.float32)


def search_pages(
    cluster: Cluster,
    query_ids: Sequence[str],
    queries: Sequence[Any],
    depth: int,
    score: Callable[[NDArray[np.float64]], NDArray[np.float32]],
    header: dict[str, Any] | None = None,
    tick: Tick = lambda _: None,
) -> Rankings:
    """The top `depth` hits of each query, page by page where there may be more than one search may ask for.

    `score` makes scores of the server's.
    """
    pages: list[list[NDArray[np.float64]]] = [[] for _ in queries]
    after: dict[int, Any] = dict.fromkeys(range(len(queries)))
    done = 0
    while after and done < depth:
        size = min(cluster.window, depth - done)
        searches = [
            search_of(queries[number], size, f"query {query_ids[number]}", **({"search_after": last} if last else {}))
            for number, last in after.items()
        ]
        first = not done
        found = search_each(cluster, searches, partial(_hits, size), header, tick if first else lambda _: None)
        done += size
        for number, (page, _) in zip(after, found, strict=True):
            pages[number].append(page)
        after = {number: last for number, (page, last) in zip(list(after), found, strict=True) if len(page) == size}
    columns = [np.concatenate([np.empty((0, 2)), *own]) for own in pages]
    scores = []
    for name, own in zip(query_ids, columns, strict=True):
        with as_expected(f"{cluster.place}: query {name}"):
            _check_hits(own, cluster.documents)
            scores.append(score(own[:, 0]))
    docs = [own[:, 1].astype(np.int32) for own in columns]
    return ranked(query_ids, docs, scores, depth)


def _hits(size: int, answer: Any) -> tuple[NDArray[np.float64], Any]:
    """Score and row (float64[hits, 2]) of at most `size` hits, and the last one as the server has it."""
    keys = [hit["sort"] for hit in answer.get("hits", {}).get("hits", ())]
    if len(keys) > size:
        raise ValueError(f"found {len(keys)} hits, expected at most {size}")
    if not all(type(row) is int and type(score) in (int, float) for score, row in keys):
        raise ValueError("found a hit whose sort keys are not a score and a row")
    return np.array(keys, dtype=np.float64).reshape(len(keys), 2), keys[-1] if keys else None


def _check_hits(hits: NDArray[np.float64], documents: int) -> None:
    """`ValueError` for score and row (float64[hits, 2]) of anything but documents of the index, best first, each once.

    That a score fits float32 is seen to, as rankings hold it.
    """
    scores, rows = hits.T
    if not np.all(np.abs(scores) <= np.finfo(np.float32).max) or np.any(np.diff(scores) > 0):
        raise ValueError("found scores that are too large or ascend")
    if len(rows) and not 0 <= rows.min() <= rows.max() < documents:
        raise ValueError(f"found row {rows.min():.0f} or {rows.max():.0f}, expected 0 to {documents - 1}")
    if len(np.unique(rows)) < len(rows):
        raise ValueError("found a document twice")


def _of_stems(weights: Mapping[str, float]) -> dict[str, Any]:
    if not weights:
        return {"match_none": {}}
    return {"bool": {"should": [_of_stem(stem, weight) for stem, weight in weights.items()]}}


def _of_stem(stem: str, weight: float) -> dict[str, Any]:
    return {"term": {CONTENTS: {"value": stem, "boost": weight}}}
