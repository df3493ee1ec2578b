"""Rankings from engines that cut ties at their last place by an order of their own."""

from collections.abc import Callable, Sequence

from retrieval.types import Columns

SPARE = 8
"""Hits that are asked for beyond what is wanted."""


def search_whole(search: Callable[[Sequence[int], int], Sequence[Columns]], queries: int, depth: int) -> list[Columns]:
    """The hits of each query, `depth` and more, until none is missing that ties with the one at `depth`.

    `search` takes places of queries and how many hits are wanted; it gives best first as many as there are.
    """
    found: dict[int, Columns] = {}
    left, wanted = list(range(queries)), depth + SPARE
    while left:
        found.update(zip(left, search(left, wanted), strict=True))
        left = [place for place in left if _cuts_a_tie(found[place], depth, wanted)]
        wanted *= 2
    return [found[place] for place in range(queries)]


def _cuts_a_tie(hits: Columns, depth: int, wanted: int) -> bool:
    _, scores = hits
    return len(scores) >= wanted and bool(scores[-1] == scores[depth - 1])
