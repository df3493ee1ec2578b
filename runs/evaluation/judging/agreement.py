"""Agreement of two judges: the confusion of their grades, Cohen's kappa, and the order of systems by either."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from keystone.runs.trec.doc_ids import match_ids
from keystone.runs.trec.types import Qrels, pair_bounds


@dataclass(frozen=True, slots=True, eq=False)
class Agreement:
    """The documents that both judged: `counts` is int64[g, g], a row for each grade of the first judge.

    Its columns are the grades of the second judge. Both are in the order of `grades`.
    """

    grades: tuple[int, ...]
    counts: NDArray[np.int64]

    def compute_kappa(self) -> float:
        """Compute Cohen's kappa (Educational and Psychological Measurement 1960); NaN if chance alone agrees."""
        return _compute_kappa(self.counts)

    def compute_binary_kappa(self, relevant_from: int) -> float:
        """Compute Cohen's kappa of relevant documents, from the grade `relevant_from` on, and others."""
        relevant = (np.array(self.grades) >= relevant_from).astype(np.int64)
        sides = np.stack([1 - relevant, relevant])
        return _compute_kappa(sides @ self.counts @ sides.T)


def compare_judgments(first: Qrels, second: Qrels) -> Agreement:
    """Count the grades of all documents that both have judged for a topic. There may be none."""
    topics = sorted(set(first.query_ids) & set(second.query_ids))
    first, second = first.select(topics), second.select(topics)
    _, places = match_ids(first.docs, pair_bounds(first.offsets), second.docs, pair_bounds(second.offsets))
    pairs = np.stack([first.grades[places[places >= 0]], second.grades[places >= 0]])
    grades, codes = np.unique(pairs, return_inverse=True)
    counts = np.zeros((len(grades), len(grades)), dtype=np.int64)
    np.add.at(counts, tuple(codes.reshape(2, -1)), 1)
    return Agreement(tuple(grades.tolist()), counts)


def compute_tau(first: Sequence[float], second: Sequence[float]) -> float:
    """Compute Kendall's tau-b between the means of the same systems by two judges; NaN if one gives no order."""
    from scipy.stats import kendalltau

    return float(kendalltau(first, second).statistic)


def _compute_kappa(counts: NDArray[np.int64]) -> float:
    total = int(counts.sum())
    if not total:
        return float("nan")
    expected = float(counts.sum(axis=0) @ counts.sum(axis=1)) / total**2
    observed = float(np.trace(counts)) / total
    return (observed - expected) / (1 - expected) if expected < 1 else float("nan")
