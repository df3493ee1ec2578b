"""Measures of `ir_measures` that Keystone computes from their definitions, topic by topic.

The packages behind `ir_measures` read topic ids as numbers, limit grades, round, or leave topics out for these.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Grades = NDArray[np.int64]
LEAST_TOP_GRADE = 4
"""The top grade of ERR if no judgment is higher, as in TREC's gdeval.pl."""


@dataclass(frozen=True, slots=True)
class GradedTopic:
    """The grades of a topic's judged documents, and those of its ranking, where -1 marks a row without a judgment."""

    judged: Grades
    ranked: Grades
    top: int
    """The highest grade of all topics."""


def is_defined_here(asked: Any) -> bool:
    """Whether this module computes a measure of `ir_measures`."""
    if asked.NAME == "nDCG":
        return asked["dcg"] == "exp-log2" and "gains" not in asked.params and not asked["judged_only"]
    return asked.NAME in _FUNCTIONS


def measure_topic(asked: Any, topic: GradedTopic) -> float:
    """Measure a topic by a measure that this module computes."""
    return float(_FUNCTIONS[asked.NAME](asked, topic))


def compute_best_f1(topic: GradedTopic) -> float:
    """Compute the set F1 of a ranking that is cut where it is best; grades are 1 for relevant documents. 0 if none is.

    The difference from `SetF` is what the choice of the depth loses.
    """
    found = np.cumsum(topic.ranked > 0)
    rows = np.arange(1, len(found) + 1) + np.count_nonzero(topic.judged > 0)
    return float(np.max(2 * found / rows, initial=0))


def _compute_err(asked: Any, topic: GradedTopic) -> Any:
    """Chapelle et al., CIKM 2009: a reader stops at a document of grade g with probability (2^g - 1) / 2^top."""
    stops = _find_gains(_cut(topic.ranked, asked), max(topic.top, LEAST_TOP_GRADE))
    reached = np.append(1, np.cumprod(1 - stops)[:-1])[: len(stops)]
    return np.sum(stops * reached / np.arange(1, len(stops) + 1))


def _compute_exponential_ndcg(asked: Any, topic: GradedTopic) -> Any:
    """Burges et al., ICML 2005: a document of grade g gains 2^g - 1."""
    best, own = (
        _add_discounted(_find_gains(_cut(grades, asked), topic.top))
        for grades in (np.sort(topic.judged)[::-1], topic.ranked)
    )
    return own / best if best else 0


def _compute_accuracy(asked: Any, topic: GradedTopic) -> Any:
    """Compute the share of pairs of a relevant and another row in which the relevant one is first.

    Without any relevant row it is 0; if all rows are relevant, no pair is in the wrong order, and it is 1.
    """
    relevant = _cut(topic.ranked, asked) >= asked["rel"]
    pairs = np.count_nonzero(relevant) * np.count_nonzero(~relevant)
    wrong = np.cumsum(~relevant)[relevant].sum()
    return 1 - wrong / pairs if pairs else relevant.any()


def _compute_interpolated_precision(asked: Any, topic: GradedTopic) -> Any:
    """Compute the highest precision at a rank from which the recall is reached."""
    ranked = topic.ranked[topic.ranked >= 0] if asked["judged_only"] else topic.ranked
    found = np.cumsum(ranked >= asked["rel"])
    reached = found >= asked["recall"] * _count_relevant(asked, topic) - 1e-9
    return np.max(found / np.arange(1, len(found) + 1), where=reached, initial=0)


def _count_relevant(asked: Any, topic: GradedTopic) -> Any:
    return np.count_nonzero(topic.judged >= asked["rel"])


_FUNCTIONS: dict[str, Callable[[Any, GradedTopic], Any]] = {
    "ERR": _compute_err,
    "nDCG": _compute_exponential_ndcg,
    "Accuracy": _compute_accuracy,
    "IPrec": _compute_interpolated_precision,
    "NumRel": _count_relevant,
    "NumQ": lambda _asked, _topic: 1,
}


def _cut(grades: Grades, asked: Any) -> Grades:
    cutoff: int | None = asked.params.get("cutoff")
    return grades[:cutoff]


def _find_gains(grades: Grades, top: int) -> NDArray[np.float64]:
    """Find 2^g - 1 for each grade, divided by 2^top so that no grade is too large for a number."""
    return np.asarray(np.exp2(np.maximum(grades, 0) - float(top)) - np.exp2(-float(top)))


def _add_discounted(gains: NDArray[np.float64]) -> np.float64:
    return np.float64(np.sum(gains / np.log2(np.arange(2, len(gains) + 2))))
