"""How many rows of a ranking to keep: the probability that each is relevant, and the cut where expected F1 is best.

Probabilities come from a calibration, which is fitted on judged topics, or from a mixture of the scores of one ranking.
A calibration is a logistic model of a row's place and score, as in Platt ("Probabilistic outputs for support vector
machines", 1999). With several systems, it also reads the row's place and score in the list of each. All functions look
at one ranking, its rows best first.
"""

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import isqrt

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, ndtr

Floats = NDArray[np.float64]
LEAST_PROBABILITY = 1e-4
"""Probabilities stay this far from 0 and from 1."""
LEAST_TOP_PROBABILITY = 0.05
"""The least probability of a row that `measure_top_error` looks at."""
GRADE_RATIOS = (0.24, 0.57, 2.0, 4.0)
"""How much likelier a grade of 0 to 3 is for a relevant document than for another one.

Measured on the 10,284 pairs of TREC RAG 2025 that UMBRELA and NIST judged. A document counts as relevant from NIST's
grade 2 on, and UMBRELA's grade 4 counts as 3.
"""
FEATURES = ("bias", "log rank", "log rank squared", "share of the first score", "standing", "step down")
"""What describes a row. Its standing is its score between the last one (0) and the first one (1)."""
SYSTEM_FEATURES = ("log rank", "score")
"""What describes a row in the list of each system, if there are several."""
_STARTS = (0.02, 0.1, 0.3)
"""The shares of relevant rows from which the fit of a mixture starts."""
_RIDGE = 1e-3


@dataclass(frozen=True, slots=True)
class Reliability:
    """The rows of each of ten equal bins of probability: their number, mean probability and share of relevant ones."""

    rows: NDArray[np.int64]
    probability: Floats
    relevant: Floats

    @property
    def error(self) -> float:
        """The expected calibration error: the mean difference of the last two columns, weighted by rows."""
        return float(np.sum(self.rows * np.abs(self.probability - self.relevant)) / max(self.rows.sum(), 1))


def expect_f1(probabilities: Floats) -> Floats:
    """Expect the set F1 of the first k rows for each k from 0: float64[rows + 1], exact in O(rows squared).

    The events of `probabilities` (float64[rows]) are independent. Documents outside of the ranking are not relevant.
    Source: Ye et al., "Optimizing F-measure: A Tale of Two Approaches", ICML 2012.
    """
    number = len(probabilities)
    inverse = 1.0 / np.arange(1, 2 * number + 2)  # at i - 1: the expectation of 1 / (i + relevant rows in the rest)
    expected = np.zeros(number + 1)
    for k, counts in zip(range(number, 0, -1), _count_relevant(probabilities), strict=True):
        found = np.arange(k + 1)
        expected[k] = np.sum(2 * found * counts * inverse[k - 1 : 2 * k])
        p = probabilities[k - 1]
        inverse = (1 - p) * inverse[:-1] + p * inverse[1:]
    return expected


def _count_relevant(probabilities: Floats) -> Iterator[Floats]:
    """Yield how probable each number of relevant rows is among all rows, all but the last one, and so on to one row.

    Only some are kept on the way, and those between are made again. So memory grows by rows to the power 1.5.
    """

    def add_rows(counts: Floats, own: Floats) -> list[Floats]:
        return list(accumulate(own, lambda known, p: np.convolve(known, [1 - p, p]), initial=counts))

    parts = np.array_split(probabilities, isqrt(len(probabilities)) or 1)
    starts = list(accumulate(parts[:-1], lambda counts, own: add_rows(counts, own)[-1], initial=np.ones(1)))
    for start, part in zip(reversed(starts), reversed(parts), strict=True):
        yield from reversed(add_rows(start, part)[1:])


def cut_by_f1(probabilities: Floats) -> int:
    """Find how many first rows have the best expected F1, the fewest at a tie: 1 or more, or 0 without rows."""
    return int(np.argmax(expect_f1(probabilities))) if len(probabilities) else 0


def cut_by_precision(probabilities: Floats, precision: float) -> int:
    """Find the most first rows whose expected precision reaches `precision`; 0 if none does."""
    means = np.cumsum(probabilities) / np.arange(1, len(probabilities) + 1)
    return int(np.max(np.flatnonzero(means >= precision), initial=-1)) + 1


