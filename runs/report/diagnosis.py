"""A diagnosis on the terminal and as JSON: the losses of each stage, of each narrative, and one by one."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, TextIO

from keystone.runs.evaluation.diagnosis.diagnose import Diagnosis, Finding, name_losses
from keystone.runs.evaluation.diagnosis.questions import (
    UNCHECKED,
    QuestionFinding,
    count_levels,
    list_open,
    share_weight,
    tell_losses,
)
from keystone.runs.report.terminal import print_columns
from keystone.runs.wording import plural

KEPT = "kept"
_NOUNS = {"nugget": "nugget", "document": "relevant document"}
"""What a sentence calls that which the heads of columns name."""


def _name_wanted(found: Diagnosis) -> str:
    return "nugget" if found.findings[0].wanted.text else "document"


def print_diagnosis(found: Diagnosis, worth: Mapping[str, Any] | None = None, out: TextIO | None = None) -> None:
    """Print a row for each stage, and a row for each narrative, to `out` or standard output."""
    noun = _name_wanted(found)
    topics, every = found.count_by_topic(), len(found.findings)
    rows, losses = [], name_losses()
    for stage in (*found.stages, None):
        counts = [own[stage] for own in topics.values()]
        number = sum(counts)
        cells = f"{number:,}", f"{number / every:.1%}", str(sum(map(bool, counts))), f"{found.sum_worth(stage):.4f}"
        gain = worth["gains"].get(stage) if worth and stage else None
        in_measure = ["-" if gain is None else f"{gain:+.4f}"] if worth else []
        rows.append([stage or KEPT, losses[stage] if stage else f"{KEPT}: this is the coverage", *cells, *in_measure])
    head = ["stage", "loss", f"{noun}s", "share", "topics", "worth", *([worth["measure"]] if worth else [])]
    print_columns(head, rows, (0, 1), out)
    print("\nworth: the gain in coverage if these losses alone are repaired", file=out)
    if worth:
        gain = "its gain if these documents stood by their grades"
        print(f"{worth['measure']}: {gain}; now {worth['value']:.4f}", file=out)
    print(file=out)
    head = ["topic", f"{noun}s", *found.stages, KEPT]
    lines = [
        [topic, str(own.total()), *(str(own[s] or "-") for s in (*found.stages, None))] for topic, own in topics.items()
    ]
    print_columns(head, lines, out=out)
    if found.left_out:
        verb = "is" if found.left_out == 1 else "are"
        print(f"\n{plural(found.left_out, noun)} of topics that the run lacks {verb} left out", file=out)
    if found.questions:
        _print_questions(found.questions, noun, out)


def _print_questions(questions: Sequence[QuestionFinding], noun: str, out: TextIO | None) -> None:
    """Print a row for each level of the questions, the fates of the open ones, and a row for each narrative of them."""
    levels = count_levels(questions)
    again = any("before" in own for own in levels.values())
    rows = [
        [
            level,
            *([f"{own['before']:,}"] if again else []),
            f"{own['number']:,}",
            f"{own['number'] / len(questions):.1%}",
            f"{own['weight']:.1%}",
            *(f"{own[key]:,}" for key in ("unread", "wanted", "lost")),
        ]
        for level, own in levels.items()
    ]
    print(file=out)
    before = ["before"] if again else []
    print_columns(["answered", *before, "questions", "share", "weight", "unread", f"{noun}s", "lost"], rows, out=out)
    print("\nanswered: by the documents of the last check; what was searched for after it does not count", file=out)
    print("unread: nothing was shown to the writer for it", file=out)
    print(f"{noun}s: each counts for the question whose search ranks it highest", file=out)
    print("", *tell_losses(questions, name_losses(), _NOUNS[noun]), sep="\n", file=out)
    lines = []
    for topic, group in groupby(questions, lambda one: one.question.query.topic_id):
        every = list(group)
        if own := list_open(every):
            named = ", ".join(f"{one.question.query.id} {one.question.level or UNCHECKED}" for one in own)
            lines.append([topic, str(len(every)), str(len(own)), f"{share_weight(own, every):.1%}", named])
    if lines:
        print(file=out)
        print_columns(["topic", "questions", "open", "weight", "the heaviest first"], lines, (0, 4), out)


def describe_diagnosis(found: Diagnosis, worth: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Describe a diagnosis as values of JSON: the coverage, the losses of each stage, and each finding."""
    losses = name_losses()
    numbers = {
        stage: {"loss": losses[stage], "number": number, "worth": found.sum_worth(stage)}
        for stage in found.stages
        for number in [sum(one.lost == stage for one in found.findings)]
    }
    return {
        "coverage": found.sum_worth(None),
        **({"ranking": worth} if worth else {}),
        "stages": numbers,
        "findings": list(map(_describe_finding, found.findings)),
        **({"questions": _describe_questions(found)} if found.questions else {}),
    }


def _describe_questions(found: Diagnosis) -> dict[str, Any]:
    return {
        "fates": tell_losses(found.questions, name_losses(), _NOUNS[_name_wanted(found)]),
        "levels": count_levels(found.questions),
        "findings": [
            {
                "topic_id": asked.query.topic_id,
                "id": asked.query.id,
                "question": asked.query.question,
                "weight": asked.weight,
                "found": asked.found,
                "again": asked.again,
                "open": one.is_open,
                "documents": asked.documents,
                "tokens": asked.tokens,
                "lost": one.lost,
                KEPT: one.losses.get(None, 0),
            }
            for one in found.questions
            for asked in [one.question]
        ],
    }


def _describe_finding(finding: Finding) -> dict[str, Any]:
    wanted = finding.wanted
    place = {"start": wanted.span.start, "end": wanted.span.end} if wanted.span else {}
    return {
        "topic_id": wanted.topic_id,
        "id": wanted.name,
        "doc_id": wanted.doc_id,
        **({"text": wanted.text} if wanted.text else {}),
        **place,
        "lost": finding.lost,
        "worth": finding.worth,
        "ranks": finding.ranks,
        "grade": finding.grade,
    }
