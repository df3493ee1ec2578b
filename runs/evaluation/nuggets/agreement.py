"""The agreement of two judges on how far cited passages support sentences."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keystone.generation.types import Support
from keystone.indexing.errors import UserError
from keystone.runs.evaluation.agreement import Agreement
from keystone.runs.evaluation.nuggets.citations import CitedAnswer, read_cited_answers
from keystone.runs.wording import plural

SCALE: tuple[Support, ...] = ("none", "partial", "full")


@dataclass(frozen=True, slots=True, eq=False)
class LabelAgreement:
    """The citations that both judges rated: `counts` is int64[3, 3], rows and columns in the order of `SCALE`."""

    counts: NDArray[np.int64]

    def report(self) -> dict[str, Any]:
        """Report the number of citations, the share with equal labels, and kappa, plain and with linear weights.

        Kappa is NaN if chance alone agrees. Weighted kappa is 1 - sum(w O) / sum(w E) with w = |i - j| / 2 (Cohen,
        Psychological Bulletin 1968).
        """
        total = int(self.counts.sum())
        distance = np.abs(np.subtract.outer(np.arange(3), np.arange(3))) / 2
        expected = np.outer(self.counts.sum(axis=1), self.counts.sum(axis=0)) / total
        by_chance = float((distance * expected).sum())
        return {
            "citations": total,
            "equal": float(np.trace(self.counts)) / total,
            "kappa": Agreement((0, 1, 2), self.counts).compute_kappa(),
            "weighted_kappa": 1 - float((distance * self.counts).sum()) / by_chance if by_chance else float("nan"),
        }

    def describe(self) -> str:
        """Describe the agreement in a line."""
        found = self.report()
        return (
            f"agreement on {plural(found['citations'], 'citation')}: {found['equal']:.1%} equal, "
            f"kappa {found['kappa']:.4f}, weighted kappa {found['weighted_kappa']:.4f}"
        )


def compare_labels(answers: Sequence[CitedAnswer], other: Path) -> LabelAgreement:
    """Compare the labels of answers with those of another file, citation by citation.

    A citation is the same if run, topic, place of the sentence and cited id are. `UserError` if none is rated in both.
    """
    ours, theirs = _key_labels(answers), _key_labels(read_cited_answers(other))
    counts = np.zeros((3, 3), dtype=np.int64)
    for key in ours.keys() & theirs.keys():
        counts[SCALE.index(ours[key]), SCALE.index(theirs[key])] += 1
    if not counts.any():
        raise UserError(f"{other}: rates no citation that the other files rate, expected the same runs and topics")
    return LabelAgreement(counts)


def _key_labels(answers: Sequence[CitedAnswer]) -> dict[tuple[str, str, int, str], Support]:
    return {
        (answer.run_id, answer.topic_id, place, cited): support
        for answer in answers
        for place, sentence in enumerate(answer.sentences)
        for cited, support in sentence.citations
        if support is not None
    }