def cut_by_budget(rankings: Sequence[Floats], rows: int) -> list[int]:
    """Share `rows` among rankings: the most probable rows stay. Among equals, earlier rankings go first."""
    owners = np.repeat(np.arange(len(rankings)), [len(one) for one in rankings])
    first = np.argsort(-np.concatenate([np.zeros(0), *rankings]), kind="stable")[:rows]
    return [int(rows) for rows in np.bincount(owners[first], minlength=len(rankings))]


def make_monotone(values: Floats) -> Floats:
    """Find the nearest values that never fall, by pooling adjacent violators: float64[n] (Ayer et al., 1955)."""
    pools: list[tuple[float, int]] = []
    for value in values.tolist():
        mean, count = value, 1
        while pools and pools[-1][0] >= mean:
            before, rows = pools.pop()
            mean, count = (before * rows + mean * count) / (rows + count), rows + count
        pools.append((mean, count))
    return np.repeat([mean for mean, _ in pools], [count for _, count in pools]).astype(np.float64)


def describe_rows(scores: Floats) -> Floats:
    """Describe each row by `FEATURES`, which hardly depend on the scale of scores (float[rows], falling): float64."""
    rank = np.log(np.arange(1, len(scores) + 1))
    first, last = (scores[0], scores[-1]) if len(scores) else (0.0, 0.0)
    share = scores / first if first > 0 else np.ones(len(scores))
    standing = (scores - last) / (first - last) if first > last else np.ones(len(scores))
    step = np.append(standing[:-1] - standing[1:], 0.0) if len(scores) else standing
    return np.stack([np.ones(len(scores)), rank, rank**2, share, standing, step], axis=1).astype(np.float64)


def name_features(systems: Iterable[str] = ()) -> list[str]:
    """Name the features of a calibration that also reads the lists of these systems."""
    return [*FEATURES, *(f"{feature} by {system}" for system in systems for feature in SYSTEM_FEATURES)]


def describe_by_system(docs: Iterable[Hashable], hits: Iterable[tuple[Hashable, float]]) -> Floats:
    """Describe documents by `SYSTEM_FEATURES` of a system's own list, best first: float64[docs, 2].

    A document that the list lacks comes after its last one, with the same score.
    """
    known = {doc: (float(rank), score) for rank, (doc, score) in enumerate(hits, 1)}
    last = len(known) + 1.0, min((score for _, score in known.values()), default=0.0)
    found = np.array([known.get(doc, last) for doc in docs], np.float64).reshape(-1, 2)
    found[:, 0] = np.log(found[:, 0])
    return found


def fit_calibration(features: Floats, relevant: NDArray[np.bool_]) -> Floats:
    """Fit the weight of each feature by maximum likelihood with a small ridge, by Newton's method: float64[features].

    `features` are float64[rows, features], the first of which is 1; `relevant` is bool[rows].
    """
    weights = np.zeros(features.shape[1])
    ridge = _RIDGE * np.eye(len(weights)) * len(features) ** 0.5
    ridge[0, 0] = 1e-9
    for _ in range(100):
        p = expit(features @ weights)
        slope = features.T @ (relevant - p) - ridge @ weights
        step = np.linalg.solve((features * (p * (1 - p))[:, None]).T @ features + ridge, slope)
        weights += step * min(1.0, 5.0 / max(float(np.abs(step).max()), 1e-12))
        if np.abs(step).max() < 1e-9:
            break
    return weights


def calibrate(scores: Floats, weights: Floats, by_system: Sequence[Floats] = ()) -> Floats:
    """Compute the probability of each row by a calibration; it never grows from row to row: float64[rows].

    `by_system` are the descriptions of the rows by each system that the calibration reads.
    """
    return _make_falling(expit(np.hstack([describe_rows(scores), *by_system]) @ weights))


