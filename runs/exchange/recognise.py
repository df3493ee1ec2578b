"""Recognising the form of a file from its first record or its first lines."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from keystone.indexing.errors import UserError
from keystone.indexing.io.columns import choose_delimiter, name_columns
from keystone.indexing.io.fields import find_field
from keystone.indexing.io.reading import read_text_lines
from keystone.runs.exchange.records import read_records
from keystone.runs.exchange.table import FORMS, Form
from keystone.runs.tracks.answer_files import is_score
from keystone.runs.trec.collections.named_rows import DOCUMENT_NAMES, GRADE_NAMES, QUERY_NAMES, names_columns
from keystone.runs.trec.json_topics import NARRATIVE_KEYS, TURN_KEYS
from keystone.runs.trec.rows import split_columns
from keystone.runs.trec.topics import LAYOUT, names_collection

SHOWN_LINES = 1000
"""The lines of a run that are looked at."""
GRADES = frozenset(map(str, range(-2, 6)))
ITERATIONS = frozenset(("0", "1", "Q0"))
"""Second columns of judgments without nuggets. Any other word is one as well if all rows have it, as a judge's name."""
NUGGET_KEYS = ("importance", "doc_id", "docid", "start", "nugget_id", "claim_id", "question_id")


def recognise(path: Path) -> Form:
    """Recognise the form of a file. `UserError` if it has none that is known, or if several forms are possible."""
    if names_collection(path):
        raise UserError(f"{path}: holds topics and qrels; name one of them by --from")
    line = next((line for _, line in read_text_lines(path) if line.strip() and not line.startswith("#")), None)
    if line is None:
        raise UserError(f"{path}: holds no line; name the form by --from")
    if line.lstrip()[:1] in ("{", "["):
        record = next(record for _, record in read_records(path))
        name = next((name for name, fits in RECORDS if fits(record)), None) or _find_added_form(record)
        if name is None:
            keys = ", ".join(record) or "none"
            raise UserError(f"{path}: no form is known by the keys {keys}; name the form by --from, see --forms")
        return FORMS[name]
    if names_columns(line):
        return FORMS["qrels"]
    if line.lstrip().startswith("<"):
        return FORMS["topics"]
    is_header = name_columns(line.split(choose_delimiter(line)), LAYOUT) is not None
    if is_header or (line.count("\t") == 1 and len(line.split()) != 6):
        return FORMS["topics-tsv"]
    return FORMS[_recognise_columns(path)]


def _find_added_form(record: dict[str, Any]) -> str | None:
    return next((name for name in FORMS.list_added() if (fits := FORMS[name].fits) and fits(record)), None)


def _recognise_columns(path: Path) -> str:
    rows = []
    for number, line in read_text_lines(path):
        if line.strip() and not line.startswith("#"):
            rows.append(split_columns(line))
        if number >= SHOWN_LINES and len(rows[0]) != 4:
            break
    widths = {len(row) for row in rows}
    second, third, fourth, fifth = ({row[place] for row in rows if len(row) > place} for place in (1, 2, 3, 4))
    if min(widths) >= 6:
        ranked = len({(row[0], row[3]) for row in rows}) == len(rows)
        return "qrels" if fourth | fifth <= GRADES and not ranked else "run"
    if widths == {4}:
        if second == {"all"} or "all" in second - third or "query_id" in second:
            return "ir-measures"
        if "all" in third - second:
            return "leaderboard"
        if {grade.removesuffix(".0") for grade in fourth} <= GRADES and (second <= ITERATIONS or len(second) == 1):
            return "qrels"
        raise UserError(f"{path}: is nugget-qrels, leaderboard or ir-measures; name the form by --from")
    found = ", ".join(map(str, sorted(widths)))
    raise UserError(f"{path}: no form is known by lines of {found} columns; name the form by --from, see --forms")


def _has(*keys: str) -> Callable[[dict[str, Any]], bool]:
    return lambda record: all(key in record for key in keys)


def _has_inner(key: str, *inner: str) -> Callable[[dict[str, Any]], bool]:
    """Whether the first object of the list under a key has one of the inner keys."""

    def fits(record: dict[str, Any]) -> bool:
        value = record.get(key)
        first = value[0] if isinstance(value, list) and value else None
        return isinstance(first, dict) and any(name in first for name in inner)

    return fits


def _has_metadata(*keys: str) -> Callable[[dict[str, Any]], bool]:
    def fits(record: dict[str, Any]) -> bool:
        metadata = record.get("metadata")
        return isinstance(metadata, dict) and all(key in metadata for key in keys)

    return fits


def _has_metrics(record: dict[str, Any]) -> bool:
    """Whether an object has a topic and otherwise numbers alone."""
    numbers = [value for key, value in record.items() if key not in ("qid", "topic_id", "query_id", "run_id")]
    return len(numbers) < len(record) and bool(numbers) and all(map(is_score, numbers))


RECORDS: tuple[tuple[str, Callable[[dict[str, Any]], bool]], ...] = (
    ("metrics", _has_metrics),
    ("biogen24", _has("results", "team_id")),
    ("ragdoll-pairs", _has("statement", "citation")),
    ("ragdoll-support", lambda r: isinstance(r.get("sentences"), list) and "run_id" in r),
    ("answers", lambda r: isinstance(r.get("sentences"), list) and "topic_id" in r),
    ("evidence", _has("items", "topic_id")),
    ("umbrela", _has("passage", "judgment")),
    ("nuggetizer", lambda r: "nuggets" in r and "qid" in r),
    ("ragtime-nuggets", _has("metadata", "nugget_bank")),
    ("nuggetbank", lambda r: "nugget_bank" in r or "claim_bank" in r),
    ("sub-narratives", _has("sub_narratives")),
    ("requests", lambda r: "query" in r and ("candidates" in r or isinstance(r["query"], dict))),
    ("score-lines", _has("run_id", "topic_id", "measure", "value")),
    ("auto-judge", _has("responses", "documents")),
    ("responses", _has("responses")),
    ("biogen-grounded", _has_inner("answer", "supported_citations", "existing_supported_citations")),
    ("ragdoll-resolved", _has("answer", "segments")),
    ("ragdoll-answers", _has("answer", "answer_text")),
    ("rag26", lambda r: "answer" in r and _has_metadata("run_desc")(r)),
    ("rag25", _has("answer", "metadata")),
    ("rag25", _has("answer", "narrative_id")),
    ("rag24", _has("answer", "topic_id")),
    ("nuggets", lambda r: "text" in r and ("topic" in r or any(key in r for key in NUGGET_KEYS))),
    ("qrels", lambda r: all(find_field(r, names) for names in (QUERY_NAMES, DOCUMENT_NAMES, GRADE_NAMES))),
    ("topics", lambda r: find_field(r, NARRATIVE_KEYS) is not None or any(key in r for key in TURN_KEYS)),
)
"""The forms of JSON records, each with a test. The first test that fits decides."""
