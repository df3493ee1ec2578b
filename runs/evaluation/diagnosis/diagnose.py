"""The stage at which a run lost each nugget or relevant document, found from the files of its run directory.

A later stage may find what an earlier one lost: grades reach documents that the fusion has cut. So a nugget counts as
lost at the stage after the last one that it passed.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from keystone.indexing.errors import UserError
from keystone.indexing.types import Store
from keystone.runs.evaluation.diagnosis.stored import StoredRun, open_stored_run
from keystone.runs.evaluation.diagnosis.use import Use, find_uses
from keystone.runs.evaluation.diagnosis.wanted import Wanted
from keystone.runs.pipeline.file_names import name_system_file
from keystone.runs.pipeline.grading.rounds import RELEVANT_GRADE

Stage = Literal[
    "corpus", "search", "systems", "queries", "graded", "grade", "placed", "reranked", "selected", "read", "used",
    "cited",
]  # fmt: skip
LOSSES: Mapping[Stage, str] = {
    "corpus": "not in the corpus",
    "search": "in no query's list",
    "systems": "cut by the fusion of systems",
    "queries": "cut by the fusion of queries",
    "graded": "not graded",
    "grade": "graded too low",
    "placed": "ranked too low before the reranker",
    "reranked": "put too low by the reranker",
    "selected": "not selected",
    "read": "selected, but not in the evidence",
    "used": "in the evidence, but not used",
    "cited": "used, but wrongly cited",
}
"""The stages of a run in their order, each with the name of a loss there."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What became of one nugget or document."""

    wanted: Wanted
    lost: Stage | None
    """The stage that lost it. None: the answer uses and cites it, or the run has no answer and keeps it."""
    worth: float
    """What the coverage gains if this loss alone is repaired; for one that is kept, its part in the coverage."""
    ranks: Mapping[Stage, int]
    """The best rank of the document in the lists of `search`, `systems` and `queries`, as far as they have it."""
    grade: float | None
    """The highest UMBRELA grade of the document."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What became of all nuggets or relevant documents of a run's topics, and the stages that the run has."""

    stages: tuple[Stage, ...]
    findings: tuple[Finding, ...]
    left_out: int = 0
    """The number of nuggets or documents of other topics."""

    def sum_worth(self, lost: Stage | None) -> float:
        """Sum what the coverage gains if all losses at a stage alone are repaired. None: the coverage itself."""
        return sum(finding.worth for finding in self.findings if finding.lost == lost)

    def count_by_topic(self) -> dict[str, Counter[Stage | None]]:
        """Count the losses of each topic by stage, and under None what it keeps."""
        found: dict[str, Counter[Stage | None]] = {}
        for finding in self.findings:
            found.setdefault(finding.wanted.topic_id, Counter())[finding.lost] += 1
        return found


def diagnose(directory: Path, read_wanted: Callable[[Store], list[Wanted]]) -> Diagnosis:
    """Find the stage at which a finished run lost each nugget or relevant document of its topics.

    `read_wanted` reads them. The coverage is the mean over topics of the share that is kept. `UserError` for a folder
    without a finished run, and if none is wanted for a topic of the run.
    """
    run = open_stored_run(directory)
    every = read_wanted(run.store)
    wanted = [one for one in every if one.topic_id in run.queries]
    if not wanted:
        ids = f"its topics look like {next(iter(run.queries))!r}" + (f", not {every[0].topic_id!r}" if every else "")
        raise UserError(f"{directory}: found no nugget or relevant document of a topic of the run: {ids}")
    stages, ranks, grades = list_stages(run), _find_ranks(run, wanted), _find_best_grades(run)
    passed = _find_passed(run, wanted, ranks, grades)
    counts = Counter(one.topic_id for one in wanted)
    findings = []
    for place, one in enumerate(wanted):
        key = one.topic_id, one.doc_id
        last = max((number for number, stage in enumerate(stages) if passed[stage][place]), default=-1)
        lost = stages[last + 1] if last + 1 < len(stages) else None
        own = {stage: found[key] for stage, found in ranks.items() if key in found}
        findings.append(Finding(one, lost, 1 / counts[one.topic_id] / len(counts), own, grades.get(key)))
    return Diagnosis(stages, tuple(findings), len(every) - len(wanted))


