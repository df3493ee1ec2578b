"""A diagnosis on the terminal and as JSON: the losses of each stage, of each narrative, and one by one."""

from collections.abc import Mapping
from typing import Any, TextIO

from keystone.runs.evaluation.diagnosis.diagnose import Diagnosis, Finding, name_losses
from keystone.runs.report.terminal import print_columns
from keystone.runs.wording import plural

KEPT = "kept"


def print_diagnosis(found: Diagnosis, worth: Mapping[str, Any] | None = None, out: TextIO | None = None) -> None:
    """Print a row for each stage, and a row for each narrative, to `out` or standard output."""
    noun = "nugget" if found.findings[0].wanted.text else "document"
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
