"""JSONL: BEIR, plain and MS MARCO V2.1 documents, and documents put together from MS MARCO V2.1 segments."""

import itertools
import reprlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from indexing.errors import BadRecord, Report, stop
from indexing.files import json_lines
from indexing.types import Document, Segment, Span, document_id, is_id

ID_KEYS = ("docid", "_id", "id", "doc_id")
TEXT_KEYS = ("text", "contents", "body")
MINIMUM_OVERLAP = 10

Spans = dict[str, list[tuple[str, int, int]]]
"""Official segments by document: (segment id, start, end)."""


def read_documents(file: Path, _name: str = "", report: Report = stop) -> Iterator[Document]:
    """One document a line; ids under `docid`, `_id`, `id` or `doc_id`, text under `text`, `contents` or `body`."""
    for number, record in json_lines(file, report):
        try:
            yield document_of(record, f"{file}:{number}")
        except BadRecord as error:
            report(error)


def document_of(record: dict[str, Any], where: str) -> Document:
    """The document of one JSON object. `BadRecord` where it lacks a key or holds another type."""
    name, text = _id(record, where), _string(record, _first_key(record, TEXT_KEYS, "text", where), where)
    return Document(name, text, *_described(record, where), place=where)


def read_segments(file: Path, _name: str = "", report: Report = stop) -> Iterator[Document]:
    """Documents put together from the MS MARCO V2.1 segments of a file, whose ids are kept.

    Segments of a document follow one another; where windows overlap, the common text is kept once.
    """
    for doc_id, group in itertools.groupby(_segments(file, report), lambda item: document_id(item[1])):
        yield _joined(doc_id, list(group))


Piece = tuple[str, str, str, tuple[str, str, str]]
"""A segment as it is read: where, id, text, and title, URL and headings of its document."""


def _segments(file: Path, report: Report) -> Iterator[Piece]:
    for number, record in json_lines(file, report):
        where = f"{file}:{number}"
        try:
            name, key = _id(record, where), _first_key(record, ("segment",), "text", where)
            yield where, name, _string(record, key, where), _described(record, where)
        except BadRecord as error:
            report(error)


def _joined(doc_id: str, group: list[Piece]) -> Document:
    text, segments, previous = "", [], 0
    for _, name, piece, _ in group:
        start = _overlap(text, piece, previous)
        if start == len(text) and text:
            text += "\n"
            start += 1
        text = text[:start] + piece
        segments.append(Segment(name, Span(doc_id, start, start + len(piece))))
        previous = start
    where, _, _, described = group[0]
    return Document(doc_id, text, *described, tuple(segments), place=where)


def _overlap(text: str, piece: str, previous: int) -> int:
    """Where `piece` begins in `text` so that the rest of `text` is a beginning of `piece`, else the end."""
    head = piece[:MINIMUM_OVERLAP]
    start = text.find(head, previous) if len(head) == MINIMUM_OVERLAP else -1
    while start >= 0:
        if piece.startswith(text[start:]):
            return start
        start = text.find(head, start + 1)
    return len(text)


def segment_spans(files: Iterable[Path], report: Report = stop) -> Spans:
    """The offsets of MS MARCO V2.1 segments by document, from their `start_char` and `end_char`, in memory."""
    spans: Spans = {}
    for file in files:
        for number, record in json_lines(file, report):
            where = f"{file}:{number}"
            try:
                segment_id, (start, end) = _id(record, where), offsets_of(record, where)
                spans.setdefault(document_id(segment_id), []).append((segment_id, start, end))
            except BadRecord as error:
                report(error)
    return spans


def offsets_of(record: dict[str, Any], where: str) -> tuple[int, int]:
    """Where a segment begins and ends in its document. `BadRecord` where that is not said."""
    start, end = record.get("start_char"), record.get("end_char")
    if type(start) is not int or type(end) is not int or not 0 <= start <= end:
        found = f"found {reprlib.repr(start)} and {reprlib.repr(end)}"
        raise BadRecord(f"{where}: expected offsets start_char <= end_char, {found}", "bad offsets")
    return start, end


def _first_key(record: dict[str, Any], keys: tuple[str, ...], what: str, where: str) -> str:
    for key in keys:
        if key in record:
            return key
    found = reprlib.repr(list(record)) if record else "none"
    raise BadRecord(f"{where}: expected one of the keys {', '.join(keys)}, found {found}", f"no {what}")


def _id(record: dict[str, Any], where: str) -> str:
    key = _first_key(record, ID_KEYS, "id", where)
    found = record[key]
    name = str(found) if type(found) is int else found
    if not isinstance(name, str) or not is_id(name):
        raise BadRecord(f"{where}: {key}: expected an id without space, found {reprlib.repr(found)}", "bad id")
    return name


def _string(record: dict[str, Any], key: str, where: str) -> str:
    found = record.get(key)
    if found is None:
        return ""
    if not isinstance(found, str):
        raise BadRecord(f"{where}: {key}: expected text, found {type(found).__name__}", "wrong type")
    return found


def _described(record: dict[str, Any], where: str) -> tuple[str, str, str]:
    headings = record.get("headings")
    if isinstance(headings, list):
        record = {**record, "headings": "\n".join(map(str, headings))}
    return _string(record, "title", where), _string(record, "url", where), _string(record, "headings", where)
