"""Comparison of runs over the same topics: paired tests, effect sizes, intervals, cautions, and all pairs at once."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from string import ascii_lowercase
from typing import Any

import numpy as np

from keystone.runs.evaluation.evaluate import HEAD_RANKS, Evaluation
from keystone.runs.evaluation.resample import (
    SEED,
    TOLERANCE,
    draw_below,
    find_bootstrap_interval,
    run_randomisation_test,
)
from keystone.runs.trec.arrays import Flags, Floats
from keystone.runs.trec.kernels import kernel
from keystone.runs.wording import plural

CONSTANT_SHARE = 10 * np.finfo(np.float64).eps
"""If the standard error of differences is less than this share of them, they are constant, as in R's t.test."""

LEVEL = 0.05
"""The p-value below which two runs count as different."""
JUDGED_GAP = 0.2
"""If the judged@10 of two runs differ by more than this, a warning says so."""
TURN = 0.01
"""A warning says that a treatment turns a comparison only if the difference is at least this before or after."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of a later run from the first by one measure.

    Both p-values are two-sided, and corrected by Holm for the number of later runs.
    """

    mean: float
    """The mean of the later run minus that of the first."""
    low: float
    high: float
    """The 95 % bootstrap interval of that mean."""
    effect: float
    """Cohen's d: the mean divided by the standard deviation over topics. NaN if all topics differ by the same."""
    p_t: float
    """p of the paired t-test."""
    p_randomisation: float


def compare_runs(evaluations: Sequence[Evaluation]) -> list[dict[str, Difference]]:
    """Compare each later run with the first by each measure. Topics on which one of the two is NaN are left out."""
    first, *others = evaluations
    found: list[dict[str, Difference]] = [{} for _ in others]
    for measure, values in first.values.items():
        rows = [other.values[measure] - values for other in others]
        p_t = correct_by_holm([compute_t_p_value(row) for row in rows])
        p_randomisation = correct_by_holm([run_randomisation_test(row) for row in rows])
        for own, row, t, randomisation in zip(found, rows, p_t, p_randomisation, strict=True):
            low, high = find_bootstrap_interval(row)
            row = row[~np.isnan(row)]
            mean = float(row.mean()) if len(row) else float("nan")
            own[measure] = Difference(mean, low, high, _compute_effect(row), t, randomisation)
    return found


