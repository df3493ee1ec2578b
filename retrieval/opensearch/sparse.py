"""BM25 and impacts by OpenSearch. BM25 gives the rankings of Lucene: same scores, ties by row.

OpenSearch 2.x multiplies BM25 scores by (k1 + 1), and Keystone divides them again.

The threshold algorithm finds the exact best sums of several searches (Fagin, Lotem and Naor, PODS 2001).
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keystone.indexing.impacts import open_impact_encoder
from keystone.indexing.index import Index
from keystone.indexing.io.error_text import show_value
from keystone.indexing.lucene.analyzer import stems_of
from keystone.indexing.opensearch.analysis import CONTENTS
from keystone.indexing.opensearch.cluster import Request, as_expected, place_at
from keystone.indexing.opensearch.index import IMPACTS, ROW
from keystone.indexing.opensearch.requests import ask
from keystone.indexing.opensearch.search import open_cluster, search_each, search_of
from keystone.indexing.types import Store, Tick, chunks
from keystone.retrieval.backends import Impacts, Sparse
from keystone.retrieval.languages import LanguagesSearcher
from keystone.retrieval.opensearch.pages import HitReading, search_pages
from keystone.retrieval.types import K1, Bm25, Queries, Rankings, Statistics, ranked

DEFAULT_CLAUSES = 1024
"""The maximum number of words in a query if nobody has changed the cluster's setting."""


def open_sparse(index: Index, _store: Store, bm25: Bm25) -> Sparse:
    """Open BM25 of an index in OpenSearch, over all its languages. `UserError` for other parameters than its own."""
    bm25.refuse_change(str(place_at(index.at)))
    found = [OpenSearchSparse(one, bm25.statistics) for one in index.list_languages()]
    return LanguagesSearcher(found) if index.languages and not index.language_part else found[0]


