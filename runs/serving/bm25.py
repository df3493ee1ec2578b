"""BM25 of queries that arrive together, in one batch for each depth, language and setting."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from keystone.indexing.index import Index
from keystone.retrieval.backends import Sparse, open_sparse, open_store, renew_store
from keystone.retrieval.bm25 import search_languages
from keystone.retrieval.system import OpenIndex
from keystone.retrieval.types import Bm25
from keystone.runs.pipeline.ranking.rank import Hits
from keystone.runs.serving.batches import Batches

MOST_QUERIES = 256
"""The most queries of a batch."""
MOST_SEARCHERS = 4
"""The searchers, one for each language, k1 and b, that stay open."""


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

    @lru_cache(MOST_SEARCHERS)
    def open_kept(own: Bm25, language: str | None) -> Sparse:
        return open_sparse(index if language is None else index.with_language(language), shared, own)

    def rank(texts: Sequence[str], own: Bm25, language: str | None, depth: int) -> list[Hits]:
        store, ids = renew_store(index, shared), [str(place) for place in range(len(texts))]
        if own.feedback or store is not shared:
            opened = OpenIndex(index, store, threads)
            rankings = search_languages(opened, own, ids, lambda _: texts, depth, language)
        else:
            rankings = open_kept(own, language).search(ids, texts, depth, threads)
        hits = list(zip(store.ids(rankings.docs), rankings.scores.tolist(), strict=True))
        return [hits[start:end] for start, end in pairwise(rankings.offsets.tolist())]

    def search(asked: Sequence[Asked]) -> list[Hits]:
        found: dict[int, Hits] = {}
        groups: dict[tuple[Bm25, str | None, int], list[int]] = {}
        for place, one in enumerate(asked):
            groups.setdefault((one.bm25, one.language, one.depth), []).append(place)
        for settings, places in groups.items():
            found |= zip(places, rank([asked[place].text for place in places], *settings), strict=True)
        return [found[place] for place in range(len(asked))]

    open_kept(bm25, None)
    return Bm25Batches(bm25, Batches(search, MOST_QUERIES))
