"""Parasol (Keystone-Docs RAG, section 3.2.1): documents by `sum_q log(u(q, d) + 1)`, and its top k for fewer grades.

A document with graded sum g and r ungraded queries lies in [g, g + r log 4]. While a document is among the k with
the highest upper bounds and has an ungraded query, no method can do without grading it further: until its bound
falls, fewer than k others can be above it. Asking such pairs alone, one at a time, is therefore the least that any
method asks which takes each document's queries in the same order (Chang and Hwang, SIGMOD 2002: minimal probing).
What is left to choose is that order, and what fills a wave: here the pairs that will be needed as far as the
grades at hand tell.
"""

from collections.abc import Generator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Pairs = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Queries and documents of pairs, by number."""

BEST = 3.0
"""The highest grade."""
_STEP = 2.0**-39
_FIRST_GUESS = 0.4
_TRUST = 0.5


def log_terms(grades: Floats) -> Floats:
    """log(u + 1) of each grade u, 0 for an absent one (NaN), rounded to a multiple of 2^-39.

    Sums of fewer than 10,000 terms are then exact: the same in any order, and equal where the grades say so
    (2 log 2 = log 4), so that ties are ties.
    """
    return np.rint(np.log1p(np.where(np.isnan(grades), 0.0, grades)) / _STEP) * _STEP


_MOST = float(log_terms(np.array(BEST)))


def parasol(grades: Floats) -> Floats:
    """The score of each document (equation 2), float64[documents], from float[queries, documents] grades 0 to 3.

    A grade that is absent (NaN) adds nothing.
    """
    scores: Floats = log_terms(grades).sum(axis=0)
    return scores


@dataclass(frozen=True, slots=True)
class Top:
    """The first k documents by Parasol and what was asked to find them."""

    documents: NDArray[np.int64]
    """Score down, ties by number: int64[min(k, documents)]. All their pairs were asked."""
    scores: Floats
    """Beside `documents`."""
    grades: Floats
    """float64[queries, documents]; NaN where grading failed or nothing was asked."""
    asked: NDArray[np.bool_]
    """bool[queries, documents]."""

    @property
    def judged(self) -> int:
        """The pairs asked, of `asked.size`."""
        return int(np.count_nonzero(self.asked))


def find_top(
    queries: int,
    documents: int,
    k: int,
    wave: int | None = None,
    grid: bool = False,
    scores: Floats | None = None,
) -> Generator[Pairs, Floats, Top]:
    """Yield waves of pairs, be sent their grades (float64[pairs], NaN where grading failed), return the top k.

    Documents and scores are those that grading all pairs would give, whatever the grades. A wave has at most `wave`
    pairs, or with `grid` the open pairs of at most `wave` documents; None: all pairs at once. The pairs of a wave
    are ordered by document, then query. `scores` are those that retrieval gave the pairs (float64[queries, documents],
    NaN where it did not find them): they change what is asked first, never the result. `ValueError` for a grade outside
    0 to 3, and for k or `wave` below 1.
    """
    if k < 1 or (wave is not None and wave < 1):
        raise ValueError(f"k and wave: found {k} and {wave}, expected at least 1")
    grades = np.full((queries, documents), np.nan)
    asked = np.zeros((queries, documents), dtype=np.bool_)
    leaning = 1.0 if scores is None or not scores.size else _leaning(scores)
    while len((pairs := next_wave(grades, asked, k, wave, grid, leaning))[0]):
        found = yield pairs
        if np.any((found < 0) | (found > BEST)):
            raise ValueError(f"grades: found {found[(found < 0) | (found > BEST)][0]:g}, expected 0 to {BEST:g}")
        grades[pairs], asked[pairs] = found, True
    sums = parasol(grades)
    first = np.argsort(-sums, kind="stable")[:k]
    return Top(first, sums[first], grades, asked)


def next_wave(
    grades: Floats,
    asked: NDArray[np.bool_],
    k: int,
    wave: int | None = None,
    grid: bool = False,
    leaning: Floats | float = 1.0,
) -> Pairs:
    """The pairs to grade next, none when the top k is certain; arguments as in `find_top` and `Top`.

    A document is asked about first with the queries that promise it least, which lowers its bound most. A pair is
    needed if its document's upper bound is expected to be no lower than the k-th best score, as expected, when
    the pair's turn comes; needed pairs are taken by that bound, the highest first. What pairs are expected to add is
    multiplied by `leaning`.
    """
    gains = log_terms(grades)
    lower = gains.sum(axis=0)
    upper = lower + _MOST * np.count_nonzero(~asked, axis=0)
    open = ~asked & _may_be_among(lower, upper, k)
    if wave is None or not open.any():
        return _by_document(*np.nonzero(open))

    expected = np.minimum(_expected(gains, asked & ~np.isnan(grades)) * leaning, _MOST)
    final = np.minimum(lower + np.where(asked, 0.0, expected).sum(axis=0), upper)  # rounding must not lift it above
    kth_score = -np.sort(-final)[:k][-1]
    turns = np.argsort(np.where(open, expected, np.inf), axis=0, kind="stable")
    open_at = np.take_along_axis(open, turns, axis=0)
    falls = np.take_along_axis(_MOST - expected, turns, axis=0)
    bounds = upper - (np.cumsum(falls, axis=0) - falls)
    needed = open_at & (bounds >= kth_score)
    if grid:
        chosen = np.flatnonzero(needed[0])
        chosen = chosen[np.argsort(-upper[chosen], kind="stable")[:wave]]
        return _by_document(*np.nonzero(open & np.isin(np.arange(len(lower)), chosen)))
    turn, document = np.nonzero(needed)
    first = np.lexsort((document, -bounds[needed]))[:wave]
    return _by_document(turns[turn[first], document[first]], document[first])


def _may_be_among(lower: Floats, upper: Floats, k: int) -> NDArray[np.bool_]:
    """Which documents are not certainly below k others, the smaller number being above at equal scores."""
    kth = np.argsort(-lower, kind="stable")[:k][-1:]
    among: NDArray[np.bool_] = (upper > lower[kth]) | ((upper == lower[kth]) & (np.arange(len(lower)) <= kth))
    return among


def _expected(gains: Floats, known: NDArray[np.bool_]) -> Floats:
    """What each pair is expected to add: a factor of its query times one of its document, each learned from `known`."""
    weights = known.astype(np.float64)
    of_query, of_document = np.ones(len(gains)), np.ones(gains.shape[1])
    for _ in range(2):
        of_document = (1 + gains.sum(axis=0) / _FIRST_GUESS) / (1 + of_query @ weights)
        of_query = (1 + gains.sum(axis=1) / _FIRST_GUESS) / (1 + weights @ of_document)
    return _FIRST_GUESS * np.outer(of_query, of_document)


def _leaning(scores: Floats) -> Floats:
    """Factors above 1 where a document stands higher among those of the query than it does for its other queries."""
    one, other = (np.nan_to_num(scores, nan=-np.inf)[at] for at in (np.s_[:, :, None], np.s_[:, None, :]))
    standing = ((other < one).mean(axis=2) + (other <= one).mean(axis=2)) / 2
    leaning: Floats = np.exp(_TRUST * (standing - standing.mean(axis=0)))
    return leaning


def _by_document(queries: NDArray[np.intp], documents: NDArray[np.intp]) -> Pairs:
    order = np.lexsort((queries, documents))
    return queries[order].astype(np.int64), documents[order].astype(np.int64)