class OpenSearchSparse(Sparse):
    """BM25 with k1=0.9, b=0.4 over an index in a cluster; `statistics` names the shards that count words.

    Texts are analyzed here, as the cluster has analyzed the documents. If the index has several languages, only
    `index.language_part` is searched.
    """

    def __init__(self, index: Index, statistics: Statistics = "global") -> None:
        part = index.language_part
        self._language, self._field = index.language, f"{CONTENTS}.{part}" if part else CONTENTS
        self._cluster = open_cluster(index)
        everywhere = statistics == "global" and self._cluster.shards > 1
        header = {"search_type": "dfs_query_then_fetch"} if everywhere else {}
        factor = 1 / (K1 + 1) if self._cluster.version < (3,) else 1.0
        self._reading = HitReading(lambda scores: (scores * factor).astype(np.float32), header)

    def search(
        self,
        query_ids: Sequence[str],
        queries: Queries,
        depth: int,
        threads: int = 1,  # noqa: ARG002
        tick: Tick = lambda _: None,
    ) -> Rankings:
        """Rank the top `depth` by BM25; ties by id. Long queries are split. `UserError` if no answer comes."""
        weights = [Counter(self.stems(query)) if isinstance(query, str) else query for query in queries]
        long = [
            number for number, own in enumerate(weights) if len(own) > DEFAULT_CLAUSES and len(own) > self._most_words()
        ]
        asked = [{} if number in long else own for number, own in enumerate(weights)]
        found = self._search_pages(query_ids, [self._ask_stems(own) for own in asked], depth, tick)
        docs = [found.of(number) for number in range(len(found))]
        scores = [found.scores_of(number) for number in range(len(found))]
        for number in long:
            docs[number], scores[number] = self._rank_long_query(query_ids[number], weights[number], depth)
        return ranked(query_ids, docs, scores, depth) if long else found

    def _search_pages(
        self, names: Sequence[str], queries: Sequence[Any], depth: int, tick: Tick = lambda _: None
    ) -> Rankings:
        return search_pages(self._cluster, self._reading, names, queries, depth, tick)

    def _most_words(self) -> int:
        """Ask for the maximum number of words in a query."""
        wanted = {"flat_settings": "true", "include_defaults": "true"}
        found = ask(self._cluster.nodes, Request("GET", "/_cluster/settings", params=wanted)).checked()
        with as_expected(self._cluster.place):
            known = found["defaults"] | found["persistent"] | found["transient"]
            return max(2, int(known.get("indices.query.bool.max_clause_count", DEFAULT_CLAUSES)))

    def _rank_long_query(
        self, name: str, weights: Mapping[str, float], depth: int
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Rank documents by several searches for some words each: rows int32[n] and scores float32[n], best first."""
        stems, most = sorted(weights), self._most_words() - 1
        parts = [self._ask_stems({stem: weights[stem] for stem in some}) for some in chunks(stems, most)]

        def sums(rows: NDArray[np.int32]) -> NDArray[np.float64]:
            totals = np.zeros(len(rows))
            for chunk in chunks(rows, self._cluster.window):
                only = {"filter": {"terms": {ROW: self._cluster.to_numbers(chunk)}}, "minimum_should_match": 1}
                found = self._search_pages(
                    [name] * len(parts), [{"bool": part["bool"] | only} for part in parts], len(chunk)
                )
                np.add.at(totals, np.searchsorted(rows, found.docs), found.scores)
            return totals

        rows, totals = find_best_sums(lambda deep: self._search_pages([name] * len(parts), parts, deep), sums, depth)
        return rows, totals.astype(np.float32)

    def stems(self, text: str) -> list[str]:
        """Return the stems of a text in order, as the index holds them."""
        return stems_of(text, self._language)

    def stem_frequencies(self, stems: Sequence[str]) -> list[int]:
        """Count the documents that hold each stem."""
        searches = [
            search_of(self._ask_stem(stem, 1.0), 0, f"frequency of {stem!r}", [], track_total_hits=True)
            for stem in stems
        ]
        return search_each(self._cluster, searches, self._read_count)

    def _read_count(self, answer: Any) -> int:
        found = answer["hits"]["total"]["value"]
        if type(found) is not int or not 0 <= found <= self._cluster.documents:
            raise ValueError(
                f"found {show_value(found)} documents with a word, expected 0 to {self._cluster.documents}"
            )
        return found

    def _ask_stems(self, weights: Mapping[str, float]) -> dict[str, Any]:
        if not weights:
            return {"match_none": {}}
        return {"bool": {"should": [self._ask_stem(stem, weight) for stem, weight in weights.items()]}}

    def _ask_stem(self, stem: str, weight: float) -> dict[str, Any]:
        return {"term": {self._field: {"value": stem, "boost": weight}}}


DEPTH_FACTOR = 4


def find_best_sums(
    best: Callable[[int], Rankings], sums: Callable[[NDArray[np.int32]], NDArray[np.float64]], depth: int
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Find the `depth` documents with the highest sum of scores over all searches; ties by row.

    `best(n)` ranks the top n documents of each search, with scores above 0. `sums(rows)` returns the exact sums of
    int32[n] rows: float64[n]. A document that no search has found yet cannot exceed the sum of the searches' last
    scores. The function looks deeper until that bound is below the last wanted sum. Returns rows int32[n] and sums
    float64[n], n <= depth.
    """
    deep = depth
    while True:
        found = best(deep)
        rows = np.unique(found.docs)
        totals = sums(rows)
        order = np.lexsort((rows, -totals))[:depth]
        last = [float(found.scores_of(i)[-1]) for i in range(len(found)) if len(found.of(i)) == deep]
        if not last or (len(order) == depth and totals[order[-1]] > sum(last)):
            return rows[order], totals[order]
        deep *= DEPTH_FACTOR


class OpenSearchImpacts(OpenSearchSparse, Impacts):
    """Inner products of the impacts of queries and of documents in a cluster. The words of queries are tokens.

    OpenSearch keeps impacts exactly, in fields of the type `rank_features`. A linear function multiplies each by its
    weight in the query, a whole number. So scores are exact sums, and the rankings are those of local impacts.
    `UserError` as from `open_cluster`.
    """

    def __init__(self, index: Index, name: str) -> None:
        super().__init__(index)
        self._reading = HitReading(lambda scores: scores.astype(np.float32))
        vocabulary = open_impact_encoder(index.impacts[name]).vocabulary
        self._fields = {token: f"{IMPACTS}.{name}.{entry}" for entry, token in enumerate(vocabulary)}

    def _ask_stem(self, stem: str, weight: float) -> dict[str, Any]:
        return {"rank_feature": {"field": self._fields[stem], "linear": {}, "boost": weight}}
