"""Nuggets in the forms of `keystone.runs.evaluation.nuggets`, and as one nugget a line."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from keystone.indexing.io.writing import write_json_lines, write_whole
from keystone.runs.evaluation.nuggets import files as nugget_files
from keystone.runs.exchange.records import count_unread, fill, has, read_records
from keystone.runs.exchange.types import Form, Handover

NUGGET = ("text", "question", "claim", "importance", "assignment", "nugget_id", "claim_id", "question_id", "id", "_id")
NUGGET_KEYS = ("topic", "importance", "doc_id", "docid", "start", "nugget_id", "claim_id", "question_id")
"""Keys by which a record with a text is a nugget."""
REFERENCES = ("references", "references[].doc_id", "references[].docid", "references[].offsets")
ANSWERS = ("answers[].answer", *(f"answers[].{key}" for key in REFERENCES))
KEPT_OF_NUGGET = (*NUGGET, nugget_files.SUB_NARRATIVE, "aggregator_type", "query_id", *REFERENCES[1:], *ANSWERS)
KEPT_OF_LINE = (*nugget_files.TOPIC_KEYS, *nugget_files.DOC_KEYS, "start", "end", *NUGGET)
KEPT_OF_BANK = (
    *(*nugget_files.TOPIC_KEYS, *nugget_files.QUERY_KEYS, "run_id", "answer_text", "response_length", "format_version"),
    *(f"metadata.{key}" for key in ("topic_id", "run_id", "team_id", "run_desc")),
    *(f"{bank}[].{key}" for bank in nugget_files.BANKS for key in KEPT_OF_NUGGET),
)
"""The paths that the reader keeps, with lists in the place of objects whose keys are texts of nuggets."""


def read(path: Path) -> Handover:
    """Read nuggets in any form. Errors are those of `read_records` and `read_nuggets`."""
    records = list(read_records(path))
    banks = tuple(nugget_files.read_nuggets(path, records))
    lines: list[dict[str, Any]] = []
    objects: list[dict[str, Any]] = []
    for _, record in records:
        (lines if record.keys().isdisjoint(nugget_files.BANKS) else objects).append(_list_values(record))
    return Handover(nuggets=banks, unread=count_unread(lines, KEPT_OF_LINE) + count_unread(objects, KEPT_OF_BANK))


def _list_values(record: dict[str, Any]) -> dict[str, Any]:
    """Replace objects whose keys are texts of nuggets or answers by lists, so that paths hold no texts."""
    found = {}
    for key, value in record.items():
        nested = key in (*nugget_files.BANKS, "sub_nuggets", "answers")
        inner = list(value.values()) if nested and isinstance(value, dict) else value
        if nested and isinstance(inner, list):
            inner = [_list_values(one) if isinstance(one, dict) else one for one in inner]
        if key == "references" and isinstance(inner, list):
            inner = [{"doc_id": one} if not isinstance(one, dict) else one for one in inner]
        found[key] = inner
    if nugget_files.SUB_NARRATIVES in found:
        found.pop("id", None)  # the topic
    return found


def _write_as(form: str) -> Callable[[Path, Handover], None]:
    return lambda path, content: nugget_files.write_nuggets(path, content.nuggets, form)


def write_sub_narratives(path: Path, content: Handover) -> None:
    """Write one JSON array with a narrative and its sub-narratives for each topic, as NIST does."""
    document = [
        {
            "id": bank.topic_id,
            "narrative": bank.query,
            nugget_files.SUB_NARRATIVES: [fill(text=one.describe(), importance=one.importance) for one in bank.nuggets],
        }
        for bank in content.nuggets
    ]
    with write_whole(path) as out:
        out.write(orjson.dumps(document, option=orjson.OPT_INDENT_2) + b"\n")


def write_lines(path: Path, content: Handover) -> None:
    """Write one nugget a line, with its document. A nugget with further documents gives a line for each."""
    write_json_lines(path, (line for bank in content.nuggets for line in _list_lines(bank)))


def _list_lines(bank: nugget_files.NuggetBank) -> Iterator[dict[str, Any]]:
    for number, one in enumerate(bank.nuggets, 1):
        sources: Sequence[nugget_files.Source | None] = one.list_sources() or [None]
        for source in sources:
            span = source.span if source else None
            yield {
                "topic_id": bank.topic_id,
                "text": one.describe(),
                "nugget_id": one.name or str(number),
                **fill(importance=one.importance, doc_id=source.doc_id if source else None),
                **fill(start=span.start if span else None, end=span.end if span else None),
            }


FORMS = tuple(
    Form(name, "nuggets", used_by, read, write, fits)
    for name, used_by, write, fits in (
        ("nuggets", "one nugget a line", write_lines, has("text", any_of=NUGGET_KEYS)),
        (
            "nuggetizer",
            "nuggetizer and RAGDoll, with and without assignments",
            _write_as("nuggetizer"),
            has("nuggets", "qid"),
        ),
        ("nuggetbank", "auto-judge's NuggetBank", _write_as("nuggetbank"), has(any_of=("nugget_bank", "claim_bank"))),
        ("ragtime-nuggets", "RAGTIME 2026 task 3", _write_as("ragtime"), has("metadata", "nugget_bank")),
        (
            "sub-narratives",
            "NIST's narratives of TREC RAG 2025 with sub-narratives",
            write_sub_narratives,
            has(nugget_files.SUB_NARRATIVES),
        ),
    )
)
