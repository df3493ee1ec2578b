"""JSONL: BEIR, plain and MS MARCO V2.1 documents, and documents joined from MS MARCO V2.1 segments."""

import itertools
import reprlib
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from keystone.indexing.corpora.locate import SegmentRecord
from keystone.indexing.errors import BadRecord, Report, UserError, stop
from keystone.indexing.io.fields import find_field
from keystone.indexing.io.json_values import list_inner, parse_objects, read_whole_number, try_json
from keystone.indexing.io.reading import LONGEST_LINE_BYTES, read_json_lines, read_text, read_text_lines
from keystone.indexing.types import Document, Segment, Span, describe_id, document_id, is_id

ID_KEYS = ("docid", "_id", "id", "doc_id", "docno", "pid", "document_id")
TEXT_KEYS = ("text", "contents", "body", "passage", "segment")
"""The names of the id and of the text; `keystone.indexing.io.fields` has the rule by which they are found."""
LEAST_OVERLAP_CHARACTERS = 10
MOST_OVERLAP_TRIES = 100
"""Places that are tried for an overlap one by one; after these, an algorithm of linear time searches."""


def read_documents(file: Path, _name: str = "", report: Report = stop, language_field: str = "") -> Iterator[Document]:
    """The documents of a file: one a line, or the objects of an array, or objects over several lines.

    An object that has neither an id nor a text may hold documents: a list under its only key, or each under its id.

    The id is under one of `ID_KEYS`, the text under one of `TEXT_KEYS`; the first of them that has a value counts.
    """
    whole = _read_whole(file)
    if whole is None:
        found = ((f"{file}:{number}", value) for number, value in read_json_lines(file, report))
    else:
        found = ((f"{file}: element {number}", value) for number, value in enumerate(whole, 1))
    for where, record in _open_wrappers(found, report):
        try:
            yield make_document(record, where, language_field)
        except BadRecord as error:
            report(error)


def _open_wrappers(found: Iterable[tuple[str, Any]], report: Report) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects; one that holds documents is replaced by these."""
    for where, value in found:
        if not isinstance(value, dict):
            report(BadRecord(f"{where}: expected a JSON object, found {type(value).__name__}", "no JSON object"))
            continue
        inner = [] if find_field(value, (*ID_KEYS, *TEXT_KEYS)) else list_inner(value)
        if inner:
            yield from _open_wrappers(((f"{where}, {place}", one) for place, one in inner), report)
        else:
            yield where, value


def _read_whole(file: Path) -> list[Any] | None:
    """The values of a file that is one JSON array, or has objects that end beyond the first line; None for JSONL."""
    first = next((line.strip() for _, line in read_text_lines(file, lambda _error: None) if line.strip()), "")
    if not first.startswith(("[", "{")) or (first.startswith("{") and try_json(first) is not None):
        return None
    try:
        text = read_text(file, LONGEST_LINE_BYTES).removeprefix("\ufeff")
    except UserError:
        return None
    found = try_json(text)
    found = parse_objects(text) if found is None else found
    return found if isinstance(found, list) else [found] if isinstance(found, dict) else None


def make_document(record: dict[str, Any], where: str, language_field: str = "") -> Document:
    """The document of one JSON object. If its text is under `segment`, it is also its only segment and keeps its id.

    The value of the field `language_field`, if one is named, is the document's language.

    In MS MARCO V2, `docid` beside a `passage` is the id of its document, so there `pid` goes first. `BadRecord` if the
    object lacks a key, or a value has another type.
    """
    key = _find_key(record, TEXT_KEYS, "text", where)
    name = _read_id(record, where, ("pid", *ID_KEYS) if key == "passage" else ID_KEYS)
    text = _read_string(record, key, where)
    own = (Segment(name, Span(name, 0, len(text))),) if key == "segment" else ()
    language = _read_string(record, language_field, where) if language_field else ""
    return Document(name, text, *_read_description(record, where), own, place=where, language=language)


def read_segments(file: Path, _name: str = "", report: Report = stop) -> Iterator[Document]:
    """Documents joined from segments of MS MARCO V2.1 that follow one another; common text is held once."""
    for doc_id, group in itertools.groupby(_read_pieces(file, report), lambda item: document_id(item[1])):
        yield _join_pieces(doc_id, list(group))


_Piece = tuple[str, str, str, tuple[str, str, str]]
"""A segment as it is read: its place in the file, its id and text, and its document's title, URL and headings."""


def _read_pieces(file: Path, report: Report) -> Iterator[_Piece]:
    doc_id, seen = "", set[str]()
    for number, record in read_json_lines(file, report):
        where = f"{file}:{number}"
        try:
            name, key = _read_id(record, where), _find_key(record, ("segment",), "text", where)
            if document_id(name) != doc_id:
                doc_id, seen = document_id(name), set()
            _check_new(name, seen, where)
            yield where, name, _read_string(record, key, where), _read_description(record, where)
            seen.add(name)
        except BadRecord as error:
            report(error)


def _join_pieces(doc_id: str, group: list[_Piece]) -> Document:
    parts: list[str] = []
    segments, size, before = [], 0, ""
    for _, name, piece, _ in group:
        common = _measure_overlap(before, piece)
        if not common and size:
            parts.append("\n")
            size += 1
        start = size - common
        parts.append(piece[common:])
        size = start + len(piece)
        segments.append(Segment(name, Span(doc_id, start, size)))
        before = piece
    where, _, _, described = group[0]
    return Document(doc_id, "".join(parts), *described, tuple(segments), place=where)


