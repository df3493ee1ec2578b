"""Parasol with bounds: the share of grading calls saved at equal output, by waves, on simulated grades.

The simulations: in `quality`, each document has a quality from Beta(0.6, 2.5), and a grade is three trials of it. In
`independent`, grades are drawn independently, most of them low. In `aspects`, queries also differ in difficulty.

One peer is a plain order in the same waves: each query in turn, for all documents that may still be among the first k.
The other peer is the least number of calls that bounds allow if the k-th score is known beforehand. If queries are
alike, no order of a document's queries is better than another, so no method needs fewer calls. If queries differ, the
least is that of hindsight: the lowest grades first.
"""

from collections.abc import Callable
from functools import partial
from statistics import mean

import numpy as np
from numpy.typing import NDArray

from benchmarks.table import Row, compare_costs, take_turns
from keystone.fusion.parasol import MAX_GRADE, Pairs, Top, TopSettings, find_top, parasol

Grades = NDArray[np.float64]
Policy = Callable[[Grades, int, int], int]
"""Gives the number of calls for grades (float64[queries, documents]), k and the calls of a wave."""

NARRATIVES, QUERIES = 30, 8
SIZES = ((100, 20), (100, 5), (150, 20), (150, 5))
WAVE_CALLS = (1, 16, 64)
MODEL_CALL_S = 0.05
"""The time of a short call."""


def quality(random: np.random.Generator, documents: int) -> Grades:
    """Grades of documents that differ in quality, float64[queries, documents]."""
    return random.binomial(3, random.beta(0.6, 2.5, documents), (QUERIES, documents)).astype(np.float64)


def independent(random: np.random.Generator, documents: int) -> Grades:
    """Low grades without a pattern, float64[queries, documents]."""
    return random.choice(4, (QUERIES, documents), p=[0.55, 0.25, 0.15, 0.05]).astype(np.float64)


def aspects(random: np.random.Generator, documents: int) -> Grades:
    """Grades of documents that differ in quality, by queries that differ in difficulty: float64[queries, documents]."""
    return aspects_and_scores(random, documents)[0]


def aspects_and_scores(random: np.random.Generator, documents: int) -> tuple[Grades, Grades]:
    """Grades as in `aspects`, and the scores of a noisy retrieval, both float64[queries, documents]."""
    logits = random.normal(-1.8, 1.2, documents) + random.normal(0, 1.2, (QUERIES, 1))
    logits = logits + random.normal(0, 0.7, (QUERIES, documents))
    grades = random.binomial(3, 1 / (1 + np.exp(-logits))).astype(np.float64)
    return grades, logits + random.normal(0, 1, (QUERIES, documents))


def ours(grades: Grades, k: int, wave: int, grid: bool = False, scores: Grades | None = None) -> int:
    """The number of calls of `find_top`: one for each pair, or if `grid` is true, one for each document."""
    search = find_top(len(grades), grades.shape[1], TopSettings(k, wave, grid), scores)
    try:
        pairs: Pairs = next(search)
        while True:
            pairs = search.send(grades[pairs])
    except StopIteration as stop:
        top: Top = stop.value
    sums = parasol(grades)
    assert top.documents.tolist() == np.argsort(-sums, kind="stable")[:k].tolist()
    assert top.scores.tolist() == sums[top.documents].tolist()
    return int(np.count_nonzero(top.asked.any(axis=0))) if grid else top.judged


def plain(grades: Grades, k: int, wave: int) -> int:
    """The number of calls of the plain order: query after query, for all documents that their bounds do not exclude."""
    judged = np.zeros(grades.shape, dtype=np.bool_)
    while True:
        lower, upper = parasol(np.where(judged, grades, 0)), parasol(np.where(judged, grades, MAX_GRADE))
        kth = np.argsort(-lower, kind="stable")[k - 1]
        out = (upper < lower[kth]) | ((upper == lower[kth]) & (np.arange(len(lower)) > kth))
        queries, documents = np.nonzero(~judged & ~out)
        if not len(queries):
            return int(np.count_nonzero(judged))
        judged[queries[:wave], documents[:wave]] = True


def least(grades: Grades, k: int, _wave: int) -> int:
    """The number of calls until each document has all grades, or its bound is below the k-th score, in query order."""
    scores = parasol(grades)
    kth, place = np.argsort(-scores, kind="stable")[k - 1], np.arange(QUERIES)[:, None]
    bounds = np.array([parasol(np.where(place < judged, grades, MAX_GRADE)) for judged in range(QUERIES)])
    above = (bounds > scores[kth]) | ((bounds == scores[kth]) & (np.arange(len(scores)) <= kth))
    return int(np.count_nonzero(above))


def hindsight(grades: Grades, k: int, wave: int) -> int:
    """The number of calls of `least` if each document's queries come in the order of their grades, the lowest first."""
    return least(np.sort(grades, axis=0), k, wave)


def rows() -> list[Row]:
    """The share of calls saved, beside both peers and without retrieval's scores, and the time for each pair."""
    found = []
    for simulate in (quality, independent, aspects):
        for documents, k in SIZES:
            tables = [simulate(np.random.default_rng(seed), documents) for seed in range(NARRATIVES)]
            name = f"Parasol, {simulate.__name__}, top {k} of {documents} x {QUERIES}"

            def saved(policy: Policy, wave: int, tables: list[Grades] = tables, k: int = k) -> float:
                return 100 * (1 - mean(policy(table, k, wave) / table.size for table in tables))

            def row(detail: str, mine: float, other: float, target: float | None, bound: str, name: str = name) -> Row:
                return Row(f"{name}: {detail}", mine, other, "% saved", mine / other, target, bound)

            shares = {wave: saved(ours, wave) for wave in WAVE_CALLS}
            found += [
                row(f"waves of {wave}, plain order", share, saved(plain, wave), 1, "bounds of g to g + r log 4")
                for wave, share in shares.items()
            ]
            peer = hindsight if simulate is aspects else least
            found.append(row(f"waves of 1, {peer.__name__}", shares[1], saved(peer, 1), None, "not knowing the grades"))
    for documents, k in SIZES:
        drawn = [aspects_and_scores(np.random.default_rng(seed), documents) for seed in range(NARRATIVES)]
        with_scores, without = (
            100
            * (1 - mean(ours(grades, k, 16, scores=scores if used else None) / grades.size for grades, scores in drawn))
            for used in (True, False)
        )
        name = f"Parasol, aspects, top {k} of {documents} x {QUERIES}: waves of 16, retrieval's scores not used"
        ratio, bound = with_scores / without, "the knowledge of retrieval about a pair"
        found.append(Row(name, with_scores, without, "% saved", ratio, None, bound))
    table = quality(np.random.default_rng(0), 100)
    calls = {wave: partial(ours, table, 20, wave) for wave in WAVE_CALLS}
    by_grid = ours(table, 20, 16, grid=True)
    bound = "a document is out or whole: bounds cannot bite"
    found.append(
        compare_costs("Parasol by grid, waves of 16, against pairs", by_grid, calls[16](), None, bound, "calls")
    )
    seconds = take_turns({str(wave): job for wave, job in calls.items()}, repeats=3)
    return found + [
        compare_costs(
            f"Parasol, waves of {wave}: time a pair, against a model call",
            seconds[str(wave)] / job(),
            MODEL_CALL_S,
            None,
            "numpy calls on small arrays",
        )
        for wave, job in calls.items()
    ]
