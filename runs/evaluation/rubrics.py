"""Rubrics: their files, in the forms of ResearchRubrics and RAGDoll, their creation, grades of answers, and scores.

Sources: trec-rag-data at 1de1b22 (`rubrics` with `criterion`, `weight`, `axis`); castorini/RAGDoll at 1f06719
(`criteria` with `text`, `type`, `tier`, `weight`, `source_nugget`, and once graded also `verdict`).
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import fsum, isnan, nan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

from keystone.generation.grading.nuggets import Verdict, create_criteria, grade_by_rules, grade_criteria
from keystone.generation.llm.ask import run_together
from keystone.generation.llm.model import Model
from keystone.generation.prompts.evaluation import CriterionType
from keystone.indexing.errors import UserError
from keystone.indexing.io.writing import make_folder, write_json_lines
from keystone.retrieval.types import Topic
from keystone.runs.evaluation.kept import Item, keep_items
from keystone.runs.evaluation.nuggets.files import TOPIC_KEYS
from keystone.runs.parts import REQUIRED, Id, Objects, Part, filled, first_of
from keystone.runs.tracks.violations import parse_lines, write_csv
from keystone.runs.wording import plural

if TYPE_CHECKING:
    from keystone.runs.config.run_config import RunConfig
    from keystone.runs.evaluation.evaluate import Evaluation
    from keystone.runs.pipeline.model_runner import RunWithModel

TYPE_BY_AXIS: Mapping[str, str] = {
    "Explicit Criteria": "explicit",
    "Implicit Criteria": "implicit",
    "Synthesis of Information": "synthesis",
    "References & Citation Quality": "references",
    "Communication Quality": "communication",
    "Instruction Following": "instruction",
}
"""RAGDoll's types by the axes of ResearchRubrics. A criterion of another axis has the axis as its type."""
MANDATORY_FROM = 5.0
"""The weight from which a criterion is mandatory, if its row names no tier: RAGDoll gives such criteria 5."""
ABOUT_KEYS = ("domain", "conceptual_breadth", "logical_nesting", "exploration")
"""The keys by which ResearchRubrics describes a topic."""


@dataclass(frozen=True, slots=True)
class Criterion:
    """A sentence about answers with its weight. A negative weight marks a fault. `verdict` is None until given."""

    text: str
    weight: float
    type: str = "explicit"
    tier: str = ""
    verdict: Verdict | None = None
    source_nugget: str = ""
    place: str = field(default="", compare=False, repr=False)
    """The `file:line` that holds the criterion."""

    @property
    def is_mandatory(self) -> bool:
        """Whether a good answer must meet it."""
        return self.tier == "mandatory" if self.tier else self.weight >= MANDATORY_FROM


@dataclass(frozen=True, slots=True)
class Rubric:
    """The criteria of a topic. With a run, they have verdicts on the answer of that run."""

    topic_id: str
    criteria: tuple[Criterion, ...]
    query: str = ""
    run_id: str = ""
    answer_text: str = ""
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """The `file:line` of its first criterion; empty without one."""
        return self.criteria[0].place if self.criteria else ""


def read_rubrics(path: Path) -> list[Rubric]:
    """Read the rubric of each topic, in the order of the file.

    `UserError` with file, line and key for a bad row, and for a topic that recurs with the same run.
    """
    found: dict[tuple[str, str], Rubric] = {}
    for place, one in parse_lines(path, _parse_rubric):
        if (key := (one.topic_id, one.run_id)) in found:
            of_run = f" of run {one.run_id!r}" if one.run_id else ""
            raise UserError(f"{place}: topic {one.topic_id!r}{of_run} occurs more than once")
        found[key] = replace(one, criteria=tuple(replace(criterion, place=place) for criterion in one.criteria))
    if not found:
        raise UserError(f"{path}: holds no line, expected the rubric of a topic on each line")
    return list(found.values())


class _Criterion(Part):
    text: Annotated[str, filled("a criterion")] = first_of("criterion", "text", default=...)
    weight: float = REQUIRED
    axis: str = ""
    type: str = ""
    tier: str = ""
    verdict: Verdict | None = None
    source_nugget: str = ""

    def make(self) -> Criterion:
        kind = TYPE_BY_AXIS.get(self.axis, self.axis) or self.type or "explicit"
        return Criterion(self.text, self.weight, kind, self.tier, self.verdict, self.source_nugget)


class _Rubric(Part):
    topic_id: Id = first_of(*TOPIC_KEYS, default=...)
    criteria: Objects[_Criterion] = first_of("criteria", "rubrics", default=...)
    query: str = ""
    run_id: Id = ""
    answer_text: str = ""


def _parse_rubric(record: dict[str, Any]) -> Rubric:
    own = _Rubric.read(record)
    if not own.criteria:
        raise ValueError("expected at least one criterion under criteria or rubrics, found none")
    criteria = tuple(one.make() for one in own.criteria.values())
    about = {name: record[name] for name in ABOUT_KEYS if name in record}
    return Rubric(own.topic_id, criteria, own.query, own.run_id, own.answer_text, about)