def correct_by_holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values of several tests (Holm, Scandinavian Journal of Statistics 1979). NaN stands for no test."""
    corrected = np.array(p_values, dtype=np.float64)
    tested = np.flatnonzero(~np.isnan(corrected))
    order = tested[np.argsort(corrected[tested], kind="stable")]
    corrected[order] = np.minimum(np.maximum.accumulate(corrected[order] * np.arange(len(order), 0, -1)), 1)
    return [float(p) for p in corrected]


def _compute_effect(differences: Floats) -> float:
    if len(differences) and not differences.any():
        return 0.0
    if len(differences) < 2 or _are_constant(differences):
        return float("nan")
    return float(differences.mean() / differences.std(ddof=1))


def _are_constant(differences: Floats) -> bool:
    error = differences.std(ddof=1) / np.sqrt(len(differences))
    return bool(error < CONSTANT_SHARE * np.abs(differences).max())


def run_paired_test(first: Evaluation, second: Evaluation) -> dict[str, float]:
    """Run Student's two-sided paired t-test for each measure, and return the p-values. Both have the same topics.

    If no topic differs, p is 1. Topics on which one of the two is NaN are left out. If at most one topic is left, or if
    all topics differ by the same amount, p is NaN.
    """
    return {measure: compute_t_p_value(values - second.values[measure]) for measure, values in first.values.items()}


def compute_t_p_value(differences: Floats) -> float:
    """Compute the p-value of one paired t-test, of differences (float64[topics]); see `run_paired_test`."""
    from scipy.stats import t

    differences = differences[~np.isnan(differences)]
    topics = len(differences)
    if topics < 2:
        return float("nan")
    if not differences.any():
        return 1.0
    if _are_constant(differences):
        return float("nan")
    error = differences.std(ddof=1) / np.sqrt(topics)
    return float(2 * t.sf(abs(differences.mean()) / error, topics - 1))


def join_cautions(evaluations: Sequence[Evaluation]) -> list[str]:
    """List the cautions of runs, each once. A caution of more than two runs, and of over four fifths, is one line."""
    alike: dict[str, list[str]] = {}
    for caution in dict.fromkeys(caution for one in evaluations for caution in one.cautions):
        alike.setdefault(caution.partition(": ")[2] or caution, []).append(caution)
    for text, own in alike.items():
        others = [one.name for one in evaluations if not {*own} & {*one.cautions}]
        if len(own) > max(2, 4 * len(others)):
            own[:] = [f"each of {len(evaluations):,} runs{' but ' * bool(others)}{', '.join(others)}: {text}"]
    return [caution for own in alike.values() for caution in own]


def collect_cautions(evaluations: Sequence[Evaluation]) -> list[str]:
    """Collect the cautions of all runs, and those about comparing later runs with the first."""
    first, *others = evaluations
    found = join_cautions(evaluations) + _caution_about_depth(evaluations) + _caution_about_pools(evaluations)
    for other in others:
        between = f"{first.name} and {other.name}"
        found += [f"{between}: {turn}" for turn in _list_turns(first, other)]
        steps = {name: (own := values - other.values[name])[~np.isnan(own)] for name, values in first.values.items()}
        if all(np.array_equal(first.values[m], other.values[m], equal_nan=True) for m in first.values):
            found.append(f"{between}: the same numbers for every topic")
        elif len(first.topics) < 2:
            found.append(f"{between}: no paired test, because only one topic is judged")
        elif untested := [m for m, own in steps.items() if len(own) > 1 and own.any() and _are_constant(own)]:
            found.append(
                f"{between}: no paired test of {', '.join(untested)}, because all topics differ by the same amount"
            )
    return list(dict.fromkeys(found))


def _caution_about_depth(evaluations: Sequence[Evaluation]) -> list[str]:
    """Caution about measures deeper than the shallowest run, if the depths of runs differ by more than a tenth."""
    shallow = min(evaluations, key=lambda evaluation: evaluation.counts.depth)
    deep = max(evaluations, key=lambda evaluation: evaluation.counts.depth)
    least, most = shallow.counts.depth, deep.counts.depth
    cutoffs = {name: name.rpartition("@")[2] for name in shallow.values if not name.startswith("judged")}
    unlike = [name for name, cutoff in cutoffs.items() if not cutoff.isdigit() or int(cutoff) > least]
    if least >= 0.9 * most or not unlike:
        return []
    depths = f"{shallow.name} has {plural(least, 'row')} for each topic, {deep.name} {most:,}"
    return [f"rankings of unequal depth: {depths}; not comparable by {', '.join(unlike)}"]


def _list_turns(first: Evaluation, other: Evaluation) -> list[str]:
    """List the measures by which another treatment of unjudged documents makes the other of two runs the better one."""
    found = []
    for treatment in dict.fromkeys([*first.other_means, *other.other_means]):
        turned = []
        for name in first.values:
            means = [one.mean(name) for one in (first, other)]
            others = [one.other_means.get(treatment, {}).get(name, one.mean(name)) for one in (first, other)]
            steps = [later - earlier for earlier, later in (means, others)]
            if steps[0] * steps[1] < 0 and max(map(abs, steps)) >= TURN:
                turned.append(f"{name} ({others[0]:.3f} and {others[1]:.3f})")
        if turned:
            measures = ", ".join(turned)
            found.append(f"the better run is the other one if documents without a judgment {treatment}: {measures}")
    return found


def _caution_about_pools(evaluations: Sequence[Evaluation]) -> list[str]:
    """Caution about later runs whose judged@10 is far from that of the first run."""
    first, *others = evaluations
    unlike = [one for one in others if abs(one.judged_head - first.judged_head) > JUDGED_GAP]
    if not unlike:
        return []
    shares = ", ".join(f"{one.name} {one.judged_head:.0%}" for one in unlike)
    return [
        f"the first {HEAD_RANKS} documents are not judged alike: {first.name} {first.judged_head:.0%}, {shares}; "
        "unjudged documents count as not relevant, so compare with --bounds or --condensed"
    ]


def build_report(evaluations: Sequence[Evaluation], tested: bool = True) -> dict[str, Any]:
    """Build the JSON report: means, counts and values by topic, comparisons with the first run, and cautions.

    `paired_t_test` holds the p-values without correction; those in `differences` are corrected. NaN marks a missing
    number; orjson writes it as null. Unless `tested`, there are neither comparisons nor intervals.
    """
    others = evaluations[1:] if tested else []
    return {
        "runs": [
            {
                "name": evaluation.name,
                "condensed": evaluation.condensed,
                "mean": {measure: evaluation.mean(measure) for measure in evaluation.values},
                "interval": {measure: evaluation.interval(measure) for measure in evaluation.values} if tested else {},
                "counts": asdict(evaluation.counts),
                "circular_rows": evaluation.circular_rows,
                "topics": {
                    topic: {measure: float(values[i]) for measure, values in evaluation.values.items()}
                    for i, topic in enumerate(evaluation.topics)
                },
            }
            for evaluation in evaluations
        ],
        "paired_t_test": [
            {"first": evaluations[0].name, "second": other.name, "p": run_paired_test(evaluations[0], other)}
            for other in others
        ],
        "differences": [
            {"first": evaluations[0].name, "second": other.name, "measures": own}
            for other, own in zip(others, compare_runs(evaluations) if others else [], strict=True)
        ],
        "warnings": collect_cautions(evaluations),
    }


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


def take_common(evaluations: Sequence[Evaluation], measure: str) -> tuple[Flags, Floats]:
    """Find the runs with a value by a measure, and take their values on the topics where each of them has one."""
    values = np.stack([one.values[measure] for one in evaluations])
    scored: Flags = np.array([not np.isnan(own).all() for own in values])
    return scored, values[scored][:, ~np.isnan(values[scored]).any(axis=0)]


def compare_all_pairs(evaluations: Sequence[Evaluation], measure: str) -> list[Pair]:
    """Compare each pair of runs by a measure, on the topics of both; Tukey's test takes those of `take_common`."""
    values = [one.values[measure] for one in evaluations]
    scored, common = take_common(evaluations, measure)
    p_tukey = np.full((len(values), len(values)), np.nan)
    p_tukey[np.ix_(scored, scored)] = run_tukey_test(common)
    pairs = list(combinations(range(len(evaluations)), 2))
    p_t = correct_by_holm([compute_t_p_value(values[i] - values[j]) for i, j in pairs])
    found = []
    for (i, j), t in zip(pairs, p_t, strict=True):
        steps = (own := values[i] - values[j])[~np.isnan(own)]
        wins, losses = int((steps > 0).sum()), int((steps < 0).sum())
        mean = float(steps.mean()) if len(steps) else float("nan")
        names = evaluations[i].name, evaluations[j].name
        found.append(Pair(*names, mean, wins, len(steps) - wins - losses, losses, float(p_tukey[i, j]), t))
    return found


