"""BM25 by a REST server of Pyserini or Anserini; the store keeps the documents that it finds and gives them rows."""

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain, pairwise

import numpy as np

from keystone.indexing.attached.rest_server import Parameters
from keystone.indexing.attached.rest_store import PROBES, RestStore
from keystone.indexing.errors import Refused, TooDeep, UserError
from keystone.indexing.index import Index
from keystone.indexing.lucene.analyzer import stems_of
from keystone.indexing.types import Tick
from keystone.retrieval.ties import SPARE_HITS, search_past_ties
from keystone.retrieval.types import K1, B, Bm25, Columns, Queries, Rankings, offsets_of, ranked

DEFAULTS = {"k1": K1, "b": B, "feedback": "none"}
"""The settings that need no parameter of the server."""


class RestSearcher:
    """The search of a server's index, by the server's own scores. `store` receives the documents that it finds.

    A server accepts texts only, and it does not tell how many documents hold a word. It gets `bm25.k1` and `bm25.b`
    unless both are the defaults, which are its own, and `bm25.feedback` if that is set. If the index has several
    languages, the server searches all of them, or only `index.language_part`.
    """

    def __init__(self, index: Index, store: RestStore, bm25: Bm25) -> None:
        self._store, self._stems = store, partial(stems_of, language=index.language)
        self._language = {"language": index.language_part} if index.language_part else {}
        self._parameters: dict[str, float | str] = {} if (bm25.k1, bm25.b) == (K1, B) else {"k1": bm25.k1, "b": bm25.b}
        if bm25.feedback:
            self._parameters["feedback"] = bm25.feedback

    def search(
        self,
        query_ids: Sequence[str],
        queries: Queries,
        depth: int,
        threads: int = 1,  # noqa: ARG002
        tick: Tick = lambda _: None,
    ) -> Rankings:
        """Rank the top `depth` documents of each query by the server's scores; ties by document id.

        Rows given earlier keep their documents; see `RestStore`. To see whether the last place cuts a tie, Keystone
        asks for a few more hits. If the server refuses them, its own order decides that tie. `UserError` for weighted
        stems, if the server refuses `depth` itself, and if it cannot answer. The server is asked for each search once:
        see `RestStore.searches`. `UserError` also if a server ignores or refuses `k1` and `b`, or the feedback. The
        method ignores `threads`.
        """
        texts = [self._text(query) for query in queries]
        for keys in PROBES:
            if demanded := {key: self._parameters[key] for key in keys if key in self._parameters}:
                self._demand_parameters(keys, demanded, texts)
        names: dict[int, list[str]] = {}

        def find(places: Sequence[int], wanted: int) -> list[Columns]:
            nothing = np.empty(0, np.int32), np.empty(0, np.float32)
            hits = dict.fromkeys(places, nothing)
            asked = [(place, texts[place]) for place in places if texts[place].strip()]
            for place, found in self._store.searches(asked, wanted, {**self._parameters, **self._language}):
                names[place] = [name for name, _ in found]
                scores = np.array([score for _, score in found], dtype=np.float32)
                hits[place] = np.arange(len(found), dtype=np.int32), scores
                tick(wanted in (depth, depth + SPARE_HITS))
            return [hits[place] for place in places]

        try:
            hits = search_past_ties(find, len(texts), depth)
        except TooDeep:
            hits = find(range(len(texts)), depth)
        self._store.number_documents()
        own = [names.get(place, []) for place in range(len(texts))]
        found = self._store.rows([*chain.from_iterable(own)])
        rows = [found[start:end] for start, end in pairwise(offsets_of([len(ids) for ids in own]))]
        return ranked(query_ids, rows, [scores for _, scores in hits], depth)

    def _demand_parameters(self, keys: tuple[str, ...], demanded: Parameters, texts: Sequence[str]) -> None:
        """Raise `UserError` if the server does not score by parameters. The first query that finds a hit shows it."""
        asked = ", ".join(f"retrieval.{key}: {value}" for key, value in demanded.items())
        defaults = " and ".join(f"retrieval.{key}: {DEFAULTS[key]}" for key in keys)
        expected = f"expected {defaults}, or a server that takes {'them' if len(keys) > 1 else 'it'}"
        try:
            shown = (self._store.takes_parameters(text, keys) for text in texts if text.strip())
            if next((taken for taken in shown if taken is not None), True):
                return
        except Refused as refusal:
            raise UserError(f"{asked}: {refusal}; {expected}") from refusal
        raise UserError(f"{asked}: {self._store.server.url} ignores this: its scores stay the same; {expected}")

    def stems(self, text: str) -> list[str]:
        """Return the stems of a text in order, by Anserini's analyzer for the language of the index."""
        return self._stems(text)

    def stem_frequencies(self, stems: Sequence[str]) -> list[int]:
        """Raise `UserError`, unless the list is empty: a server does not count documents."""
        if not stems:
            return []
        raise UserError(
            f"{self._store.server.url}: a REST server does not tell how many documents hold a word, here {stems[0]!r}: "
            "set retrieval.feedback: none, queries.topic: lead and queries.variants: 0"
        )

    def document_frequencies(self, words: Sequence[str]) -> list[int]:
        """Raise `UserError`, unless the list is empty: a server does not count documents."""
        return self.stem_frequencies(words)

    def _text(self, query: str | Mapping[str, float]) -> str:
        if not isinstance(query, str):
            raise UserError(f"{self._store.server.url}: takes no weighted words: set retrieval.feedback: none")
        return query
