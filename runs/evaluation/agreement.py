"""Agreement of judges and of rankings of systems: confusion, Cohen's kappa, Kendall's tau, tau-b and tau_AP."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from keystone.runs.trec.doc_ids import match_ids
from keystone.runs.trec.types import Qrels, pair_bounds

Floats = NDArray[np.float64]
Weights = Literal["none", "linear", "quadratic"]
DRAWS = 2_000
"""The number of bootstrap samples of topics behind an interval of tau."""
SEED = 2007


@dataclass(frozen=True, slots=True, eq=False)
class Agreement:
    """The documents that both judged: `counts` is int64[g, g], a row for each grade of the first judge.

    Its columns are the grades of the second judge. Both are in the order of `grades`.
    """

    grades: tuple[int, ...]
    counts: NDArray[np.int64]

    def compute_kappa(self, weights: Weights = "none") -> float:
        """Compute Cohen's kappa (Educational and Psychological Measurement 1960); NaN if chance alone agrees.

        Weighted, a disagreement counts by the distance of its grades, or by the square of that distance (Cohen,
        Psychological Bulletin 1968). The distance is that of places in the order of `grades`.
        """
        return compute_kappa(self.counts, weights)

    def compute_binary_kappa(self, relevant_from: int) -> float:
        """Compute Cohen's kappa of relevant documents, from the grade `relevant_from` on, and others."""
        relevant = (np.array(self.grades) >= relevant_from).astype(np.int64)
        sides = np.stack([1 - relevant, relevant])
        return compute_kappa(sides @ self.counts @ sides.T)


def compare_judgments(first: Qrels, second: Qrels) -> Agreement:
    """Count the grades of all documents that both have judged for a topic. There may be none."""
    topics = sorted(set(first.query_ids) & set(second.query_ids))
    first, second = first.select(topics), second.select(topics)
    _, places = match_ids(first.docs, pair_bounds(first.offsets), second.docs, pair_bounds(second.offsets))
    return count_labels(first.grades[places[places >= 0]], second.grades[places >= 0])


def count_labels(first: NDArray[np.int64], second: NDArray[np.int64]) -> Agreement:
    """Count the labels that two judges gave to the same items: int64[items] each."""
    grades, codes = np.unique(np.stack([first, second]), return_inverse=True)
    counts = np.zeros((len(grades), len(grades)), dtype=np.int64)
    np.add.at(counts, tuple(codes.reshape(2, -1)), 1)
    return Agreement(tuple(grades.tolist()), counts)


def compute_kappa(counts: NDArray[np.int64], weights: Weights = "none") -> float:
    """Compute Cohen's kappa of a confusion matrix (int64[g, g]), plain or weighted; NaN if chance alone agrees."""
    total = int(counts.sum())
    if not total:
        return float("nan")
    places = np.arange(len(counts))
    distance = np.abs(places[:, None] - places) / max(len(counts) - 1, 1)
    credit = {"none": distance == 0, "linear": 1 - distance, "quadratic": 1 - distance**2}[weights]
    expected = float((credit * np.outer(counts.sum(axis=1), counts.sum(axis=0))).sum()) / total**2
    observed = float((credit * counts).sum()) / total
    return (observed - expected) / (1 - expected) if expected < 1 else float("nan")


def compute_tau(first: Sequence[float] | Floats, second: Sequence[float] | Floats) -> float:
    """Compute Kendall's tau-b between the scores of the same systems by two judges; NaN if one gives no order.

    Without ties, it is Kendall's tau. A system with NaN in one of the two is left out.
    """
    from scipy.stats import kendalltau

    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    known = ~(np.isnan(a) | np.isnan(b))
    return float(kendalltau(a[known], b[known]).statistic) if known.sum() > 1 else float("nan")


def compute_plain_tau(first: Sequence[float] | Floats, second: Sequence[float] | Floats) -> float:
    """Compute Kendall's tau (tau-a): pairs in the same order minus pairs in opposite order, of all pairs.

    A pair that is tied in either counts as neither. NaN for fewer than two systems.
    """
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    pairs = len(a) * (len(a) - 1)
    orders = np.sign(a[:, None] - a) * np.sign(b[:, None] - b)
    return float(orders.sum() / pairs) if pairs else float("nan")


def compute_tau_ap(reference: Sequence[float] | Floats, predicted: Sequence[float] | Floats) -> float:
    """Compute tau_AP (Yilmaz, Aslam and Robertson, SIGIR 2008) of scores of the same systems; NaN for fewer than two.

    It is Kendall's tau with more weight on the first ranks of `predicted`: the mean, over the systems below the first
    one, of the share of the systems above that the reference puts above, too. A system that is tied in `predicted` is
    compared with those above its tie. If all systems are tied, it is NaN. A tie in the reference is no order.
    """
    ref, own = np.asarray(reference, dtype=np.float64), np.asarray(predicted, dtype=np.float64)
    above = own[None, :] > own[:, None]
    count = above.sum(axis=1)
    ranked = count > 0
    if not ranked.any():
        return float("nan")
    kept = (above & (ref[None, :] > ref[:, None])).sum(axis=1)
    return float(2 * np.mean(kept[ranked] / count[ranked]) - 1)


def find_tau_interval(
    first: Floats, second: Floats, compute: Callable[[Floats, Floats], float] = compute_tau
) -> tuple[float, float]:
    """Find the 95 % interval of a tau of systems' means, by bootstrap samples of topics that both judges share.

    `first` and `second` are float64[systems, topics], of the same topics. NaN marks a value that was not measured.
    """
    topics = first.shape[1]
    if topics < 2 or len(first) < 2:
        return float("nan"), float("nan")
    drawn = np.random.default_rng(SEED).multinomial(topics, np.full(topics, 1 / topics), size=DRAWS)
    taus = [compute(*pair) for pair in zip(_take_means(first, drawn), _take_means(second, drawn), strict=True)]
    low, high = np.nanpercentile(taus, (2.5, 97.5)).tolist() if np.isfinite(taus).any() else (np.nan, np.nan)
    return low, high


def _take_means(values: Floats, drawn: NDArray[np.int64]) -> Floats:
    """Take the means of systems over the topics of each draw, NaN left out: float64[draws, systems]."""
    weights = drawn @ (~np.isnan(values)).T.astype(np.float64)
    return np.divide(drawn @ np.nan_to_num(values).T, weights, out=np.full_like(weights, np.nan), where=weights > 0)
