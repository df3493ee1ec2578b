"""The types of rubrics, and their files: rows of ResearchRubrics, and those of RAGDoll, the track's evaluator.

Sources: trec-rag-data at 1de1b22 (`rubrics` with `criterion`, `weight`, `axis`); castorini/RAGDoll at 1f06719
(`criteria` with `text`, `type`, `tier`, `weight`, `source_nugget`, and once graded also `verdict`).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any

from keystone.generation.grading.nuggets import VERDICTS, Verdict
from keystone.indexing.errors import UserError
from keystone.indexing.io.reading import read_json_lines
from keystone.indexing.io.writing import write_json_lines
from keystone.runs.evaluation.nuggets.files import TOPIC_KEYS, get_id, list_objects
from keystone.runs.tracks.violations import shorten_value

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
    """A sentence about answers with its weight. A negative weight names a fault. None: nobody gave a verdict."""

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
    for number, record in read_json_lines(path):
        place = f"{path}:{number}"
        try:
            one = _parse_rubric(record, place)
            if found.setdefault((one.topic_id, one.run_id), one) is not one:
                of_run = f" of run {one.run_id!r}" if one.run_id else ""
                raise ValueError(f"topic {one.topic_id!r}{of_run} occurs more than once")
        except ValueError as error:
            raise UserError(f"{place}: {error}") from error
    if not found:
        raise UserError(f"{path}: holds no line, expected the rubric of a topic on each line")
    return list(found.values())


def _parse_rubric(record: dict[str, Any], place: str) -> Rubric:
    key = next((key for key in ("criteria", "rubrics") if key in record), None)
    if key is None:
        raise ValueError(f"expected the key criteria or rubrics, found the keys {', '.join(record) or 'none'}")
    criteria = tuple(_parse_criterion(one, where, place) for where, one in list_objects(record, key))
    if not criteria:
        raise ValueError(f"{key}: expected at least one criterion, found {shorten_value(record[key])}")
    return Rubric(
        get_id(record, TOPIC_KEYS),
        criteria,
        _get_text(record, "query"),
        get_id(record, ("run_id",)) if record.get("run_id") not in (None, "") else "",
        _get_text(record, "answer_text"),
        {name: record[name] for name in ABOUT_KEYS if name in record},
    )


def _parse_criterion(record: dict[str, Any], where: str, place: str) -> Criterion:
    key = "criterion" if "criterion" in record else "text"
    text, weight = _get_text(record, key, where), record.get("weight")
    if not text.strip():
        raise ValueError(f"{where}{key}: expected a criterion, found {shorten_value(record.get(key))}")
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not isfinite(weight):
        raise ValueError(f"{where}weight: expected a number, found {shorten_value(weight)}")
    verdict = record.get("verdict")
    if verdict is not None and verdict not in VERDICTS:
        expected = ", ".join(VERDICTS)
        raise ValueError(f"{where}verdict: expected one of {expected}, found {shorten_value(verdict)}")
    axis = _get_text(record, "axis", where)
    kind = TYPE_BY_AXIS.get(axis, axis) or _get_text(record, "type", where) or "explicit"
    tier = _get_text(record, "tier", where)
    return Criterion(text, float(weight), kind, tier, verdict, _get_text(record, "source_nugget", where), place)


def _get_text(record: dict[str, Any], key: str, where: str = "") -> str:
    value = record.get(key)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{where}{key}: expected a text, found {shorten_value(value)}")
    return value or ""


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
    """Write one rubric a line in one of `FORMS`. The file appears when it is whole."""
    write_json_lines(path, map(FORMS[form], rubrics))