def list_stages(run: StoredRun) -> tuple[Stage, ...]:
    """List the stages of a run, in order."""
    absent: set[Stage] = {"selected"} if run.is_reranked else {"placed", "reranked"}
    if run.answers_queries:
        absent.add("queries")
    if not run.grades:
        absent |= {"graded", "grade"}
    if not run.has_answers:
        absent |= {"read", "used", "cited"}
        if not run.grades and not run.is_reranked:
            absent.add("selected")
    return tuple(stage for stage in LOSSES if stage not in absent)


def _find_ranks(run: StoredRun, wanted: Sequence[Wanted]) -> dict[Stage, dict[tuple[str, str], int]]:
    docs: dict[str, list[str]] = {}
    for topic_id, doc_id in dict.fromkeys((one.topic_id, one.doc_id) for one in wanted):
        docs.setdefault(topic_id, []).append(doc_id)
    lists = list(map(name_system_file, run.config.list_systems()))
    return {
        "search": run.find_best_ranks(lists, docs),
        "systems": run.find_best_ranks([run.query_ranking], docs),
        "queries": run.find_narrative_ranks(docs),
    }


def _find_best_grades(run: StoredRun) -> dict[tuple[str, str], float]:
    """Find the highest grade of each document that has one."""
    found = {}
    for topic_id, record in run.grades.items():
        for doc_id, *own in zip(record.documents, *record.grades, strict=True):
            if known := [grade for grade in own if grade is not None]:
                found[topic_id, doc_id] = max(known)
    return found


def _find_passed(
    run: StoredRun,
    wanted: Sequence[Wanted],
    ranks: Mapping[Stage, Mapping[tuple[str, str], int]],
    grades: Mapping[tuple[str, str], float],
) -> dict[Stage, list[bool]]:
    """Find for each stage whether it let pass each nugget or document."""
    keys = [(one.topic_id, one.doc_id) for one in wanted]
    selected, uses = run.list_selected(), _find_all_uses(run, wanted)
    placed = run.list_selected_before_reranker() if run.is_reranked else selected
    is_selected = [doc_id in selected.get(topic_id, ()) for topic_id, doc_id in keys]
    return {
        "corpus": _find_in_corpus(run, wanted),
        **{stage: [key in found for key in keys] for stage, found in ranks.items()},
        "graded": [key in grades for key in keys],
        "grade": [grades.get(key, 0) >= RELEVANT_GRADE for key in keys],
        "placed": [doc_id in placed.get(topic_id, ()) for topic_id, doc_id in keys],
        "reranked": is_selected,
        "selected": is_selected,
        "read": [use.read for use in uses],
        "used": [use.used for use in uses],
        "cited": [use.cited for use in uses],
    }


def _find_in_corpus(run: StoredRun, wanted: Sequence[Wanted]) -> list[bool]:
    """Find whether the corpus has each document, and the text of each nugget that has a place."""
    located = sorted({one.doc_id for one in wanted if one.span})
    lengths = {doc_id: len(document.text) for doc_id, document in run.get_documents(located).items()}
    rows = run.store.rows([one.doc_id for one in wanted]).tolist()
    return [
        row >= 0 and (one.span is None or one.span.end <= lengths[one.doc_id])
        for one, row in zip(wanted, rows, strict=True)
    ]


def _find_all_uses(run: StoredRun, wanted: Sequence[Wanted]) -> list[Use]:
    """Find the use of each nugget or document in the answer to its topic."""
    found = [Use(False, False, False)] * len(wanted)
    places: dict[str, list[int]] = {}
    for place, one in enumerate(wanted if run.has_answers else ()):
        places.setdefault(one.topic_id, []).append(place)
    for topic_id, own in places.items():
        asked = [wanted[place] for place in own]
        documents = run.get_cited(topic_id) | run.get_documents(sorted({one.doc_id for one in asked if one.span}))
        uses = find_uses(asked, run.answers[topic_id], run.evidence[topic_id], documents)
        for place, use in zip(own, uses, strict=True):
            found[place] = use
    return found
