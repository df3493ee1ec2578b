"""BM25 by a REST server of Pyserini's; what it finds is kept, so that it has rows."""

from collections.abc import Mapping, Sequence

import numpy as np

from indexing.attached.rest_store import RestStore
from indexing.errors import TooDeep, UserError
from indexing.types import Tick
from retrieval.lucene.analyzer import stems_of
from retrieval.ties import SPARE, search_whole
from retrieval.types import Columns, Rankings, ranked


class RestSearcher:
    """A server's index, searched as the server does; `store` is given what is found and numbered anew.

    A server takes texts alone, and does not tell how many documents hold a word.
    """

    def __init__(self, store: RestStore) -> None:
        self._store = store

    def search(
        self,
        query_ids: Sequence[str],
        queries: Sequence[str] | Sequence[Mapping[str, float]],
        depth: int,
        threads: int = 1,  # noqa: ARG002
        tick: Tick = lambda _: None,
    ) -> Rankings:
        """The top `depth` documents of each query by the server's scores; ties by document id. Changes all rows.

        Where the server refuses the few more that tell whether a tie was cut, ties at the last place are as it cut
        them. `UserError` for weighted stems, and where the server refuses `depth` itself. `threads` is of no account.
        """
        texts = [self._text(query) for query in queries]
        names: dict[int, list[str]] = {}

        def found(places: Sequence[int], wanted: int) -> list[Columns]:
            nothing = np.empty(0, np.int32), np.empty(0, np.float32)
            hits = dict.fromkeys(places, nothing)
            asked = [(place, texts[place]) for place in places if texts[place].strip()]
            for place, candidates in self._store.server.searches(asked, wanted):
                self._store.keep((one.id, one.payload) for one in candidates)
                names[place] = [one.id for one in candidates]
                scores = np.array([one.score for one in candidates], dtype=np.float32)
                hits[place] = np.arange(len(candidates), dtype=np.int32), scores
                tick(wanted in (depth, depth + SPARE))
            return [hits[place] for place in places]

        try:
            hits = search_whole(found, len(texts), depth)
        except TooDeep:
            hits = found(range(len(texts)), depth)
        self._store.renumber()
        rows = [self._store.rows(names.get(place, [])) for place in range(len(texts))]
        return ranked(query_ids, rows, [scores for _, scores in hits], depth)

    def stems(self, text: str) -> list[str]:
        """The stems of a text in order, by Anserini's English analyzer, which is the server's unless it was told."""
        return stems_of(text)

    def stem_frequencies(self, stems: Sequence[str]) -> list[int]:
        """Not to be had: `UserError`."""
        return self._refused(stems)

    def document_frequencies(self, words: Sequence[str]) -> list[int]:
        """Not to be had: `UserError`."""
        return self._refused(words)

    def _text(self, query: str | Mapping[str, float]) -> str:
        if not isinstance(query, str):
            raise UserError(f"{self._store.server.url}: takes no weighted words: set retrieval.feedback: none")
        return query

    def _refused(self, words: Sequence[str]) -> list[int]:
        if not words:
            return []
        raise UserError(
            f"{self._store.server.url}: a REST server does not tell how many documents hold a word, here {words[0]!r}: "
            "set retrieval.feedback: none, queries.topic: lead and queries.variants: 0"
        )
