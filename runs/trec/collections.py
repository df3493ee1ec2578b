"""Topics and judgments of test collections that are no file in TREC form: folders of BEIR, data sets of ir_datasets.

Folders of BEIR hold `queries.jsonl`, and judgments as `qrels/SPLIT.tsv`. An argument `FOLDER:SPLIT` names the split. A
data set of ir_datasets is named by its id, such as `ir_datasets:beir/scifact/test`.
"""

import codecs
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from keystone.indexing.corpora.folders import strip_compression
from keystone.indexing.corpora.ir_datasets import dataset_id, read_records
from keystone.indexing.corpora.tables import find_form, read_rows
from keystone.indexing.errors import UserError
from keystone.indexing.io.columns import Layout, choose_delimiter, name_columns, read_columns
from keystone.indexing.io.fields import find_field, find_names
from keystone.indexing.io.json_values import parse_json
from keystone.indexing.io.reading import read_bytes, read_json_lines
from keystone.indexing.types import describe_id, is_id
from keystone.runs.trec.arrays import Bytes

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
    columns = line.strip().split(choose_delimiter(line)) if re.search("[\t,;]", line) else line.split()
    found = name_columns([column.strip('" ') for column in columns], _LAYOUT)
    known = find_names(found or (), (*QUERY_NAMES, *DOCUMENT_NAMES, *GRADE_NAMES))
    return len(columns) > 2 and len(known) > 1


def read_judgment_bytes(path: Path) -> Bytes:
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
    rows: Iterable[tuple[int, Mapping[str, Any]]]
    if line.startswith("{"):
        rows = read_json_lines(path, numbered=numbered)
    elif re.search("[\t,;]", line):
        rows = read_columns(path, numbered, _LAYOUT)
    else:
        rows = read_columns(path, ((number, _GAPS.sub("\t", own.strip())) for number, own in numbered), _LAYOUT)
    return _render(rows, lambda number: f"{path}:{number}")


def _list_lines(path: Path, content: bytes) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        try:
            yield number, line.decode().rstrip("\r")
        except UnicodeDecodeError as error:
            reason = f"{error.reason} at byte {error.start} of the line"
            raise UserError(f"{path}:{number}: not UTF-8: {reason}") from error


