"""Documents by the grades of their queries: by Parasol with fewer grades, or a set that covers all queries.

Parasol (Keystone-Docs RAG, section 3.2.1) orders documents by `sum_q log(u(q, d) + 1)`. The score of a document with
graded sum g and r ungraded queries lies in [g, g + r log 4]. Suppose that a document is among the k with the highest
upper bounds, and has an ungraded query. Then every method must grade it further: until its bound falls, fewer than k
others can be above it. Compare the methods that take each document's queries in the same order. Among them, a search
that asks only such pairs, one at a time, asks the fewest (minimal probing; Chang and Hwang, SIGMOD 2002). Two choices
remain: that order, and the pairs that fill a wave. This search fills a wave with the pairs that the grades so far
predict to be needed.
"""

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Pairs = tuple[NDArray[np.int64], NDArray[np.int64]]
"""The query numbers and the document numbers of pairs: int64[pairs] each."""

MAX_GRADE = 3.0
"""The highest grade of UMBRELA."""
_TERM_STEP = 2.0**-39
_PRIOR_TERM = 0.4
"""The mean term that a pair is expected to have before any grade is known."""
_LEANING_EXPONENT = 0.5


def log_terms(grades: Floats) -> Floats:
    """The term log(u + 1) of each grade u in any shape, rounded to a multiple of 2^-39; 0 for an absent grade (NaN).

    Sums of fewer than 10,000 such terms are exact and the same in any order. So documents tie whenever their grades
    say so (2 log 2 = log 4).
    """
    return np.rint(np.log1p(np.where(np.isnan(grades), 0.0, grades)) / _TERM_STEP) * _TERM_STEP


_MAX_TERM = float(log_terms(np.array(MAX_GRADE)))


def parasol(grades: Floats) -> Floats:
    """The Parasol score of each document: `sum_q log(u(q, d) + 1)` (Keystone-Docs RAG, section 3.2.1, equation 2).

    `grades` are float[queries, documents] from 0 to 3. An absent grade (NaN) adds 0. Returns float64[documents].
    """
    scores: Floats = log_terms(grades).sum(axis=0)
    return scores


@dataclass(frozen=True, slots=True)
class TopSettings:
    """The documents wanted, and the pairs that are asked at once."""

    k: int
    """The number of documents wanted, 1 or more."""
    wave: int | None = None
    """The most pairs in a wave, or documents if `grid`, 1 or more. None: one wave of all pairs."""
    grid: bool = False
    """Whether a wave contains all open pairs of its documents."""


@dataclass(frozen=True, slots=True)
class Top:
    """The first k documents by Parasol, and the pairs that were asked to find them."""

    documents: NDArray[np.int64]
    """Document numbers by score down, then number up: int64[min(k, documents)]. All their pairs were asked."""
    scores: Floats
    """The score of each of `documents`: float64[min(k, documents)]."""
    grades: Floats
    """float64[queries, documents]. NaN for a pair that was not asked, or whose grading failed."""
    asked: NDArray[np.bool_]
    """bool[queries, documents]."""

    @property
    def judged(self) -> int:
        """The number of pairs asked."""
        return int(np.count_nonzero(self.asked))


def find_top(
    queries: int, documents: int, settings: TopSettings, scores: Floats | None = None
) -> Generator[Pairs, Floats, Top]:
    """Find the top k: yield waves of pairs, receive their grades by `send`, and return a `Top`.

    The caller sends float64[pairs], with NaN for a pair whose grading failed. The result is the one that grading all
    pairs would give. The pairs of a wave are ordered by document, then query. `scores` are the retrieval scores of
    the pairs (float64[queries, documents], NaN for a pair that retrieval did not find). They change the order of the
    questions and never the result. `ValueError` for a grade outside 0 to 3, and for `k` or `wave` below 1.
    """
    k, wave = settings.k, settings.wave
    if k < 1 or (wave is not None and wave < 1):
        raise ValueError(f"k and wave: found {k} and {wave}, expected at least 1")
    grades = np.full((queries, documents), np.nan)
    asked = np.zeros((queries, documents), dtype=np.bool_)
    leaning = 1.0 if scores is None or not scores.size else _compute_leaning(scores)
    while len((pairs := choose_wave(grades, asked, settings, leaning))[0]):
        found = yield pairs
        outside = found[(found < 0) | (found > MAX_GRADE)]
        if len(outside):
            raise ValueError(f"grades: found {outside[0]:g}, expected 0 to {MAX_GRADE:g}")
        grades[pairs], asked[pairs] = found, True
    return _find_first(grades, asked, k)


def extend_top(top: Top, grades: Floats, k: int) -> Top:
    """Find the top k of the documents of `top`, itself a top k, and of further documents, numbered after them.

    `grades` are float64[queries, further documents], NaN where grading failed. A document that is not among the first k
    of `top` cannot be among the first k of more documents. So the caller need not grade it further.
    """
    asked = np.ones(grades.shape, dtype=np.bool_)
    return _find_first(np.hstack([top.grades, grades]), np.hstack([top.asked, asked]), k)


def _find_first(grades: Floats, asked: NDArray[np.bool_], k: int) -> Top:
    sums = parasol(grades)
    first = np.argsort(-sums, kind="stable")[:k]
    return Top(first, sums[first], grades, asked)