def encode_for_ragdoll(rubric: Rubric) -> dict[str, Any]:
    """Encode a rubric as a row of RAGDoll. Weights stay as they are; RAGDoll itself drops those of 0 and below."""
    graded = {
        "task_id": f"{rubric.run_id}:{rubric.topic_id}",
        "run_id": rubric.run_id,
        "answer_text": rubric.answer_text,
        "response_length": len(rubric.answer_text.split()),
    }
    return {
        "qid": rubric.topic_id,
        "status": "completed",
        "query": rubric.query,
        **(graded if rubric.run_id else {}),
        "criteria": [
            {
                "text": one.text,
                "type": one.type,
                "tier": "mandatory" if one.is_mandatory else "optional",
                "weight": int(one.weight) if one.weight.is_integer() else one.weight,
                "source_nugget": one.source_nugget,
                **({"verdict": one.verdict} if one.verdict else {}),
            }
            for one in rubric.criteria
        ],
    }


def encode_for_researchrubrics(rubric: Rubric) -> dict[str, Any]:
    """Encode a rubric as a row of ResearchRubrics, which holds no run and no verdict."""
    axes = {kind: axis for axis, kind in TYPE_BY_AXIS.items()}
    criteria = [{"criterion": o.text, "weight": o.weight, "axis": axes.get(o.type, o.type)} for o in rubric.criteria]
    return {"qid": rubric.topic_id, **rubric.about, "rubrics": criteria}


FORMS: Mapping[str, Callable[[Rubric], dict[str, Any]]] = {
    "ragdoll": encode_for_ragdoll,
    "researchrubrics": encode_for_researchrubrics,
}
"""The forms of files of rubrics."""


def write_rubrics(path: Path, rubrics: Iterable[Rubric], form: str = "ragdoll") -> None:
    """Write one rubric per line in one of `FORMS`. The file appears when it is whole."""
    write_json_lines(path, map(FORMS[form], rubrics))


def keep_criteria(out: Path, rubrics: Iterable[Rubric], form: str) -> None:
    """Raise `UserError` if the file `out` has a criterion that these rubrics lack or change in their form."""
    made = (_parse_rubric(FORMS[form](one)) for one in rubrics)
    keep_items(out, ("criterion", "criteria"), lambda path: _list_items(read_rubrics(path)), _list_items(made))


def _list_items(rubrics: Iterable[Rubric]) -> Iterator[Item]:
    return (((one.run_id, one.topic_id, own.text), own) for one in rubrics for own in one.criteria)


def create_rubrics(
    config: "RunConfig", qrels_path: Path, relevant_from: int, run_with_model: "RunWithModel"
) -> tuple[list[Rubric], list[str]]:
    """Create the rubric of each topic of a run from its relevant documents; also cautions about parts that are missing.

    A topic without a relevant document gets a rubric from its narrative alone. `UserError` without a model.
    """
    from keystone.indexing.index import open_index  # the conversion of rubrics needs none of these
    from keystone.retrieval.backends import open_store
    from keystone.runs.evaluation.nuggets.judge import Judgments, read_passages
    from keystone.runs.pipeline.model_runner import ask_model
    from keystone.runs.trec.run_files import read_qrels
    from keystone.runs.trec.topics import read_topics

    topics = read_topics(config.topics)
    window = config.require_model("rubrics: needs a language model; expected one under the key model").window
    judged = Judgments(str(qrels_path), read_qrels(qrels_path), relevant_from)
    passages, cautions = read_passages(open_store(open_index(config.index)), topics, judged)
    shown = [(topic, list(passages.get(topic.id, {}).values())) for topic in topics]
    if bare := sum(not own for _, own in shown):
        cautions.append(f"{plural(bare, 'topic')} without a relevant document, whose rubrics are from narratives alone")
    found = ask_model(
        run_with_model,
        lambda model: run_together(partial(_create_rubric, model, topic, own, window) for topic, own in shown),
    )
    return [rubric for rubric, _ in found if rubric.criteria], [*cautions, *(one for _, own in found for one in own)]


async def _create_rubric(model: Model, topic: Topic, passages: Sequence[str], window: int) -> tuple[Rubric, list[str]]:
    made, failures = await create_criteria(model, topic.narrative, passages, window)
    criteria = tuple(Criterion(one.text.strip(), float(one.weight), one.type) for one in made)
    cautions = [f"{topic.id}: the model gave no criteria of some passages: {one.reason}" for one in failures]
    return Rubric(topic.id, criteria, topic.narrative), cautions