def _measure_overlap(before: str, piece: str) -> int:
    """The length of the longest end of `before` with which `piece` begins; 0 below `LEAST_OVERLAP_CHARACTERS`."""
    head = piece[:LEAST_OVERLAP_CHARACTERS]
    start = before.find(head) if len(head) == LEAST_OVERLAP_CHARACTERS else -1
    for _ in range(MOST_OVERLAP_TRIES):
        if start < 0:
            return 0
        if piece.startswith(before[start:]):
            return len(before) - start
        start = before.find(head, start + 1)
    return _measure_border(piece[: len(before)], before)


def _measure_border(piece: str, before: str) -> int:
    """`_measure_overlap` in linear time (Knuth, Morris and Pratt, Fast Pattern Matching in Strings, 1977)."""
    borders = [0] * (len(piece) + 1)
    length = 0
    for place in range(1, len(piece)):
        while length and piece[place] != piece[length]:
            length = borders[length]
        length += piece[place] == piece[length]
        borders[place + 1] = length
    length = 0
    for letter in before:
        while length and (length == len(piece) or letter != piece[length]):
            length = borders[length]
        length += letter == piece[length]
    return length if length >= LEAST_OVERLAP_CHARACTERS else 0


class FileSegments:
    """The official segments in files, by document. Their texts lie in a temporary file, all else in memory.

    Each file comes with the report of its bad records, and is read before the next one comes.
    """

    def __init__(self, files: Iterable[tuple[Path, Report]]) -> None:
        self._texts = TemporaryFile()  # noqa: SIM115  it lives as long as this object
        self._cuts: dict[str, dict[str, tuple[SegmentRecord, int, int]]] = {}
        end = 0
        for file, report in files:
            for number, record in read_json_lines(file, report):
                where = f"{file}:{number}"
                try:
                    cut = make_segment_record(record, _read_id(record, where), where)
                    own = self._cuts.setdefault(document_id(cut.id), {})
                    _check_new(cut.id, own, where)
                except BadRecord as error:
                    report(error)
                    continue
                size = self._texts.write((cut.text or "").encode())
                own[cut.id] = cut._replace(text=None if cut.text is None else ""), end, size
                end += size

    def get(self, doc_id: str) -> list[SegmentRecord]:
        """The segments of a document in the order of the files; an empty list if it has none."""
        found = []
        for cut, start, size in self._cuts.get(doc_id, {}).values():
            self._texts.seek(start)
            found.append(cut if cut.text is None else cut._replace(text=self._texts.read(size).decode()))
        return found


def make_segment_record(record: dict[str, Any], name: str, where: str) -> SegmentRecord:
    """The segment of this id that an object describes. `BadRecord` if it has neither usable offsets nor a text."""
    start, end, text = record.get("start_char"), record.get("end_char"), record.get("segment")
    text = text if isinstance(text, str) else None
    if type(start) is int and type(end) is int and 0 <= start <= end:
        return SegmentRecord(name, start, end, text)
    if text and text.strip():
        return SegmentRecord(name, None, None, text)
    found = f"found {reprlib.repr(start)} and {reprlib.repr(end)}"
    message = f"{where}: expected offsets start_char <= end_char, or the text of the segment, {found}"
    raise BadRecord(message, "bad offsets")


def _check_new(name: str, seen: Collection[str], where: str) -> None:
    """Raise `BadRecord` if the document of a segment already has one with this id."""
    if name in seen:
        raise BadRecord(f"{where}: segment id {name!r} occurs more than once", "repeated segment")


def _find_key(record: dict[str, Any], keys: tuple[str, ...], what: str, where: str) -> str:
    if key := find_field(record, keys):
        return key
    found = reprlib.repr(list(record)) if record else "none"
    raise BadRecord(f"{where}: expected one of the keys {', '.join(keys)}, found {found}", f"no {what}")


def _read_id(record: dict[str, Any], where: str, keys: tuple[str, ...] = ID_KEYS) -> str:
    key = _find_key(record, keys, "id", where)
    found = record[key]
    whole = None if isinstance(found, str) else read_whole_number(found)  # pandas writes 1.0 beside a missing id
    name = found if whole is None else str(whole)
    if not isinstance(name, str) or not is_id(name):
        raise BadRecord(f"{where}: {key}: expected {describe_id(name)}, found {reprlib.repr(found)}", "bad id")
    return name


def _read_string(record: dict[str, Any], name: str, where: str) -> str:
    key = find_field(record, (name,)) or name
    found = record.get(key)
    if found is None:
        return ""
    if not isinstance(found, str):
        raise BadRecord(f"{where}: {key}: expected text, found {type(found).__name__}", "wrong type")
    return found


def _read_description(record: dict[str, Any], where: str) -> tuple[str, str, str]:
    key = find_field(record, ("headings",)) or "headings"
    if isinstance(record.get(key), list):
        record = {**record, key: "\n".join(map(str, record[key]))}
    title, url, headings = (_read_string(record, name, where) for name in ("title", "url", "headings"))
    return title, url, headings
