"""Ties of scores: searches of engines that break the last one by an order of their own, and scores without ties."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keystone.retrieval.types import Columns

SPARE_HITS = 8
"""The number of hits that a search asks for beyond the wanted depth."""
LEAST_INT32 = -(1 << 31)
LEAST_NORMAL_STEP = 1 << 23
"""The bits of the least normal float32, 2 ** -126, and so its steps from zero."""
QUERY_DISTANCE_BITS = 33
"""A distance of 2 ** 33 between the steps of two queries exceeds that between any two float32."""


def search_past_ties(
    search: Callable[[Sequence[int], int], Sequence[Columns]], queries: int, depth: int
) -> list[Columns]:
    """Search each of `queries` queries so deep that no hit is missing that ties with the hit at `depth`.

    `search(places, wanted)` returns the best `wanted` hits of the queries at these places, or fewer if there are fewer.
    The results have the order of the queries, and may be longer than `depth`.
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


def decrease_strictly(
    scores: Sequence[float] | NDArray[np.floating[Any]], offsets: NDArray[np.int64] | None = None
) -> NDArray[np.float32]:
    """Make scores (finite, never increasing) decrease strictly in float32, by the least possible change.

    No score is denormal, since some readers take such numbers for 0: so the next score below 0 is -2 ** -126. If
    `offsets` (int64[queries + 1]) are given, the scores `offsets[i]:offsets[i + 1]` of each query i decrease by
    themselves. Returns float32[len(scores)]. `ValueError` for a score that float32 cannot hold.
    """
    with np.errstate(over="ignore"):
        values = np.asarray(scores, dtype=np.float64).astype(np.float32)
    finite = bool(np.isfinite(values).all())
    offsets = np.array([0, len(values)]) if offsets is None else offsets
    steps = _leave_out_denormal(_flip_negative(values.view(np.int32).astype(np.int64)))
    # Each step is at most the step before it less 1. So step + place is at most the least one before it in its query.
    apart = np.repeat(np.arange(len(offsets) - 1) << QUERY_DISTANCE_BITS, np.diff(offsets)) - np.arange(len(steps))
    steps -= apart
    np.minimum.accumulate(steps, out=steps)
    steps += apart
    decreased = _flip_negative(_bring_back_denormal(steps)).astype(np.int32).view(np.float32)
    if not finite or not np.isfinite(decreased).all():
        raise ValueError("a score is not finite in float32")
    return decreased


def _leave_out_denormal(steps: NDArray[np.int64]) -> NDArray[np.int64]:
    """Count steps from zero without those of denormal numbers, which become zero, in place."""
    sizes = np.maximum(np.abs(steps) - (LEAST_NORMAL_STEP - 1), 0)
    np.multiply(np.sign(steps), sizes, out=steps)
    return steps


def _bring_back_denormal(steps: NDArray[np.int64]) -> NDArray[np.int64]:
    """Count the steps of denormal numbers again, in place."""
    steps += np.sign(steps) * (LEAST_NORMAL_STEP - 1)
    return steps


def _flip_negative(bits: NDArray[np.int64]) -> NDArray[np.int64]:
    """Turn the bits of float32 into steps from zero, or back, in place: the negative ones count down from -2 ** 31."""
    return np.subtract(LEAST_INT32, bits, out=bits, where=bits < 0)