def assign_rubrics(
    paths: Sequence[Path], rubrics: Sequence[Rubric], name: str, run_with_model: "RunWithModel | None"
) -> tuple[list[Rubric], list[str]]:
    """Grade the answers of files or run directories by the rubrics of their topics; also cautions about topics.

    Without a runner, rules grade: see `grade_by_rules`. A missing answer is not graded. `name` is the name of the
    rubrics in messages. `UserError` without a model, for rubrics that have runs, and for a file with none of their
    topics.
    """
    from keystone.runs.evaluation.nuggets.judge import check_topics, read_submissions
    from keystone.runs.pipeline.model_runner import ask_model

    submissions, topics = read_submissions(paths), [one.topic_id for one in rubrics]
    if graded := next((one for one in rubrics if one.run_id), None):
        raise UserError(f"{name}: topic {graded.topic_id!r} has run {graded.run_id!r}, expected rubrics without runs")
    cautions = check_topics(submissions, topics, "a rubric", "rubric")
    asked = [
        replace(rubric, run_id=one.run_id, answer_text=one.get_text(rubric.topic_id))
        for one in submissions
        for rubric in rubrics
        if rubric.topic_id in one.answers
    ]
    texts = [(rubric, [criterion.text for criterion in rubric.criteria]) for rubric in asked]
    if run_with_model is None:
        verdicts = [grade_by_rules(rubric.answer_text, own) for rubric, own in texts]
    else:
        verdicts = ask_model(
            run_with_model,
            lambda model: run_together(partial(grade_criteria, model, r.query, r.answer_text, own) for r, own in texts),
            "rubrics: needs a language model; expected one under the key model, or --rules",
        )
    found = [
        replace(one, criteria=tuple(replace(c, verdict=v) for c, v in zip(one.criteria, own, strict=True)))
        for one, own in zip(asked, verdicts, strict=True)
    ]
    return found, cautions


RUBRIC_MEASURES = ("rubric", "rubric_binary")
CREDIT: Mapping[Verdict | None, float] = {"satisfied": 1.0, "partially_satisfied": 0.5, "not_satisfied": 0.0}


def score_rubrics(graded: Sequence[Rubric], topics: Collection[str] = ()) -> "list[Evaluation]":
    """Score the runs of graded rubrics on these topics; a topic that a run lacks counts 0.

    Without topics, they are those of all rubrics, and a caution says so. `UserError` for a criterion without a verdict
    and for a rubric without a run.
    """
    from keystone.runs.evaluation.nuggets.score import score_runs

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
    """Score the criteria of an answer with three grades, and with two, where partial satisfaction counts nothing.

    A score is sum(weight * credit) / sum(positive weights). It is below 0 if the faults outweigh the rest. It is NaN
    without a positive weight, and if a verdict failed. Source: castorini/RAGDoll at 1f06719; ResearchRubrics.
    """
    whole = fsum(one.weight for one in criteria if one.weight > 0)
    if not whole or any(one.verdict == "failed" for one in criteria):
        return nan, nan
    credits = [(one.weight, CREDIT[one.verdict]) for one in criteria]
    ternary = fsum(weight * credit for weight, credit in credits)
    return ternary / whole, fsum(weight for weight, credit in credits if credit == 1) / whole


def fails(criterion: Criterion) -> bool:
    """Return whether an answer fails a criterion: it does not fully meet it, or has at least a part of a fault."""
    credit = CREDIT.get(criterion.verdict, 0.0)
    return credit > 0 if criterion.weight < 0 else credit < 1


def write_tables(folder: Path, graded: Sequence[Rubric], evaluations: "Sequence[Evaluation]") -> None:
    """Write RAGDoll's `cell_scores.csv`, `run_scores.csv` and `category_failures.csv` to a folder.

    A missing score is an empty cell. Means of runs are those of `evaluations`, where a missing narrative counts 0.
    """
    make_folder(folder)
    cells = []
    for one in graded:
        ternary, binary = score_criteria(one.criteria)
        failed = sum(criterion.is_mandatory and fails(criterion) for criterion in one.criteria)
        length = float(len(one.answer_text.split()))
        cells.append((one.topic_id, one.run_id, _round(ternary), _round(binary), len(one.criteria), failed, length))
    names = ("qid", "run_id", "ternary_score", "binary_score", "n_criteria", "n_mandatory_fail", "response_length")
    write_csv(folder / "cell_scores.csv", [names, *cells])
    runs = [
        (one.name, len(one.topics), *(_round(float(one.mean(measure))) for measure in RUBRIC_MEASURES))
        for one in sorted(evaluations, key=lambda one: one.name)
    ]
    write_csv(folder / "run_scores.csv", [("run_id", "n_topics", "ternary_score", "binary_score"), *runs])
    names_of_types = ("type", "n_total", "n_failed", "failure_rate")
    write_csv(folder / "category_failures.csv", [names_of_types, *count_failures(graded)])


def count_failures(graded: Iterable[Rubric]) -> list[tuple[str, int, int, float | str]]:
    """Count the criteria of each type and those that answers fail. Types that RAGDoll lacks come last."""
    criteria = [one for rubric in graded for one in rubric.criteria]
    every = Counter(one.type for one in criteria)
    failed = Counter(one.type for one in criteria if fails(one))
    kinds = dict.fromkeys([*get_args(CriterionType), *sorted(every)])
    return [(k, every[k], failed[k], _round(failed[k] / every[k]) if every[k] else "") for k in kinds]


def _round(value: float) -> float | str:
    return "" if isnan(value) else round(value, 6)
