"""Judgments whose rows name their fields: with a header as in BEIR, in JSON lines, and in Parquet."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keystone.indexing.corpora.tables import find_form, read_rows
from keystone.indexing.errors import UserError
from keystone.indexing.io.columns import Layout, choose_delimiter, name_columns, read_columns
from keystone.indexing.io.fields import find_field, find_names
from keystone.indexing.io.json_values import parse_json
from keystone.indexing.io.reading import read_bytes

QUERY_NAMES = ("query_id", "qid", "q_id", "topic_id", "narrative_id", "request_id", "topic")
DOCUMENT_NAMES = ("corpus_id", "docno", "doc_id", "document_id", "document", "segment_id", "passage_id", "pid", "doc")
GRADE_NAMES = ("label", "relevance", "relevancy", "rel", "grade", "judgment", "judgement", "score")
SECOND_NAMES = ("iteration", "iter", "subtopic", "subtopic_id", "q0")
"""The names of the four columns of judgments; `keystone.indexing.io.fields` has the rule by which they are found."""

_LAYOUT = Layout(QUERY_NAMES, DOCUMENT_NAMES, (*GRADE_NAMES, *SECOND_NAMES), {}, "")
_FIRST_LINE = re.compile(rb"(?:\xef\xbb\xbf)?\s*([^\r\n]{0,1000})")
_GAPS = re.compile(r"[ \t]+")


def names_columns(line: str) -> bool:
    """Whether a first line of judgments names their columns."""
    if line.lstrip().startswith(("{", "[")):
        return True
    columns = line.strip().split(choose_delimiter(line)) if re.search("[\t,]", line) else line.split()
    found = name_columns([column.strip('" ') for column in columns], _LAYOUT)
    return len(columns) > 2 and found is not None and bool(find_names(found, (*DOCUMENT_NAMES, *GRADE_NAMES)))


def read_judgment_bytes(path: Path) -> NDArray[np.uint8]:
    """Read the bytes of a file of judgments in TREC's form, converted to it line by line if its rows name their fields.

    `UserError` with the place of a row that is no judgment.
    """
    if form := find_form(path):
        wanted = (*QUERY_NAMES, *DOCUMENT_NAMES, *GRADE_NAMES, *SECOND_NAMES)
        table = read_rows(path, form, wanted, DOCUMENT_NAMES)
        return _render(((row + 1, record) for row, _, record in table), lambda number: f"{path}: row {number - 1}")
    data = read_bytes(path)
    first = _FIRST_LINE.match(data[:2000].tobytes())
    line = first[1].decode(errors="replace") if first else ""
    if not names_columns(line):
        return data
    numbered = _list_lines(path, data.tobytes())
    if line.startswith("["):
        return _render(_read_array(path, numbered), lambda number: f"{path}: object {number}")
    rows = _read_json(path, numbered) if line.startswith("{") else _read_header(path, numbered, line)
    return _render(rows, lambda number: f"{path}:{number}")


def _list_lines(path: Path, content: bytes) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        try:
            yield number, line.decode().rstrip("\r")
        except UnicodeDecodeError as error:
            reason = f"{error.reason} at byte {error.start} of the line"
            raise UserError(f"{path}:{number}: not UTF-8: {reason}") from error


def _read_json(path: Path, numbered: Iterable[tuple[int, str]]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, line in numbered:
        if line.strip():
            record = _parse(path, number, line)
            if not isinstance(record, dict):
                raise UserError(f"{path}:{number}: expected a JSON object, found {type(record).__name__}")
            yield number, record


def _read_array(path: Path, numbered: Iterable[tuple[int, str]]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """The objects of a file that is one JSON array, with their numbers instead of those of lines."""
    for number, record in enumerate(_parse(path, 1, "\n".join(line for _, line in numbered)), 1):
        if not isinstance(record, dict):
            raise UserError(f"{path}: object {number}: expected a JSON object, found {type(record).__name__}")
        yield number, record


def _parse(path: Path, number: int, text: str) -> Any:
    try:
        return parse_json(text)
    except ValueError as error:
        raise UserError(f"{path}:{number}: not JSON: {error}") from error


def _read_header(
    path: Path, numbered: Iterable[tuple[int, str]], header: str
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    if not re.search("[\t,]", header):
        numbered = ((number, _GAPS.sub("\t", line.strip())) for number, line in numbered)
    return read_columns(path, numbered, _LAYOUT)


def _render(rows: Iterable[tuple[int, Mapping[str, Any]]], place: Callable[[int], str]) -> NDArray[np.uint8]:
    """Render each row in the line of its number, so that lines keep their numbers."""
    lines: list[bytes] = []
    for number, record in rows:
        names = (QUERY_NAMES, SECOND_NAMES, DOCUMENT_NAMES, GRADE_NAMES)
        query, second, doc, grade = (_spell(record.get(find_field(record, own) or "")) for own in names)
        columns = (query, second or "0", doc, grade)
        if not all(len(column.split()) == 1 for column in columns) or query.startswith("#"):
            found = ", ".join(map(str, record.values()))
            raise UserError(f"{place(number)}: expected query-id, corpus-id and score, found {found!r}")
        lines += [b""] * (number - len(lines) - 1)
        lines.append("\t".join(columns).encode("utf-8", "surrogatepass"))
    return np.frombuffer(b"\n".join(lines) + b"\n", np.uint8)


def _spell(value: Any) -> str:
    """A value as it stands in a column; empty for null, lists and objects."""
    return str(value).strip() if isinstance(value, str | int | float) else ""
