"""Readers of corpora: JSONL (BEIR, plain, MS MARCO V2.1 documents or segments) and folders of text files."""

import itertools
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

from indexing.errors import UserError
from indexing.files import json_lines, open_binary
from indexing.html_text import read_html
from indexing.types import Document, Segment, Span, is_id

ID_KEYS = ("docid", "_id", "id", "doc_id")
TEXT_KEYS = ("text", "contents", "body")
JSONL_SUFFIXES = (".jsonl", ".jsonl.gz", ".json.gz")
TEXT_SUFFIXES = (".txt", ".md", ".markdown", ".html", ".htm")

_MARKDOWN_HEADING = re.compile(r"^#{1,6} +(\S.*)$", re.MULTILINE)
_CLOSING_HASHES = re.compile(r"\s#+\s*$")
MINIMUM_OVERLAP = 10

Spans = dict[str, list[tuple[str, int, int]]]
"""Official segments by document: (segment id, start, end)."""


def read_corpus(path: Path, format: str | None = None, segments: Path | None = None) -> Iterator[Document]:
    """The documents of a corpus in the order of its files.

    `format` is a name of `READERS`, guessed where None. `segments` names a file of MS MARCO V2.1 segments
    that cuts the documents of `path`. Raises `UserError` with file and line for what cannot be read.
    """
    if format is not None and format not in READERS:
        raise UserError(f"corpus format: found {format!r}, expected one of {', '.join(sorted(READERS))}")
    if not path.exists():
        raise UserError(f"{path}: no such file or folder")
    reader = READERS[format or guess_format(path)]
    official = segment_spans(segments) if segments else {}
    for document in reader(path):
        spans = official.get(document.id)
        yield _with_segments(document, spans) if spans else document


def guess_format(path: Path) -> str:
    """The reader for a path: `folder` for a folder of text files, else by the keys of the first record."""
    if not path.exists():
        raise UserError(f"{path}: no such file or folder")
    if path.is_dir() and not _files(path, JSONL_SUFFIXES):
        return "folder"
    for file in _jsonl_files(path):
        for _, record in json_lines(file):
            return "segments" if "segment" in record else "jsonl"
    raise UserError(f"{path}: holds no document")


def read_jsonl(path: Path) -> Iterator[Document]:
    """One document a line; ids under `docid`, `_id`, `id` or `doc_id`, text under `text`, `contents` or `body`."""
    for file in _jsonl_files(path):
        for number, record in json_lines(file):
            where = f"{file}:{number}"
            text = _string(record, _first_key(record, TEXT_KEYS, where), where)
            yield Document(_document_id(record, where), text, *_described(record, where))


def read_segments(path: Path) -> Iterator[Document]:
    """Documents put together from the MS MARCO V2.1 segments of a file, whose ids are kept.

    Segments of a document follow one another; where windows overlap, the common text is kept once.
    """
    for file in _jsonl_files(path):
        records = ((f"{file}:{number}", record) for number, record in json_lines(file))
        for doc_id, group in itertools.groupby(records, lambda item: _document_of(_document_id(item[1], item[0]))):
            yield _joined(doc_id, list(group))


def _joined(doc_id: str, group: list[tuple[str, dict[str, Any]]]) -> Document:
    text, segments, previous = "", [], 0
    for where, record in group:
        piece = _string(record, _first_key(record, ("segment",), where), where)
        start = _overlap(text, piece, previous)
        if start == len(text) and text:
            text += "\n"
            start += 1
        text = text[:start] + piece
        segments.append(Segment(_document_id(record, where), Span(doc_id, start, start + len(piece))))
        previous = start
    where, first = group[0]
    return Document(doc_id, text, *_described(first, where), tuple(segments))


def _overlap(text: str, piece: str, previous: int) -> int:
    """Where `piece` begins in `text` so that the rest of `text` is a beginning of `piece`, else the end."""
    head = piece[:MINIMUM_OVERLAP]
    start = text.find(head, previous) if len(head) == MINIMUM_OVERLAP else -1
    while start >= 0:
        if piece.startswith(text[start:]):
            return start
        start = text.find(head, start + 1)
    return len(text)