def choose_wave(
    grades: Floats, asked: NDArray[np.bool_], settings: TopSettings, leaning: Floats | float = 1.0
) -> Pairs:
    """Choose the pairs to grade next, or none if the top k is certain; `grades` and `asked` are those of `Top`.

    A document's turns begin with the queries that are expected to add least, because those lower its bound most. A
    pair is needed if, at its turn, the document's upper bound is expected to reach the expected k-th score. The wave
    takes needed pairs by that bound, the highest first. `leaning` (float64[queries, documents] or one number)
    multiplies the expected terms.
    """
    k, wave = settings.k, settings.wave
    terms = log_terms(grades)
    lower = terms.sum(axis=0)
    upper = lower + _MAX_TERM * np.count_nonzero(~asked, axis=0)
    open = ~asked & _find_candidates(lower, upper, k)
    if wave is None or not open.any():
        return _sort_by_document(*np.nonzero(open))

    expected = np.minimum(_expect_terms(terms, asked & ~np.isnan(grades)) * leaning, _MAX_TERM)
    final = np.minimum(lower + np.where(asked, 0.0, expected).sum(axis=0), upper)  # rounding must not lift it above
    kth_score = -np.sort(-final)[:k][-1]
    turns = np.argsort(np.where(open, expected, np.inf), axis=0, kind="stable")
    open_at = np.take_along_axis(open, turns, axis=0)
    falls = np.take_along_axis(_MAX_TERM - expected, turns, axis=0)
    bounds = upper - (np.cumsum(falls, axis=0) - falls)
    needed = open_at & (bounds >= kth_score)
    if settings.grid:
        chosen = np.flatnonzero(needed[0])
        chosen = chosen[np.argsort(-upper[chosen], kind="stable")[:wave]]
        return _sort_by_document(*np.nonzero(open & np.isin(np.arange(len(lower)), chosen)))
    turn, document = np.nonzero(needed)
    first = np.lexsort((document, -bounds[needed]))[:wave]
    return _sort_by_document(turns[turn[first], document[first]], document[first])


def _find_candidates(lower: Floats, upper: Floats, k: int) -> NDArray[np.bool_]:
    """Mark the documents that may be among the top k: bool[documents]. Among equals, the smaller number is above."""
    kth = np.argsort(-lower, kind="stable")[:k][-1:]
    among: NDArray[np.bool_] = (upper > lower[kth]) | ((upper == lower[kth]) & (np.arange(len(lower)) <= kth))
    return among


def _expect_terms(terms: Floats, known: NDArray[np.bool_]) -> Floats:
    """Expect a term for each pair: a factor of its query times a factor of its document, learned from `known` pairs."""
    weights = known.astype(np.float64)
    of_query, of_document = np.ones(len(terms)), np.ones(terms.shape[1])
    for _ in range(2):
        of_document = (1 + terms.sum(axis=0) / _PRIOR_TERM) / (1 + of_query @ weights)
        of_query = (1 + terms.sum(axis=1) / _PRIOR_TERM) / (1 + weights @ of_document)
    return _PRIOR_TERM * np.outer(of_query, of_document)


def _compute_leaning(scores: Floats) -> Floats:
    """Compute a factor for each pair: above 1 if the document ranks higher for this query than for its others."""
    one, other = (np.nan_to_num(scores, nan=-np.inf)[at] for at in (np.s_[:, :, None], np.s_[:, None, :]))
    standing = ((other < one).mean(axis=2) + (other <= one).mean(axis=2)) / 2
    leaning: Floats = np.exp(_LEANING_EXPONENT * (standing - standing.mean(axis=0)))
    return leaning


def _sort_by_document(queries: NDArray[np.intp], documents: NDArray[np.intp]) -> Pairs:
    order = np.lexsort((queries, documents))
    return queries[order].astype(np.int64), documents[order].astype(np.int64)


def choose_covering(
    utility: NDArray[np.float64], costs: Sequence[int], budget: int, cap: float = math.inf, per_cost: bool = False
) -> list[int]:
    """Choose items greedily, and return their numbers in the order of choice.

    It maximises `sum_q log(1 + sum_{i in set} u(q, i))`, which is submodular with a cap or without. With costs of 1 it
    reaches at least 1 - 1/e of the optimum (Nemhauser, Wolsey and Fisher 1978). One item is Parasol's first document.

    `utility[q, i]` (float64[queries, items], not negative) is the use of item i to query q. NaN marks an absent grade
    and counts 0. `costs[i]` is the cost of item i in the unit of `budget`: 1 to count items, or a number of tokens.
    Each step takes the affordable item with the largest gain, and the earlier one at a tie. The choice ends when no
    affordable item gains anything. A query whose summed utility reaches `cap` is covered and gains no more. With a
    cap of 3, the highest grade, one exact document covers a query, and so do three related ones.

    If `per_cost` is true, each step takes the item with the largest gain for each unit of its cost, which is above 0.
    """
    if utility.size == 0:
        return []
    utility = np.nan_to_num(utility, nan=0.0)
    covered = np.zeros((utility.shape[0], 1))
    left, open_items = budget, np.ones(utility.shape[1], dtype=bool)
    prices, chosen = np.asarray(costs), list[int]()
    while True:
        gains = (log_terms(np.minimum(covered + utility, cap)) - log_terms(np.minimum(covered, cap))).sum(axis=0)
        gains[~open_items | (prices > left)] = 0.0
        best = int(np.argmax(gains / prices if per_cost else gains))
        if gains[best] <= 0.0:
            return chosen
        chosen.append(best)
        covered += utility[:, [best]]
        left -= int(prices[best])
        open_items[best] = False
