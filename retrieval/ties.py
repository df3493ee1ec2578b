"""Searches of engines that break the tie at the last place by an order of their own."""

from collections.abc import Callable, Sequence

from retrieval.types import Columns

SPARE_HITS = 8
"""The number of hits that a search asks for beyond the wanted depth."""


def search_past_ties(
    search: Callable[[Sequence[int], int], Sequence[Columns]], queries: int, depth: int
) -> list[Columns]:
    """Search each of `queries` queries so deep that no hit is missing that ties with the hit at `depth`.

    `search(places, wanted)` returns the best `wanted` hits of the queries at these places, or fewer if there are
    fewer. The results are beside the queries; they may be longer than `depth`.
    """
    found: dict[int, Columns] = {}
    left, wanted = list(range(queries)), depth + SPARE_HITS
    while left:
        found.update(zip(left, search(left, wanted), strict=True))
        left = [place for place in left if _cuts_a_tie(found[place], depth, wanted)]
        wanted *= 2
    return [found[place] for place in range(queries)]


def _cuts_a_tie(hits: Columns, depth: int, wanted: int) -> bool:
    _, scores = hits
    return len(scores) >= wanted and bool(scores[-1] == scores[depth - 1])
