"""BM25 over a Lucene index that was made elsewhere, whose numbers of documents are not rows."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from indexing.lucene.java import ALONE
from indexing.lucene.rows import LuceneRows
from indexing.types import Tick
from retrieval.lucene.search import LuceneSearcher
from retrieval.ties import SPARE, search_whole
from retrieval.types import Columns, Rankings, ranked


class PrebuiltSearcher:
    """A Lucene index of Pyserini's, opened for BM25 with k1=0.9, b=0.4 and Anserini's English analyzer."""

    def __init__(self, folder: Path, rows: LuceneRows, state: str = "") -> None:
        self._rows = rows
        with ALONE:
            self._searcher = _searcher(folder, state)

    def search(
        self,
        query_ids: Sequence[str],
        queries: Sequence[str] | Sequence[Mapping[str, float]],
        depth: int,
        threads: int = 1,
        tick: Tick = lambda _: None,
    ) -> Rankings:
        """The top `depth` documents of each query, a text or weighted stems, by BM25; ties by document id."""

        def found(places: Sequence[int], wanted: int) -> list[Columns]:
            told = tick if wanted == depth + SPARE else lambda _: None
            asked: Any = [queries[place] for place in places]
            with ALONE:
                hits = self._searcher.search([query_ids[place] for place in places], asked, wanted, threads, told)
            return [(hits.of(i), hits.scores_of(i)) for i in range(len(hits))]

        hits = search_whole(found, len(queries), depth)
        return ranked(query_ids, [self._rows.rows(docs) for docs, _ in hits], [scores for _, scores in hits], depth)

    def stems(self, text: str) -> list[str]:
        """The stems of a text in order, as they are indexed."""
        with ALONE:
            return self._searcher.stems(text)

    def stem_frequencies(self, stems: Sequence[str]) -> list[int]:
        """In how many documents each stem occurs."""
        with ALONE:
            return self._searcher.stem_frequencies(stems)

    def document_frequencies(self, words: Sequence[str]) -> list[int]:
        """In how many documents the stem of each word occurs; 0 for a stop word."""
        with ALONE:
            return self._searcher.document_frequencies(words)


@cache
def _searcher(folder: Path, _state: str) -> LuceneSearcher:
    return LuceneSearcher(folder)