def weigh_by_grades(probabilities: Floats, grades: Floats) -> Floats:
    """Update the probability of each row by its grade, by Bayes' rule with `GRADE_RATIOS`: float64[rows].

    `grades` (float64[rows]) are the highest grades for any query, from 0 to 3; NaN for a row without one, which keeps
    its probability. With Parasol's bounds, the pairs of a document that were not asked cannot lift it to the top, so
    its known grades stand for all. The result never grows from row to row.
    """
    ratios = np.interp(np.nan_to_num(grades), np.arange(len(GRADE_RATIOS)), GRADE_RATIOS)
    ratios = np.where(np.isnan(grades), 1.0, ratios)
    odds = ratios * probabilities / (1 - probabilities)
    return _make_falling(odds / (1 + odds))


def separate_scores(scores: Floats) -> Floats | None:
    """Compute the probability of each row by a mixture of the scores: float64[rows]. None if no mixture fits.

    Relevant rows have a normal density, others an exponential one from the lowest score. Both are truncated to the
    range of the scores (Arampatzis et al., "Where to stop reading a ranked list?", SIGIR 2009). The probability never
    grows from row to row. The best of several starts of expectation maximisation counts.
    """
    if len(scores) < 10 or scores[0] <= scores[-1]:
        return None
    own = (scores - scores[-1]) / (scores[0] - scores[-1])
    fits = [fit for share in _STARTS if (fit := _fit_mixture(own, share)) is not None]
    return _make_falling(max(fits, key=lambda fit: fit[0])[1]) if fits else None


def _fit_mixture(scores: Floats, share: float) -> tuple[float, Floats] | None:
    """Fit a mixture to scores from 1 to 0; returns its log likelihood and the probabilities. None if it degenerates."""
    number = len(scores)
    split = np.quantile(scores, 1 - share)
    mean, deviation, rate = float(scores[scores >= split].mean()), 0.2, 1 / max(float(scores.mean()), 1e-3)
    before = -np.inf
    for _ in range(300):
        inside = max(float(ndtr((1 - mean) / deviation) - ndtr(-mean / deviation)), 1e-6)
        one = np.exp(-0.5 * ((scores - mean) / deviation) ** 2) / (deviation * np.sqrt(2 * np.pi) * inside)
        other = rate * np.exp(-rate * scores) / -np.expm1(-rate)
        whole = share * one + (1 - share) * other
        posterior = share * one / whole
        likelihood = float(np.log(whole).sum())
        share = float(posterior.mean())
        if share < 1 / number or share > 1 - 1 / number or not np.isfinite(likelihood):
            return None
        mean = float(posterior @ scores) / (share * number)
        deviation = float(np.sqrt(posterior @ (scores - mean) ** 2 / (share * number)))
        if deviation < 1e-3:
            return None
        rate = float((1 - posterior).sum() / max((1 - posterior) @ scores, 1e-9))
        if abs(likelihood - before) < 1e-7 * number:
            break
        before = likelihood
    return likelihood, posterior


def _make_falling(probabilities: Floats) -> Floats:
    return np.clip(-make_monotone(-probabilities), LEAST_PROBABILITY, 1 - LEAST_PROBABILITY)


def measure_top_error(
    probabilities: Floats, relevant: NDArray[np.bool_], least: float = LEAST_TOP_PROBABILITY, bins: int = 10
) -> float:
    """Measure the calibration error of the rows whose probability is `least` or more, in bins of equally many rows.

    Most rows of a deep ranking have probabilities near 0, which make the error over all rows small. If there is no such
    row, the result is 0.
    """
    order = np.argsort(probabilities, kind="stable")
    order = order[probabilities[order] >= least]
    parts = [part for part in np.array_split(order, bins) if len(part)]
    errors = [abs(float(probabilities[part].mean() - relevant[part].mean())) * len(part) for part in parts]
    return sum(errors) / max(len(order), 1)


def measure_reliability(probabilities: Floats, relevant: NDArray[np.bool_], bins: int = 10) -> Reliability:
    """Compare probabilities (float64[rows]) with what is relevant (bool[rows]), in bins of equal width."""
    places = np.minimum((probabilities * bins).astype(np.int64), bins - 1)
    rows = np.bincount(places, minlength=bins)
    sums = (np.bincount(places, values, bins) for values in (probabilities, relevant.astype(np.float64)))
    expected, found = (values / np.maximum(rows, 1) for values in sums)
    return Reliability(rows, expected, found)
