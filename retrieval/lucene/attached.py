"""BM25 over a Lucene index that Pyserini or Anserini built, whose document numbers are not rows."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from keystone.indexing.attached.lucene_index import ROWS, lucene_folder
from keystone.indexing.errors import UserError
from keystone.indexing.index import Index
from keystone.indexing.lucene.java import JAVA_LOCK
from keystone.indexing.lucene.read import LuceneRows
from keystone.indexing.types import Store, Tick
from keystone.retrieval.backends import Sparse
from keystone.retrieval.lucene.search import open_searcher
from keystone.retrieval.ties import SPARE_HITS, search_past_ties
from keystone.retrieval.types import BM25, Bm25, Columns, Queries, Rankings, ranked


def open_sparse(index: Index, _store: Store, bm25: Bm25) -> Sparse:
    """Open the BM25 search of the Lucene index that an index folder names.

    `UserError` if that index is gone or has changed since the folder was made, and if it holds impacts.
    """
    if index.impacts:
        name = next(iter(index.impacts))
        raise UserError(
            f"{index.folder}: found impacts in place of the terms of BM25, expected systems of the kind impact alone: "
            f"set retrieval.systems to {{{name}: {{kind: impact, impacts: {name}}}}}"
        )
    return PrebuiltSearcher(lucene_folder(index), LuceneRows(index.folder / ROWS), bm25)


class PrebuiltSearcher:
    """BM25 with Anserini's English analyzer over a Lucene index that Keystone did not build.

    `rows` translates Lucene's document numbers.
    """

    def __init__(self, folder: Path, rows: LuceneRows, bm25: Bm25 = BM25) -> None:
        self._rows, self._searcher = rows, open_searcher(folder, bm25)
        self.stems = self._searcher.stems
        self.stem_frequencies = self._searcher.stem_frequencies
        self.document_frequencies = self._searcher.document_frequencies

    def search(
        self, query_ids: Sequence[str], queries: Queries, depth: int, threads: int = 1, tick: Tick = lambda _: None
    ) -> Rankings:
        """Rank the top `depth` documents of each query by BM25; ties by document id."""

        def find(places: Sequence[int], wanted: int) -> list[Columns]:
            first_tick = tick if wanted == depth + SPARE_HITS else lambda _: None
            asked: Any = [queries[place] for place in places]
            with JAVA_LOCK:
                hits = self._searcher.search([query_ids[place] for place in places], asked, wanted, threads, first_tick)
            rows = self._rows.rows(hits.docs)
            return [(rows[start:end], hits.scores[start:end]) for start, end in pairwise(hits.offsets.tolist())]

        hits = search_past_ties(find, len(queries), depth)
        return ranked(query_ids, [rows for rows, _ in hits], [scores for _, scores in hits], depth)
