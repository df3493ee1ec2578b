"""Tables of scores: auto-judge's leaderboards, and the metrics of nuggetizer and RAGDoll.

Source: trec-auto-judge/auto-judge-base, whose form `ir_measures` is that of the package of this name.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Annotated, Any

from keystone.indexing.errors import UserError
from keystone.indexing.io.fields import find_field
from keystone.indexing.io.json_values import parse_json
from keystone.indexing.io.reading import read_text_lines
from keystone.indexing.io.writing import write_json_lines, write_whole
from keystone.runs.exchange.records import fill, has, list_keys, read_form
from keystone.runs.exchange.types import Form, Handover, Score
from keystone.runs.parts import REQUIRED, Id, Name, Part, checked, first_of
from keystone.runs.tracks.answer_files import is_score
from keystone.runs.tracks.violations import shorten_value
from keystone.runs.trec.collections import DOCUMENT_NAMES

COLUMNS: Mapping[str, Sequence[str]] = {
    "leaderboard": ("run_id", "measure", "topic_id", "value"),
    "ir-measures": ("run_id", "topic_id", "measure", "value"),
}
"""The columns of each form with columns."""
TOPIC_KEYS = ("qid", "topic_id", "query_id")
WORDS = {"true": 1, "false": 0}
"""Values that are no numbers, in lower case, and the numbers that stand for them: auto-judge's measures may be true."""


def is_value(text: str) -> bool:
    """Whether a text is the value of a measure: a number, or true or false."""
    try:
        return text.lower() in WORDS or (text.isascii() and "_" not in text and isfinite(float(text)))
    except ValueError:
        return False


VALUE = checked("a number", lambda value: isinstance(value, int | float | str) and is_value(str(value)), str)


class _Score(Part):
    run_id: Name = REQUIRED
    topic_id: Name = REQUIRED
    measure: Name = REQUIRED
    value: Annotated[str, VALUE] = REQUIRED


class _Metrics(Part):
    run_id: Id = ""
    topic_id: Name = first_of(*TOPIC_KEYS, default=...)


def _read_columns(path: Path, form: str) -> Handover:
    """Read four columns a line. `UserError` with file and line for another line. A header of names is skipped."""
    scores: list[Score] = []
    for number, line in read_text_lines(path):
        columns = line.split()
        if not columns or columns[0].startswith("#") or (not scores and columns[-1] == "value"):
            continue
        names = COLUMNS[form]
        if len(columns) != len(names):
            raise UserError(f"{path}:{number}: expected the columns {', '.join(names)}, found {len(columns)} columns")
        if not is_value(columns[-1]):
            raise UserError(f"{path}:{number}: value: expected a number, found {shorten_value(columns[-1])}")
        scores.append(Score(**dict(zip(names, columns, strict=True))))
    if not scores:
        raise UserError(f"{path}: holds no score")
    return Handover(scores=tuple(scores))


def _write_columns(path: Path, content: Handover, form: str) -> None:
    """Write four columns a line, between tabs. `UserError` for a name with white space."""
    with write_whole(path) as out:
        for one in content.scores:
            row = [getattr(one, name) for name in COLUMNS[form]]
            if bad := next((name for name in row if len(name.split()) != 1), None):
                raise UserError(f"{path}: a column cannot hold {shorten_value(bad)}, expected a name without space")
            out.write("\t".join(row).encode() + b"\n")


def read_score_lines(path: Path) -> Handover:
    """Read a score from each JSON object. `UserError` with file and line for an object without one of the keys."""
    scores, unread = read_form(path, _Score, lambda own, *_: Score(**own.model_dump()))
    return Handover(scores=tuple(scores), unread=unread)


def write_score_lines(path: Path, content: Handover) -> None:
    """Write a score a line as JSON. A value that would lose digits as a number is a text."""
    write_json_lines(path, ({**asdict(one), "value": _encode_value(one.value)} for one in content.scores))


def read_metrics(path: Path) -> Handover:
    """Read the scores of a topic from each object: its numbers, by the names of their keys.

    `UserError` with file and line for an object without a topic.
    """

    def make(own: _Metrics, _place: str, record: dict[str, Any]) -> list[Score]:
        names = [key for key, value in record.items() if is_score(value) and key not in list_keys(_Metrics)]
        return [Score(own.run_id, own.topic_id, name, str(record[name])) for name in names]

    def drop_numbers(record: dict[str, Any], _: object) -> dict[str, Any]:
        return {key: value for key, value in record.items() if not is_score(value)}

    found, unread = read_form(path, _Metrics, make, drop_numbers)
    return Handover(scores=tuple(score for own in found for score in own), unread=unread)


def write_metrics(path: Path, content: Handover) -> None:
    """Write the scores of a run and a topic a line, as nuggetizer and RAGDoll do. True and false become 1 and 0."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for one in content.scores:
        own = {**fill(run_id=one.run_id), "qid": one.topic_id}
        number = WORDS.get(one.value.lower(), one.value)
        found.setdefault((one.run_id, one.topic_id), own)[one.measure] = float(number)
    write_json_lines(path, found.values())


def _encode_value(text: str) -> Any:
    try:
        value = parse_json(text.lower())
    except ValueError:
        return text
    return value if str(value) == text else text


def _has_metrics(record: dict[str, Any]) -> bool:
    """Whether an object has a topic and otherwise numbers alone, none of which names a document."""
    numbers = [value for key, value in record.items() if key not in (*TOPIC_KEYS, "run_id")]
    is_judgment = find_field(record, DOCUMENT_NAMES) is not None
    return len(numbers) < len(record) and bool(numbers) and all(map(is_score, numbers)) and not is_judgment


FORMS = (
    *(
        Form(name, "scores", used_by, partial(_read_columns, form=name), partial(_write_columns, form=name))
        for name, used_by in (
            ("leaderboard", "auto-judge's leaderboards: run, measure, topic, value"),
            ("ir-measures", "ir_measures, auto-judge: run, topic, measure, value"),
        )
    ),
    Form(
        "score-lines",
        "scores",
        "auto-judge's leaderboards as JSONL",
        read_score_lines,
        write_score_lines,
        has(*_Score.model_fields),
    ),
    Form("metrics", "scores", "metrics of nuggetizer and RAGDoll", read_metrics, write_metrics, _has_metrics),
)
