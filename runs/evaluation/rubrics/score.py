"""Scores of answers by weighted rubrics: of each narrative, each run and each type of criterion."""

import csv
import io
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from math import fsum, isnan, nan
from pathlib import Path
from typing import get_args

from keystone.generation.grading.nuggets import Verdict
from keystone.generation.prompts.evaluation import CriterionType
from keystone.indexing.errors import UserError
from keystone.indexing.io.writing import write_whole
from keystone.runs.evaluation.evaluate import Evaluation
from keystone.runs.evaluation.nuggets.score import score_runs
from keystone.runs.evaluation.rubrics.files import Criterion, Rubric

RUBRIC_MEASURES = ("rubric", "rubric_binary")
CREDIT: Mapping[Verdict | None, float] = {"satisfied": 1.0, "partially_satisfied": 0.5, "not_satisfied": 0.0}


def score_rubrics(graded: Sequence[Rubric], topics: Collection[str] = ()) -> list[Evaluation]:
    """Score the runs of graded rubrics on these topics; a topic that a run lacks counts 0.

    Without topics, they are those of all rubrics, and a caution says so. `UserError` for a criterion without a verdict
    and for a rubric without a run.
    """
    for rubric in graded:
        bare = next((one for one in rubric.criteria if one.verdict is None), None)
        if bare or not rubric.run_id:
            place = rubric.criteria[0].place if bare is None else bare.place
            raise UserError(
                f"{place + ': ' if place else ''}topic {rubric.topic_id!r}: found criteria without a run or a "
                "verdict: `keystone rubrics assign` makes a file that can be scored"
            )
    return score_runs(graded, RUBRIC_MEASURES, lambda one: score_criteria(one.criteria), "rubric", topics)


def score_criteria(criteria: Sequence[Criterion]) -> tuple[float, float]:
    """Score the criteria of an answer with three grades, and with two, where a part counts nothing.

    A score is sum(weight * credit) / sum(positive weights). It is below 0 if the faults outweigh the rest. NaN without
    a positive weight, and if a verdict failed. Source: castorini/RAGDoll at 1f06719; ResearchRubrics.
    """
    whole = fsum(one.weight for one in criteria if one.weight > 0)
    if not whole or any(one.verdict == "failed" for one in criteria):
        return nan, nan
    credits = [(one.weight, CREDIT[one.verdict]) for one in criteria]
    ternary = fsum(weight * credit for weight, credit in credits)
    return ternary / whole, fsum(weight for weight, credit in credits if credit == 1) / whole


def fails(criterion: Criterion) -> bool:
    """Return whether an answer fails a criterion: it does not meet all of it, or has some of a fault."""
    credit = CREDIT.get(criterion.verdict, 0.0)
    return credit > 0 if criterion.weight < 0 else credit < 1


def write_tables(folder: Path, graded: Sequence[Rubric], evaluations: Sequence[Evaluation]) -> None:
    """Write RAGDoll's `cell_scores.csv`, `run_scores.csv` and `category_failures.csv` to a folder.

    A missing score is an empty cell. Means of runs are those of `evaluations`, where a missing narrative counts 0.
    """
    folder.mkdir(parents=True, exist_ok=True)
    cells = []
    for one in graded:
        ternary, binary = score_criteria(one.criteria)
        failed = sum(criterion.is_mandatory and fails(criterion) for criterion in one.criteria)
        length = float(len(one.answer_text.split()))
        cells.append((one.topic_id, one.run_id, _round(ternary), _round(binary), len(one.criteria), failed, length))
    names = ("qid", "run_id", "ternary_score", "binary_score", "n_criteria", "n_mandatory_fail", "response_length")
    _write_csv(folder / "cell_scores.csv", names, cells)
    runs = [
        (one.name, len(one.topics), *(_round(float(one.mean(measure))) for measure in RUBRIC_MEASURES))
        for one in sorted(evaluations, key=lambda one: one.name)
    ]
    _write_csv(folder / "run_scores.csv", ("run_id", "n_topics", "ternary_score", "binary_score"), runs)
    _write_csv(
        folder / "category_failures.csv", ("type", "n_total", "n_failed", "failure_rate"), count_failures(graded)
    )


def count_failures(graded: Iterable[Rubric]) -> list[tuple[str, int, int, float | str]]:
    """Count the criteria of each type and those that answers fail. Types that RAGDoll lacks come last."""
    criteria = [one for rubric in graded for one in rubric.criteria]
    every = Counter(one.type for one in criteria)
    failed = Counter(one.type for one in criteria if fails(one))
    kinds = dict.fromkeys([*get_args(CriterionType), *sorted(every)])
    return [(k, every[k], failed[k], _round(failed[k] / every[k]) if every[k] else "") for k in kinds]


def _round(value: float) -> float | str:
    return "" if isnan(value) else round(value, 6)


def _write_csv(path: Path, names: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    text = io.StringIO()
    csv.writer(text).writerows([names, *rows])
    with write_whole(path) as out:
        out.write(text.getvalue().encode())
