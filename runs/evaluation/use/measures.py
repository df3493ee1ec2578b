"""Measures of an answer's use, from the judgment of its questions and sentences."""

from collections.abc import Mapping
from math import nan

from keystone.generation.grading.use import Use

CREDIT: Mapping[str, float] = {"yes": 1.0, "partly": 0.5, "no": 0.0}
"""The credit of an answer that agrees with references on a question."""


def measure_use(use: Use) -> tuple[float, ...]:
    """Measure an answer: its mark; shares of questions answered, partly, and not; of sentences of no use; gaps; lead.

    The share of gaps admitted is that of the questions that are not answered in full. It is NaN if there is none, and
    the share of sentences of no use is NaN without a sentence.
    """
    answered: list[str] = [one.answered for one in use.questions]
    left = [one.open for one in use.questions if one.answered != "yes"]
    useless = [not one.use for one in use.sentences]
    return (
        use.mark,
        *(answered.count(level) / len(answered) for level in CREDIT),
        sum(useless) / len(useless) if useless else nan,
        sum(left) / len(left) if left else nan,
        float(use.lead),
    )


def has_agreement(use: Use) -> bool:
    """Whether references tell the answer to a question."""
    return any(one.agrees in CREDIT for one in use.questions)


def measure_agreement(use: Use) -> float:
    """Measure how far an answer agrees with references: the mean credit of the questions on which these tell.

    NaN if they tell of none.
    """
    credit = [CREDIT[one.agrees] for one in use.questions if one.agrees and one.agrees in CREDIT]
    return sum(credit) / len(credit) if credit else nan
