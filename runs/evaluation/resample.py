"""Paired randomisation tests and bootstrap intervals over topics, by compiled loops with a fixed seed."""

import numpy as np

from keystone.runs.trec.arrays import Floats
from keystone.runs.trec.kernels import kernel

EXACT_TOPICS = 16
"""Up to this number of topics, a randomisation test tries all assignments of signs."""
ASSIGNMENTS = 100_000
"""The number of random assignments for more topics. The smallest possible p is then 0.00001."""
RESAMPLES = 10_000
"""The number of bootstrap samples of an interval."""
SEED = 2007
NORMAL_QUANTILE = 1.959963984540054
"""The 0.975 quantile of the normal distribution, for intervals of 95 %."""
TOLERANCE = 1e-9
"""The share of all differences by which two sums may differ and still count as equal."""


def run_randomisation_test(differences: Floats) -> float:
    """Run a two-sided paired randomisation test of differences (float64[topics]); returns p.

    p is the share of assignments of signs whose mean is at least as far from 0 (Smucker, Allan and Carterette, CIKM
    2007). It is exact for up to 16 topics that differ. NaN marks topics that do not count. Fewer than two give NaN.
    """
    differences = differences[~np.isnan(differences)]
    if len(differences) < 2:
        return float("nan")
    differences = differences[differences != 0]  # either sign gives the same sum
    exact = len(differences) <= EXACT_TOPICS
    rounds = 1 << len(differences) if exact else ASSIGNMENTS
    least = abs(differences.sum()) - TOLERANCE * np.abs(differences).sum()
    count = _count_extreme_sums(differences, least, rounds, exact, SEED)
    return count / rounds if exact else (count + 1) / (rounds + 1)


def find_bootstrap_interval(values: Floats) -> tuple[float, float]:
    """Find the 95 % interval of the mean of `values` (float64[topics]) by the percentiles of bootstrap samples.

    NaN marks topics that do not count. Fewer than two give NaN (Efron and Tibshirani, 1993, chapter 13).
    """
    values = values[~np.isnan(values)]
    if len(values) < 2:
        return float("nan"), float("nan")
    means = np.empty(RESAMPLES)
    _fill_means(values, SEED, means)
    low, high = np.percentile(means, (2.5, 97.5)).tolist()
    return low, high


@kernel
def _mix(state: np.uint64) -> np.uint64:
    """Turn a counter into random bits (splitmix64: Steele, Lea and Flood, OOPSLA 2014)."""
    bits = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


@kernel
def draw_below(state: np.uint64, limit: np.uint64) -> np.int64:
    """Turn a counter into a random whole number from 0 to `limit` - 1."""
    return np.int64(((_mix(state) >> np.uint64(32)) * limit) >> np.uint64(32))


@kernel
def _count_extreme_sums(differences: Floats, least: float, rounds: int, exact: bool, seed: int) -> int:
    """Count the rounds whose sum is at least `least` away from 0. Bit i of a round says if difference i is added."""
    count, state = 0, np.uint64(seed)
    for number in range(rounds):
        total, bits = 0.0, np.uint64(number)
        for i in range(len(differences)):
            if i % 64 == 0 and not exact:
                state += np.uint64(0x9E3779B97F4A7C15)
                bits = _mix(state)
            total += differences[i] if bits & np.uint64(1) else -differences[i]
            bits >>= np.uint64(1)
        count += abs(total) >= least
    return count


@kernel
def _fill_means(values: Floats, seed: int, means: Floats) -> None:
    """Fill `means` with the means of samples that are drawn with replacement."""
    state, topics = np.uint64(seed), np.uint64(len(values))
    for sample in range(len(means)):
        total = 0.0
        for _ in range(len(values)):
            state += np.uint64(0x9E3779B97F4A7C15)
            total += values[draw_below(state, topics)]
        means[sample] = total / len(values)
