"""The nuggets or relevant documents that a run should use, read from files of any team."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from indexing.errors import UserError
from indexing.io.reading import read_json_lines
from indexing.types import Span, Store, document_id
from runs.tracks.answer_files import is_integer
from runs.tracks.violations import shorten_value
from runs.trec.run_files import read_qrels

TOPIC_KEYS = ("topic_id", "topic", "qid", "narrative_id")
DOC_KEYS = ("doc_id", "docid")
NAME_KEYS = ("nugget_id", "claim_id", "id", "_id")


@dataclass(frozen=True, slots=True)
class Wanted:
    """A nugget, or a relevant document (without a text), that the answer to a topic should use."""

    topic_id: str
    name: str
    doc_id: str
    text: str = ""
    span: Span | None = None
    """The nugget's place in its document, if it is known."""


def read_relevant_documents(path: Path, relevant_from: int, store: Store) -> list[Wanted]:
    """Read the documents of TREC judgments that have at least the grade `relevant_from`, each once for its topic.

    If the store has no document with a judged id, the id is that of a segment, and stands for its document.
    """
    qrels = read_qrels(path)
    relevant = np.flatnonzero(qrels.grades >= relevant_from)
    topics = [qrels.query_ids[n] for n in np.searchsorted(qrels.offsets, relevant, side="right") - 1]
    ids = qrels.docs[relevant].decode_ids()
    doc_ids = [name if row >= 0 else document_id(name) for name, row in zip(ids, store.rows(ids).tolist(), strict=True)]
    return [Wanted(topic, doc_id, doc_id) for topic, doc_id in dict.fromkeys(zip(topics, doc_ids, strict=True))]


def read_nuggets(path: Path) -> list[Wanted]:
    """Read a nugget from each line of JSON. `UserError` with file, line and key for one that has no document.

    The topic stands under one of `TOPIC_KEYS`, the document under one of `DOC_KEYS`, the nugget under `text`, its place
    in the document's text under `start` and `end`, and its name under one of `NAME_KEYS`. Place and name may be
    missing.
    """
    found = []
    for number, record in read_json_lines(path):
        try:
            found.append(_parse_nugget(record, number))
        except ValueError as error:
            raise UserError(f"{path}:{number}: {error}") from error
    if not found:
        raise UserError(f"{path}: holds no line, expected a nugget on each line")
    return found


def _parse_nugget(record: dict[str, Any], number: int) -> Wanted:
    text, start, end = (record.get(key) for key in ("text", "start", "end"))
    if not isinstance(text, str) or not text.strip():
        raise ValueError(f"text: expected the text of a nugget, found {shorten_value(text)}")
    topic_id, doc_id = _get_id(record, TOPIC_KEYS), _get_id(record, DOC_KEYS)
    span = None
    if start is not None or end is not None:
        if not (is_integer(start) and is_integer(end) and 0 <= start < end):
            found = f"{shorten_value(start)} and {shorten_value(end)}"
            raise ValueError(f"start, end: expected the nugget's place in its document in characters, found {found}")
        span = Span(doc_id, start, end)
    named = any(key in record for key in NAME_KEYS)
    return Wanted(topic_id, _get_id(record, NAME_KEYS) if named else f"line {number}", doc_id, text, span)


def _get_id(record: dict[str, Any], keys: Sequence[str]) -> str:
    key = next((key for key in keys if key in record), None)
    if key is None:
        raise ValueError(f"expected an id under {' or '.join(keys)}, found the keys {', '.join(record) or 'none'}")
    if not isinstance(record[key], str) and not is_integer(record[key]):
        raise ValueError(f"{key}: expected an id, found {shorten_value(record[key])}")
    return str(record[key])
