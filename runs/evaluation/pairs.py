"""All pairs of systems at once: randomised Tukey HSD, t-tests corrected by Holm, and letters of what ties with what."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from string import ascii_lowercase

import numpy as np
from numpy.typing import NDArray

from keystone.runs.evaluation.compare import LEVEL, compute_t_p_value, correct_by_holm
from keystone.runs.evaluation.evaluate import Evaluation
from keystone.runs.evaluation.resample import SEED, TOLERANCE, draw_below
from keystone.runs.trec.kernels import kernel

Floats = NDArray[np.float64]
PERMUTATIONS = 20_000
"""The number of permutations of systems. The smallest possible p is then 0.00005."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two runs by one measure. Wins, ties and losses are topics of the first run against the second."""

    first: str
    second: str
    difference: float
    """The mean of the first minus that of the second."""
    wins: int
    ties: int
    losses: int
    p_tukey: float
    """p of the randomised Tukey HSD over all runs."""
    p_t: float
    """p of the paired t-test, corrected by Holm for the number of pairs."""


def compare_all_pairs(evaluations: Sequence[Evaluation], measure: str) -> list[Pair]:
    """Compare each pair of runs by a measure, in the order of the runs.

    Topics that a run could not measure are left out.
    """
    values = np.stack([one.values[measure] for one in evaluations])
    values = values[:, ~np.isnan(values).any(axis=0)]
    pairs = list(combinations(range(len(evaluations)), 2))
    p_tukey = run_tukey_test(values)
    p_t = correct_by_holm([compute_t_p_value(values[i] - values[j]) for i, j in pairs])
    found = []
    for (i, j), t in zip(pairs, p_t, strict=True):
        steps = values[i] - values[j]
        wins, losses = int((steps > 0).sum()), int((steps < 0).sum())
        mean = float(steps.mean()) if len(steps) else float("nan")
        names = evaluations[i].name, evaluations[j].name
        found.append(Pair(*names, mean, wins, len(steps) - wins - losses, losses, float(p_tukey[i, j]), t))
    return found


def run_tukey_test(values: Floats, permutations: int = PERMUTATIONS) -> Floats:
    """Run the randomised Tukey HSD test of systems (float64[systems, topics]); returns p: float64[systems, systems].

    p is the share of permutations of the systems within each topic whose highest mean is at least as far above the
    lowest as the two means are apart (Carterette, TOIS 2012; Sakai, SIGIR 2014). NaN for fewer than two topics.
    """
    systems, topics = values.shape
    if topics < 2 or systems < 2:
        return np.full((systems, systems), np.nan)
    ranges = np.empty(permutations)
    _fill_ranges(np.ascontiguousarray(values.T), SEED, np.empty(systems), np.empty(systems), ranges)
    means = values.mean(axis=1)
    gaps = np.abs(means[:, None] - means)
    ranges = np.sort(ranges + TOLERANCE * np.abs(values).sum() / topics)
    extreme = permutations - np.searchsorted(ranges, gaps, side="left")
    return np.asarray((extreme + 1) / (permutations + 1), dtype=np.float64)


@kernel
def _fill_ranges(values: Floats, seed: int, row: Floats, sums: Floats, ranges: Floats) -> None:
    """Fill `ranges` with the highest minus the lowest mean of systems, shuffled within each topic."""
    state = np.uint64(seed)
    topics, systems = values.shape
    for number in range(len(ranges)):
        for system in range(systems):
            sums[system] = 0.0
        for topic in range(topics):
            for system in range(systems):
                row[system] = values[topic, system]
            for last in range(systems - 1, 0, -1):
                state += np.uint64(0x9E3779B97F4A7C15)
                other = draw_below(state, np.uint64(last + 1))
                row[last], row[other] = row[other], row[last]
            for system in range(systems):
                sums[system] += row[system]
        low, high = sums[0], sums[0]
        for system in range(1, systems):
            low, high = min(low, sums[system]), max(high, sums[system])
        ranges[number] = (high - low) / topics


def find_letters(names: Sequence[str], pairs: Sequence[Pair], level: float = LEVEL) -> dict[str, str]:
    """Find letters for runs, best first: two runs share one exactly if Tukey's test finds no difference.

    This is the compact letter display by insertion and absorption (Piepho, Journal of Computational and Graphical
    Statistics 2004). NaN is no difference.
    """
    place = {name: number for number, name in enumerate(names)}
    groups = [frozenset(range(len(names)))]
    for pair in pairs:
        if pair.p_tukey < level:
            i, j = place[pair.first], place[pair.second]
            split = [part for own in groups for part in ([own - {i}, own - {j}] if {i, j} <= own else [own])]
            distinct = list(dict.fromkeys(split))
            groups = [own for own in distinct if not any(own < other for other in distinct)]
    groups.sort(key=sorted)
    letters = [_name_group(number) for number in range(len(groups))]
    return {
        name: "".join(letter for letter, own in zip(letters, groups, strict=True) if number in own)
        for name, number in place.items()
    }


def _name_group(number: int) -> str:
    """Name a group a, b, ... z, (a1), (b1) and so on."""
    round, letter = divmod(number, len(ascii_lowercase))
    return f"({ascii_lowercase[letter]}{round})" if round else ascii_lowercase[letter]