def _read_array(path: Path, numbered: Iterable[tuple[int, str]]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yield the objects of a file that is one JSON array, with their numbers in place of line numbers."""
    try:
        records = parse_json("\n".join(line for _, line in numbered))
    except ValueError as error:
        raise UserError(f"{path}:1: not JSON: {error}") from error
    for number, record in enumerate(records, 1):
        if not isinstance(record, dict):
            raise UserError(f"{path}: object {number}: expected a JSON object, found {type(record).__name__}")
        yield number, record


def _render(rows: Iterable[tuple[int, Mapping[str, Any]]], place: Callable[[int], str]) -> Bytes:
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
    """Spell a value for a column; empty for null, lists and objects."""
    return str(value).strip() if isinstance(value, str | int | float) else ""


LONGER_TEXTS = ("description", "narrative")
"""The fields that a narrative has besides the text that the package makes for search."""


def is_data_set(path: Path) -> bool:
    """Whether an argument names a data set of the package."""
    return dataset_id(path) is not None


def read_queries(path: Path) -> Iterator[tuple[int, Any, str, Mapping[str, Any]]]:
    """Yield number, id, narrative and all fields of each query of a data set.

    `UserError` if the package cannot load the data set, or if that has no queries.
    """
    for number, query in enumerate(read_records(path, "queries"), 1):
        yield number, query.query_id, make_narrative(query), _encode(query)


def _encode(value: Any) -> Any:
    """Turn a value of the package into JSON. Records, such as the subtopics of a query, become objects."""
    if hasattr(value, "_asdict"):
        return {key: _encode(own) for key, own in value._asdict().items()}
    return [_encode(own) for own in value] if isinstance(value, list | tuple) else value


def make_narrative(query: Any) -> str:
    """Make the narrative of a query: its `default_text()`, then its description and its narrative, as paragraphs."""
    text = query.default_text() if hasattr(query, "default_text") else getattr(query, "text", None)
    texts = [text, *(getattr(query, name, None) for name in LONGER_TEXTS)]
    return "\n\n".join(dict.fromkeys(one.strip() for one in texts if isinstance(one, str) and one.strip()))


def render_qrels(path: Path) -> Bytes:
    """Render the judgments of a data set as rows in TREC form: uint8[bytes].

    The second column is the subtopic or the iteration, or 0 if the data set has neither. `UserError` if the package
    cannot load the data set, if that has no judgments, and for an id with a space.
    """
    rows = bytearray()
    for number, one in enumerate(read_records(path, "qrels"), 1):
        subtopic = getattr(one, "subtopic_id", None) or getattr(one, "iteration", None) or "0"
        columns = [str(part) for part in (one.query_id, subtopic, one.doc_id, one.relevance)]
        bad = next((column for column in columns if not is_id(column)), None)
        if bad is not None or columns[0].startswith("#"):
            expected = "no # at the beginning" if bad is None else describe_id(bad)
            raise UserError(f"{path}: judgment {number}: expected {expected}, found {' '.join(columns)!r}")
        rows += " ".join(columns).encode() + b"\n"
    return np.frombuffer(bytes(rows), np.uint8)


DEFAULT_SPLIT = "test"
ENDINGS = ("jsonl", "parquet", "tsv", "csv")
"""The endings of the files of a folder, without that of a compression."""
JUDGMENTS = ("qrels", "data")
"""The folders of judgments."""
_PART = re.compile(rf"(.+?)(?:-[0-9]+-of-[0-9]+)?\.(?:{'|'.join(ENDINGS)})")


def find_folder(path: Path) -> tuple[Path, str] | None:
    """Find the folder and the split that an argument `FOLDER` or `FOLDER:SPLIT` names.

    The split is empty if the argument names none. The result is None if the argument names no folder.
    """
    if is_data_set(path):
        return None
    with suppress(OSError):
        if path.is_dir():
            return path, ""
        folder, colon, split = str(path).rpartition(":")
        if colon and split and not path.exists() and Path(folder).is_dir():
            return Path(folder), split
    return None


def find_queries(folder: Path) -> list[Path]:
    """Find the files of the queries of a folder. `UserError` if it is no folder of BEIR."""
    found = _find_part(folder, "queries") or _find_part(folder / "queries", "queries")
    if not found:
        raise UserError(f"{folder}: is a folder without queries.jsonl, expected a file of topics or a folder of BEIR")
    return found


def find_qrels(folder: Path, split: str) -> Path:
    """Find the judgments of a split; without a name it is `test`. `UserError` if the folder has none of that name."""
    name = split or DEFAULT_SPLIT
    found = [file for inner in JUDGMENTS for file in _find_part(folder / inner, name)]
    if len(found) != 1:
        names = (strip_compression(file) for inner in JUDGMENTS for file in _list_files(folder / inner))
        splits = sorted({part[1] for part in map(_PART.fullmatch, names) if part} - {name})
        expected = " or ".join(f"{folder}:{one}" for one in splits) or "a file of judgments or a folder of BEIR"
        held = f"has {len(found)} files of qrels/{name}" if found else f"has no qrels/{name}.tsv"
        raise UserError(f"{folder}: {held}, expected {expected if not found else 'one'}")
    return found[0]


def read_judged_ids(folder: Path, split: str) -> set[str] | None:
    """Read the ids of the queries that a split judges; None if the folder has no judgments and no split is named."""
    if not split and not any((folder / inner).is_dir() for inner in JUDGMENTS):
        return None
    path = find_qrels(folder, split)
    rows = read_judgment_bytes(path).tobytes().removeprefix(codecs.BOM_UTF8).splitlines()
    return {row.split(maxsplit=1)[0].decode(errors="replace") for row in rows if row.strip()}


def _find_part(folder: Path, name: str) -> list[Path]:
    """Find the files of a part of a data set: `NAME.jsonl`, or its shards `NAME-00000-of-00002.parquet`."""
    found = ((file, _PART.fullmatch(strip_compression(file))) for file in _list_files(folder))
    return [file for file, part in found if part and part[1] == name.lower()]


def _list_files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def find_qrels_file(path: Path) -> Path:
    """Find the file of judgments that an argument names: `qrels/SPLIT.tsv` for a folder of BEIR, else the argument."""
    folder = find_folder(path)
    return find_qrels(*folder) if folder else path


def read_qrels_bytes(path: Path) -> Bytes:
    """Read judgments as rows in TREC form, each on the line of its file: uint8[bytes]. `UserError` for bad ones."""
    return render_qrels(path) if is_data_set(path) else read_judgment_bytes(path)
