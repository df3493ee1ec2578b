"""BM25 over an index whose documents have languages of their own.

Each language is a collection with its own analyzer, terms and statistics, so scores of two languages do not compare.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keystone.indexing.types import Tick
from keystone.retrieval.backends import Sparse
from keystone.retrieval.types import Queries, Rankings, ranked


class LanguageSearcher:
    """The search in one language, whose rows in the whole index are `rows`, int32[documents], ascending."""

    def __init__(self, searcher: Sparse, rows: NDArray[np.int32]) -> None:
        self._searcher, self._rows = searcher, rows
        self.stems = searcher.stems
        self.stem_frequencies = searcher.stem_frequencies
        self.document_frequencies = searcher.document_frequencies

    def search(
        self, query_ids: Sequence[str], queries: Queries, depth: int, threads: int = 1, tick: Tick = lambda _: None
    ) -> Rankings:
        """Rank the top `depth` documents of the language for each query by BM25; ties by document id."""
        found = self._searcher.search(query_ids, queries, depth, threads, tick)
        return Rankings(found.query_ids, found.offsets, self._rows[found.docs], found.scores)


class LanguagesSearcher:
    """The search of all languages of an index by the same text, each with its own analyzer."""

    def __init__(self, searchers: Sequence[Sparse]) -> None:
        self._searchers = searchers

    def search(
        self, query_ids: Sequence[str], queries: Queries, depth: int, threads: int = 1, tick: Tick = lambda _: None
    ) -> Rankings:
        """Rank the top `depth` documents for each query, as `fuse_languages` does."""
        found = [one.search(query_ids, queries, depth, threads) for one in self._searchers]
        tick(len(queries))
        return fuse_languages(found, depth)

    def stems(self, text: str) -> list[str]:
        """Return the stems of a text, in order, in one language after another, each distinct list once."""
        return [stem for own in dict.fromkeys(tuple(one.stems(text)) for one in self._searchers) for stem in own]

    def stem_frequencies(self, stems: Sequence[str]) -> list[int]:
        """Count the documents that hold each stem, in any language."""
        return list(map(sum, zip(*(one.stem_frequencies(stems) for one in self._searchers), strict=True)))

    def document_frequencies(self, words: Sequence[str]) -> list[int]:
        """Count the documents that hold the stem of each word in their language."""
        return list(map(sum, zip(*(one.document_frequencies(words) for one in self._searchers), strict=True)))


def fuse_languages(found: Sequence[Rankings], depth: int) -> Rankings:
    """Fuse the rankings of languages, which share no document, cut at `depth`.

    Each score is divided by the best one of the query in that language. So the best document of each language has the
    score 1. Ties go to the smaller document id. benchmarks/LOG.md compares this fusion with those of ranks and of
    scores.
    """
    queries = range(len(found[0]))
    docs = [np.concatenate([one.of(i) for one in found]) for i in queries]
    scores = [np.concatenate([_scale(one.scores_of(i)) for one in found]).astype(np.float32) for i in queries]
    return ranked(found[0].query_ids, docs, scores, depth)


def _scale(scores: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
    return scores / scores[0] if len(scores) and scores[0] > 0 else scores
