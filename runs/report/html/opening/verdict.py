"""The result of a report in a few sentences, which claim no more than the numbers show."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from keystone.runs.evaluation.compare import Difference, compare_runs
from keystone.runs.evaluation.evaluate import Evaluation
from keystone.runs.report.html.types import RunView
from keystone.runs.wording import plural

MEASURE = "nDCG@10"
"""The measure of the result. If no run has it, the first measure that a run has takes its place."""
LIKELY_BY_CHANCE = 0.05
"""The least p of a difference that chance explains as well."""
FIRST_DOCUMENTS = 10
"""How many first documents of two rankings are compared if there are no judgments."""


@dataclass(frozen=True, slots=True)
class Lead:
    """The lead of the best run over another one: its mean, its 95 % interval, and the topics that are better."""

    over: str
    mean: float
    low: float
    high: float
    p: float
    better: int
    topics: int

    @property
    def is_sure(self) -> bool:
        """Whether the runs can be told apart: the interval is above 0, and the randomisation test agrees."""
        return self.low > 0 and self.p < LIKELY_BY_CHANCE

    def __str__(self) -> str:
        """Tell the lead, its interval, and how many topics are better."""
        interval = "" if np.isnan(self.low) else f" (95 % interval {_sign(self.low)} to {_sign(self.high)})"
        return f"{_sign(self.mean)} over {self.over}{interval}, better in {self.better} of {_count(self.topics)}"


def choose_measure(evaluations: Sequence[Evaluation]) -> str:
    """Choose the measure of the result."""
    names = [name for name in evaluations[0].values if not np.isnan(evaluations[0].mean(name))]
    return MEASURE if MEASURE in names or not names else names[0]


def rank_runs(evaluations: Sequence[Evaluation], measure: str) -> list[Evaluation]:
    """Rank runs by the mean of a measure, the highest first."""
    return sorted(evaluations, key=lambda one: -one.mean(measure))


def tell_result(evaluations: Sequence[Evaluation], measure: str) -> str:
    """Tell which run has the highest mean, and how sure its lead is over the first run and over those near it."""
    best, *others = rank_runs(evaluations, measure)
    if not others:
        return _tell_alone(best, measure)
    leads = _measure_leads(best, others, measure)
    near = [lead for lead in leads if not lead.is_sure]
    first = next((lead for lead in leads if lead.over == evaluations[0].name), leads[0])
    mean = format_value(best.mean(measure))
    if not near:
        return f"{best.name} leads with {measure} {mean}: {first}."
    names, numbers = _join([lead.over for lead in near]), "; ".join(map(str, near))
    sentence = f"{best.name} has the highest {measure}, {mean}, but one cannot tell it apart from {names}: {numbers}."
    return f"{sentence} It is ahead of {first.over}: {first}." if first.is_sure else sentence


def tell_without_judgments(views: Sequence[RunView]) -> list[str]:
    """Tell what can be said of runs without judgments: the documents that they share, and their answers."""
    found = [*_tell_shared(views), *filter(None, map(_tell_answers, views))]
    if not found:
        found = [f"{_join([view.label for view in views])}: {_count(max(len(view.topics) for view in views))}."]
    return [*found, "Without judgments (--qrels), the report cannot say how good a run is."]


def count_shared(first: RunView, other: RunView) -> dict[str, int]:
    """Count, for each topic of both runs, the documents that are among the first ones of both rankings."""
    return {
        topic_id: len(_list_first(first, topic_id) & _list_first(other, topic_id))
        for topic_id in first.topics
        if topic_id in other.topics and _list_first(first, topic_id)
    }


def format_value(value: float) -> str:
    """Format a value of a measure for a sentence."""
    return f"{value:.2f}"


def _sign(value: float) -> str:
    return f"{round(value, 2) + 0.0:+.2f}".replace("-", "\u2212")


def _count(topics: int) -> str:
    return plural(topics, "narrative")


def _join(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _tell_alone(one: Evaluation, measure: str) -> str:
    values = one.values[measure]
    low, high = one.interval(measure)
    interval = "" if np.isnan(low) else f" (95 % interval {format_value(low)} to {format_value(high)})"
    measured = int((~np.isnan(values)).sum())
    return f"{one.name} reaches {measure} {format_value(one.mean(measure))}{interval} over {_count(measured)}."


def _measure_leads(best: Evaluation, others: Sequence[Evaluation], measure: str) -> list[Lead]:
    """Measure the lead over each other run, the nearest first."""
    found: list[dict[str, Difference]] = compare_runs([best, *others])
    leads = []
    for other, own in zip(others, found, strict=True):
        gains = best.values[measure] - other.values[measure]
        better, topics = int((gains > 0).sum()), int((~np.isnan(gains)).sum())
        of_other = own[measure]
        leads.append(
            Lead(other.name, -of_other.mean, -of_other.high, -of_other.low, of_other.p_randomisation, better, topics)
        )
    return leads


def _list_first(view: RunView, topic_id: str) -> set[str]:
    documents = view.topics[topic_id].documents
    return {document.id for document in documents if 0 < document.last <= FIRST_DOCUMENTS}


def _tell_shared(views: Sequence[RunView]) -> list[str]:
    first, *others = views
    shared = {other.label: list(count_shared(first, other).values()) for other in others}
    means = [f"{first.label} and {label} share {np.mean(counts):.1f}" for label, counts in shared.items() if counts]
    if not means:
        return []
    return [f"{_join(means)} of their first {FIRST_DOCUMENTS} documents on average."]


def _tell_answers(view: RunView) -> str:
    answers = [topic.answer for topic in view.topics.values() if topic.answer and topic.answer.sentences]
    if not answers:
        return ""
    cited = [bool(citations) for answer in answers for _, citations in answer.sentences]
    length = f"{len(cited) / len(answers):.1f} sentences on average"
    share = f"{100 * np.mean(cited):.0f} % of them with a citation"
    return f"{view.label} answers {len(answers)} of {_count(len(view.topics))}: {length}, {share}."