def caution_about_all_pairs(evaluations: Sequence[Evaluation], measure: str) -> list[str]:
    """Caution about topics that Tukey's test leaves out."""
    topics, all_topics = take_common(evaluations, measure)[1].shape[1], len(evaluations[0].topics)
    told = f"Tukey's test counts {topics:,} of {all_topics:,} topics, those of which all runs have {measure}"
    return [told] if topics < all_topics else []


def run_tukey_test(values: Floats) -> Floats:
    """Run the randomised Tukey HSD test of systems (float64[systems, topics]); returns p: float64[systems, systems].

    p is the share of permutations of the systems within each topic whose highest mean is at least as far above the
    lowest as the two means are apart (Carterette, TOIS 2012; Sakai, SIGIR 2014). NaN for fewer than two topics.
    """
    systems, topics = values.shape
    if topics < 2 or systems < 2:
        return np.full((systems, systems), np.nan)
    ranges = np.empty(PERMUTATIONS)
    _fill_ranges(np.ascontiguousarray(values.T), SEED, np.empty(systems), np.empty(systems), ranges)
    means = values.mean(axis=1)
    gaps = np.abs(means[:, None] - means)
    ranges = np.sort(ranges + TOLERANCE * np.abs(values).sum() / topics)
    extreme = PERMUTATIONS - np.searchsorted(ranges, gaps, side="left")
    return np.asarray((extreme + 1) / (PERMUTATIONS + 1), dtype=np.float64)


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


def find_letters(names: Sequence[str], pairs: Sequence[Pair]) -> dict[str, str]:
    """Find letters for runs, best first: two runs share a letter exactly if Tukey's test finds no difference.

    This is the compact letter display by insertion and absorption (Piepho, Journal of Computational and Graphical
    Statistics 2004). NaN is no difference, and a run without a value has no letter.
    """
    place = {name: number for number, name in enumerate(names)}
    groups = [frozenset(place[n] for one in pairs if not np.isnan(one.difference) for n in (one.first, one.second))]
    for pair in pairs:
        if pair.p_tukey < LEVEL:
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