def segment_spans(path: Path) -> Spans:
    """The offsets of MS MARCO V2.1 segments by document, from their `start_char` and `end_char`."""
    spans: Spans = {}
    for file in _jsonl_files(path):
        for number, record in json_lines(file):
            where = f"{file}:{number}"
            segment_id = _document_id(record, where)
            start, end = record.get("start_char"), record.get("end_char")
            if type(start) is not int or type(end) is not int or not 0 <= start <= end:
                raise UserError(f"{where}: expected offsets start_char <= end_char, found {start!r} and {end!r}")
            spans.setdefault(_document_of(segment_id), []).append((segment_id, start, end))
    return spans


def _with_segments(document: Document, spans: list[tuple[str, int, int]]) -> Document:
    for name, _, end in spans:
        if end > len(document.text):
            raise UserError(f"segment {name}: ends at {end}, but its document has {len(document.text)} characters")
    ordered = sorted(spans, key=lambda item: item[1])
    return replace(document, segments=tuple(Segment(name, Span(document.id, *span)) for name, *span in ordered))


def read_folder(path: Path) -> Iterator[Document]:
    """One document a text, Markdown or HTML file below a folder; its id is the relative path, URL-quoted."""
    files = _files(path, TEXT_SUFFIXES)
    if not files:
        raise UserError(f"{path}: holds no {', '.join(TEXT_SUFFIXES)} file")
    for file in files:
        with open_binary(file) as stream:
            raw = stream.read()
        try:
            text = raw.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise UserError(f"{file}: not UTF-8: {error.reason} at byte {error.start}") from error
        doc_id = relative_name(file, path)
        match file.suffix.lower():
            case ".html" | ".htm":
                title, headings, text = read_html(text)
            case ".txt":
                title, headings = "", []
            case _:
                headings = [_CLOSING_HASHES.sub("", found).strip() for found in _MARKDOWN_HEADING.findall(text)]
                title = headings[0] if headings else ""
        yield Document(doc_id, text, title or file.stem, headings="\n".join(headings))


def relative_name(file: Path, folder: Path) -> str:
    """The path of a file below a folder, URL-quoted, so that any name is an id."""
    return quote(os.fsencode(file.relative_to(folder).as_posix()))


def corpus_files(path: Path) -> list[Path]:
    """All files that a reader may open for a corpus."""
    return _files(path, JSONL_SUFFIXES + TEXT_SUFFIXES) if path.is_dir() else [path]


def _files(path: Path, suffixes: tuple[str, ...]) -> list[Path]:
    return sorted(file for file in path.rglob("*") if file.name.lower().endswith(suffixes) and file.is_file())


def _jsonl_files(path: Path) -> list[Path]:
    return _files(path, JSONL_SUFFIXES) if path.is_dir() else [path]


def _first_key(record: dict[str, Any], keys: tuple[str, ...], where: str) -> str:
    for key in keys:
        if key in record:
            return key
    raise UserError(f"{where}: expected one of the keys {', '.join(keys)}, found {', '.join(record) or 'none'}")


def _document_id(record: dict[str, Any], where: str) -> str:
    key = _first_key(record, ID_KEYS, where)
    found = record[key]
    name = str(found) if isinstance(found, int) and not isinstance(found, bool) else found
    if not isinstance(name, str) or not is_id(name):
        raise UserError(f"{where}: {key}: expected an id without space, found {found!r}")
    return name


def _document_of(segment_id: str) -> str:
    return segment_id.rsplit("#", 1)[0]


def _string(record: dict[str, Any], key: str, where: str) -> str:
    found = record.get(key)
    if found is None:
        return ""
    if not isinstance(found, str):
        raise UserError(f"{where}: {key}: expected text, found {type(found).__name__}")
    return found


def _described(record: dict[str, Any], where: str) -> tuple[str, str, str]:
    headings = record.get("headings")
    if isinstance(headings, list):
        record = {**record, "headings": "\n".join(map(str, headings))}
    return _string(record, "title", where), _string(record, "url", where), _string(record, "headings", where)


READERS: dict[str, Callable[[Path], Iterator[Document]]] = {
    "jsonl": read_jsonl,
    "segments": read_segments,
    "folder": read_folder,
}
"""The corpus formats by name."""
