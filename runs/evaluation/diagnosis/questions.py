"""What became of the questions of a run: how far documents answer each one, and what its search found and lost."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from keystone.generation.types import Answered
from keystone.runs.evaluation.diagnosis.stored import StoredRun
from keystone.runs.evaluation.diagnosis.wanted import Wanted
from keystone.runs.pipeline.questions import ReadQuestion, list_read_questions

UNCHECKED = "unchecked"
"""The level of a question that nobody checked."""
AFTER_READING = ("used", "cited")
"""The stages that lose what the writer of an answer has read."""


@dataclass(frozen=True, slots=True)
class QuestionFinding:
    """What became of one question of a narrative."""

    question: ReadQuestion
    losses: Mapping[str | None, int]
    """How many of its nuggets or documents each stage lost. None: those that are kept."""

    @property
    def is_open(self) -> bool:
        """Whether no document answers it in full. Where nobody checked that, whether nothing was read for it."""
        level = self.question.level
        return level != "answered" if level else not self.question.documents

    @property
    def lost(self) -> dict[str, int]:
        """How many of its nuggets or documents each stage lost, without those that are kept."""
        return {stage: number for stage, number in self.losses.items() if stage}


def find_questions(
    run: StoredRun, lost: Sequence[tuple[Wanted, str | None]], ranks: Mapping[str, Mapping[str, int]]
) -> tuple[QuestionFinding, ...]:
    """Find what became of each question of a run. Without answers or a contract, the result is empty.

    `lost` has each nugget or document with the stage that lost it, and `ranks` the ranks of documents for each query.
    Each counts for the question that ranks its document highest; of several, for the heaviest one. Questions
    of topics without any are left out, since nobody can tell what was lost for them.
    """
    if not run.has_answers or not any(query.ask for own in run.queries.values() for query in own):
        return ()
    wanted_by = {wanted.topic_id for wanted, _ in lost}
    read = {one: list_read_questions(own, run.evidence[one]) for one, own in run.queries.items() if one in wanted_by}
    counts: dict[str, Counter[str | None]] = {one.query.id: Counter() for own in read.values() for one in own}
    for wanted, stage in lost:
        doc_id = wanted.doc_id
        if finding := [one for one in read[wanted.topic_id] if doc_id in ranks.get(one.query.id, ())]:
            best = min(finding, key=lambda one: (ranks[one.query.id][doc_id], -one.weight))
            counts[best.query.id][stage] += 1
    return tuple(QuestionFinding(one, counts[one.query.id]) for questions in read.values() for one in questions)


def share_weight(some: Sequence[QuestionFinding], every: Sequence[QuestionFinding]) -> float:
    """Return the share of the weight of all questions that some of them have."""
    return sum(one.question.weight for one in some) / sum(one.question.weight for one in every)


def count_levels(questions: Sequence[QuestionFinding]) -> dict[str, dict[str, Any]]:
    """Count the questions of each level, by the last check. `before` counts by the first one, if there were two."""
    checked_again = any(one.question.again for one in questions)
    found = {}
    for level in (*get_args(Answered), UNCHECKED):
        own = [one for one in questions if (one.question.level or UNCHECKED) == level]
        before = sum((one.question.found or UNCHECKED) == level for one in questions)
        if own or before or level != UNCHECKED:
            found[level] = {
                **({"before": before} if checked_again else {}),
                "number": len(own),
                "weight": share_weight(own, questions),
                "unread": sum(not one.question.documents for one in own),
                "wanted": sum(sum(one.losses.values()) for one in own),
                "lost": sum(sum(one.lost.values()) for one in own),
            }
    return found


def list_open(questions: Sequence[QuestionFinding]) -> list[QuestionFinding]:
    """List the open questions, the heaviest first."""
    return sorted((one for one in questions if one.is_open), key=lambda one: -one.question.weight)


def tell_losses(questions: Sequence[QuestionFinding], losses: Mapping[str, str], noun: str) -> list[str]:
    """Tell how many questions are open, then on a line each what became of their nuggets or documents.

    The most frequent fate is first. `losses` names the loss at each stage, and `noun` what was lost.
    """
    open_ones, unchecked = list_open(questions), sum(not one.question.level for one in questions)
    rest = f"; nobody checked {unchecked:,}, which count as open if nothing was read for them" if unchecked else ""
    if not open_ones:
        return [f"no question of {len(questions):,} is open{rest}"]
    fates, stages = Counter[str](), Counter[str]()
    for one in open_ones:
        before = {stage: number for stage, number in one.lost.items() if stage not in AFTER_READING}
        stages.update(before)
        fates["lost" if before else "read" if one.losses else "none"] += 1
    stage = max(losses, key=lambda stage: stages[stage])
    told = {
        "lost": f"lost {noun}s before the writer read them, most at {stage} ({losses[stage]})",
        "read": f"had all their {noun}s read",
        "none": f"had no {noun} that their own searches rank highest",
    }
    share = f"{share_weight(open_ones, questions):.1%} of the weight"
    head = f"{len(open_ones):,} of {len(questions):,} questions, {share}, have no document that answers them in full"
    return [head + rest, *(f"{number:,} of them {told[fate]}" for fate, number in fates.most_common())]
