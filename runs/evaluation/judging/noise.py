"""The noise of a judge in a measure: intervals over topics and judges.

A judge's grade tells the true grade with some probability only. A draw replaces each grade by a true grade of that
probability, and the module takes the measure again. This is multiple imputation (Cole, Chu and Greenland, International
Journal of Epidemiology 2006). The probabilities come from a confusion matrix, or from repeats of the judge (Dawid and
Skene, Applied Statistics 1979). Each draw takes topics with replacement, for the probabilities and for the mean alike.

A high grade is right more often at the first ranks, where relevant documents are frequent. So each band of ranks has
probabilities of its own. The probabilities of all ranks support a band that has few documents.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

ITERATIONS = 50
"""The steps by which the probabilities behind repeats are estimated."""
CORRECT_SHARE = 0.8
"""The share of right grades at which that estimate begins."""
SMOOTHING_COUNT = 0.01
"""The count that is added to each cell, so that no probability is 0."""
SUPPORT_COUNT = 2
"""The documents of all ranks that count in each band of ranks."""


def draw_topics(topics: int, draws: int, rng: np.random.Generator) -> Ints:
    """Draw topics with replacement: int64[draws, topics], how often each draw has each topic."""
    return rng.multinomial(topics, np.full(topics, 1 / topics), size=draws)


def find_bands(ranks: Ints) -> Ints:
    """Find the band of each rank (int64[...]): ranks 1, 2 to 3, 4 to 7 and so on. Rank 0 is no rank, and has band 0."""
    return np.asarray(np.frexp(ranks)[1], dtype=np.int64)


def tabulate_confusion(counts: Ints, drawn: Ints) -> Floats:
    """Tabulate the probability of each true grade given the judge's grade: float64[draws, bands, judged, true].

    `counts` is int64[topics, bands, judged, true]: documents with both grades. If a grade of the judge was never
    compared in the topics of a draw, it counts as right.
    """
    compared = np.tensordot(drawn, counts, 1).astype(np.float64)
    overall = compared.sum(axis=1, keepdims=True)
    unknown = overall.sum(axis=3, keepdims=True) == 0
    tables = compared + SUPPORT_COUNT * _normalise(np.where(unknown, np.eye(counts.shape[3]), overall))
    return _normalise(tables)


def tabulate_repeats(patterns: Ints, counts: Ints, drawn: Ints) -> Floats:
    """Tabulate the probability of each true grade given all grades: float64[draws, bands, patterns, true].

    `patterns` is int64[patterns, grades]: how often each grade stands among the grades of a document. `counts` is
    int64[topics, bands, patterns]: the documents with that pattern. Each draw is estimated by expectation maximisation.
    The judge errs alike in all bands, and each band has its own shares of true grades.
    """
    size = patterns.shape[1]
    weights = np.tensordot(drawn, counts, 1).astype(np.float64)[..., None]
    spread = (1 - CORRECT_SHARE) / max(size - 1, 1)
    rates = np.where(np.eye(size, dtype=bool), CORRECT_SHARE, spread)[None]
    shares = _support(weights[..., 0] @ patterns)
    for _ in range(ITERATIONS):
        chances = patterns @ np.log(_normalise(rates)).swapaxes(1, 2)
        logs = np.log(shares)[:, :, None] + chances[:, None]
        posterior = _normalise(np.exp(logs - logs.max(axis=3, keepdims=True)))
        weighted = posterior * weights
        shares = _support(weighted.sum(axis=2))
        rates = weighted.sum(axis=1).swapaxes(1, 2) @ patterns + SMOOTHING_COUNT
    return posterior


def _normalise(counts: Floats) -> Floats:
    """Divide by the sums over the last axis."""
    return np.asarray(counts / counts.sum(axis=-1, keepdims=True), dtype=np.float64)


def _support(counts: Floats) -> Floats:
    """Turn counts of grades (float64[draws, bands, grades]) into shares, with the support of all bands."""
    return _normalise(counts + SUPPORT_COUNT * _normalise(counts.sum(axis=1, keepdims=True) + SMOOTHING_COUNT))


def draw_grades(table: Floats, patterns: NDArray[np.int64], uniform: Floats) -> NDArray[np.int64]:
    """Draw the place of the true grade of each judgment: int64[judgments].

    `table` is one draw of the probabilities. `patterns` (int64[judgments]) has the row of each judgment in it.
    `uniform` (float64[judgments]) has the random number of each judgment, from 0 to 1. If draws share these numbers,
    they differ by their tables alone. The topics already vary by the noise of single grades. So this noise does not
    count twice.
    """
    steps = np.cumsum(table, axis=1)[:, :-1]
    return np.asarray((uniform[:, None] > steps[patterns]).sum(axis=1))


def find_interval_over_judges(values: Floats, drawn: Ints) -> tuple[float, float]:
    """Find the 95 % interval of a mean over topics and judges by the percentiles of all draws.

    `values` is float64[draws, topics]. NaN marks topics that do not count; fewer than two topics give NaN. Percentiles
    of a bootstrap are too narrow for few topics, so they are expanded (Hesterberg, The American Statistician 2015).
    """
    from scipy.stats import norm, t

    counted = ~np.isnan(values).all(axis=0)
    if (topics := int(counted.sum())) < 2:
        return float("nan"), float("nan")
    values, weights = np.nan_to_num(values[:, counted]), drawn[:, counted]
    weights = weights[kept := weights.any(axis=1)]
    tail = 100 * norm.cdf(np.sqrt(topics / (topics - 1)) * t.ppf(0.025, topics - 1))
    low, high = np.percentile((values[kept] * weights).sum(axis=1) / weights.sum(axis=1), (tail, 100 - tail)).tolist()
    return low, high
