"""Nuggets in the forms of `keystone.runs.evaluation.nuggets`, and as one nugget a line."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from keystone.indexing.io.writing import write_json_lines, write_whole
from keystone.runs.evaluation.nuggets import files as nugget_files
from keystone.runs.exchange.records import count_unread, fill, has, read_records
from keystone.runs.exchange.types import Form, Handover

NUGGET_KEYS = ("topic", "importance", "doc_id", "docid", "start", "nugget_id", "claim_id", "question_id")
"""Keys by which a record with a text is a nugget."""


def read(path: Path) -> Handover:
    """Read nuggets in any form. Errors are those of `read_records` and `read_nuggets`."""
    records = list(read_records(path))
    unread = Counter[str]()
    for _, record in records:
        count_unread(record, nugget_files.choose_part(record), unread)
    return Handover(nuggets=tuple(nugget_files.read_nuggets(path, records)), unread=unread)


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
