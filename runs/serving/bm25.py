"""BM25 of queries that arrive together, in one batch for each depth, language and setting."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from keystone.indexing.index import Index
from keystone.retrieval.backends import Sparse, open_sparse, open_store, renew_store, strip_feedback
from keystone.retrieval.bm25 import expand_queries
from keystone.retrieval.system import OpenIndex
from keystone.retrieval.types import Bm25
from keystone.runs.pipeline.ranking.rank import Hits
from keystone.runs.serving.batches import Batches

MOST_QUERIES = 256
"""The most queries of a batch."""
MOST_SEARCHERS = 4
"""The searchers, one for each language and each setting of the engine, that stay open."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A query, its depth, the parameters of BM25, and the language of the documents; None stands for all."""

    text: str
    depth: int
    bm25: Bm25
    language: str | None


@dataclass(frozen=True, slots=True)
class Bm25Batches:
    """The BM25 search of an index. `default` holds for requests that name no parameters."""

    default: Bm25
    batches: Batches[Asked, Hits]

    async def search(self, text: str, depth: int, bm25: Bm25 | None = None, language: str | None = None) -> Hits:
        """Rank the top `depth` documents of a query. `UserError` from the engine."""
        return await self.batches.ask(Asked(text, depth, bm25 or self.default, language))


def open_bm25(index: Index, bm25: Bm25, threads: int) -> Bm25Batches:
    """Open the BM25 search of an index. `UserError` if it cannot be opened."""
    shared = open_store(index)

    def choose(language: str | None) -> Index:
        return index if language is None else index.with_language(language)

    @lru_cache(MOST_SEARCHERS)
    def open_kept(engine: Bm25, language: str | None) -> Sparse:
        return open_sparse(choose(language), shared, engine)

    def search(asked: Sequence[Asked]) -> list[Hits]:
        found: dict[int, Hits] = {}
        groups: dict[tuple[Bm25, str | None, int], list[int]] = {}
        for place, one in enumerate(asked):
            groups.setdefault((one.bm25, one.language, one.depth), []).append(place)
        for (own, language, depth), places in groups.items():
            opened = OpenIndex(choose(language), store := renew_store(index, shared), threads)
            engine = strip_feedback(index, own)
            searcher = open_kept(engine, language) if store is shared else open_sparse(opened.index, store, engine)
            expanded = expand_queries(opened, searcher, [asked[p].text for p in places], own.feedback)
            rankings = searcher.search([str(p) for p in places], expanded, depth, threads)
            hits = list(zip(store.ids(rankings.docs), rankings.scores.tolist(), strict=True))
            for place, (start, end) in zip(places, pairwise(rankings.offsets.tolist()), strict=True):
                found[place] = hits[start:end]
        return [found[place] for place in range(len(asked))]

    open_kept(bm25, None)
    return Bm25Batches(bm25, Batches(search, MOST_QUERIES))
