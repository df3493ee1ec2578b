"""Reader of the rows of run and qrels files. An error names the first broken line.

Spaces and tabs separate columns, and LF or CRLF ends a line. The reader skips blank lines, and lines whose first
column begins with `#`. A `#` elsewhere opens no comment, because ids of MS MARCO segments contain it.
"""

import codecs
import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from keystone.indexing.errors import UserError
from keystone.indexing.io.reading import read_bytes
from keystone.retrieval.types import offsets_of
from keystone.runs.trec.arrays import Bytes, Floats, Ints
from keystone.runs.trec.collections import read_qrels_bytes
from keystone.runs.trec.doc_ids import Ids
from keystone.runs.trec.kernels import THREADS, map_in_threads
from keystone.runs.trec.scan import LF, POWERS_OF_TEN, QRELS_COLUMNS, RUN_COLUMNS, find_tokens_before, scan_lines
from keystone.runs.trec.types import Run

CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f]")
"""Control characters that no line may contain."""
_NO_ROW = re.compile(rb"[ \t\r]*(?:#|$)")
_SIX_COLUMNS = re.compile(rb"(?:[ \t\r]*(?:#[^\n]*)?\n)*[ \t]*(?:[^ \t\r\n]+[ \t]+){5}[^ \t\r\n]")
_WITH_CONFIDENCE = re.compile(
    rb"[ \t]*(([^ \t\r]+)[ \t]+[^ \t\r]+[ \t]+[^ \t\r]+[ \t]+([0-4]))[ \t]+[0-4][ \t]+[^ \t\r]+[ \t\r]*"
)
"""A judgment with confidence and run id: the first four columns, the topic and the grade."""
PIECE_BYTES = 1 << 20
"""The number of bytes from which a second thread saves time. Few lines are longer."""


@dataclass(frozen=True, slots=True, eq=False)
class _Piece:
    """The rows of some lines. A block (first row, start and end of the query id) is a sequence of a query's rows."""

    starts: Ints
    ends: Ints
    values: Floats
    blocks: Ints
    tag: Ints
    broken: int


def read_rows(path: Path, columns: int) -> Run:
    """Read the rows of a run (`columns` is `RUN_COLUMNS`), or of judgments (`QRELS_COLUMNS`), whose scores are grades.

    Rows are in the order of the file, and queries in that of their first rows. The tag is that of the first row.

    `UserError` names file and line of the first fault. Faults are a wrong number of columns, a score that is no
    finite decimal number, and a grade that is no whole number. So are a control character, a byte order mark inside
    the file, and bytes that are not UTF-8.
    """
    data = read_qrels_bytes(path) if columns == QRELS_COLUMNS else read_bytes(path)
    if data[:3].tobytes() == codecs.BOM_UTF8:
        data = data[3:]
    if data[-1:].tobytes() != b"\n":
        data = np.append(data, np.uint8(LF))
        data.flags.writeable = False
    _check_utf8(path, data)
    if columns == QRELS_COLUMNS:
        data = _drop_confidence(data)
    pieces = map_in_threads(lambda bounds: _read_piece(data, *bounds, columns), list(pairwise(_find_cuts(data))))
    broken = next((piece.broken for piece in pieces if piece.broken >= 0), -1)
    if broken >= 0:
        raise UserError(f"{path}:{_count_line(data, broken)}: {_explain_refusal(_read_line(data, broken), columns)}")
    rows = _join_pieces(data, pieces)
    for query_id, first in zip(rows.query_ids, rows.offsets.tolist(), strict=False):
        if query_id.startswith("\ufeff"):
            raise UserError(f"{path}:{find_line(rows.docs, first)}: holds a byte order mark inside the file")
    return rows


def _drop_confidence(data: Bytes) -> Bytes:
    """Drop the fifth and the sixth column of judgments with confidence and run id, as in TREC RAG 2025.

    All their grades and confidences are 0 to 4, and a topic has a grade twice. A run with its ranks is no such file: it
    stays as it is, and is refused later.
    """
    if not _SIX_COLUMNS.match(data[:PIECE_BYTES].tobytes()):
        return data
    lines = data.tobytes().split(b"\n")
    found = [(number, _WITH_CONFIDENCE.fullmatch(line)) for number, line in enumerate(lines) if not _NO_ROW.match(line)]
    grades = [(row[2], row[3]) for _, row in found if row]
    if len(grades) < len(found) or len(set(grades)) == len(grades):
        return data
    for number, row in found:
        lines[number] = row[1] if row else b""
    return np.frombuffer(b"\n".join(lines), np.uint8)


def _find_cuts(data: Bytes) -> list[int]:
    """Find the places between lines where threads divide the bytes."""
    count = max(min(THREADS, len(data) // PIECE_BYTES), 1)
    cuts = [0]
    for place in (len(data) * piece // count for piece in range(1, count)):
        ends = np.flatnonzero(data[place : place + PIECE_BYTES] == LF)
        cuts += [place + int(ends[0]) + 1] if ends.size else []
    return [*cuts, len(data)]


def _read_piece(data: Bytes, first: int, last: int, columns: int) -> _Piece:
    size = (last - first) // (2 * columns) + 1  # a column takes two bytes at least
    starts, ends, values = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size)
    numbers, blocks, tag = np.empty((size, 3), np.int64), np.empty((size, 3), np.int64), np.zeros(2, np.int64)
    filled = (starts, ends, values, numbers, blocks, tag)
    count, found, hard, broken = scan_lines(data, first, last, columns, POWERS_OF_TEN, filled)
    for row, start, end in numbers[:hard].tolist():
        values[row] = float(data[start:end].tobytes())
        if not np.isfinite(values[row]):
            broken = start
            break
    return _Piece(starts[:count], ends[:count], values[:count], blocks[:found], tag, broken)


def _join_pieces(data: Bytes, pieces: list[_Piece]) -> Run:
    """Join the rows of all pieces, grouped by query."""
    counts = offsets_of([len(piece.values) for piece in pieces])
    places = np.concatenate([piece.blocks[:, 1:] for piece in pieces]).tolist()
    names = [data[start:end].tobytes().decode() for start, end in places]
    new = [i for i, name in enumerate(names) if i == 0 or name != names[i - 1]]
    firsts = np.concatenate([piece.blocks[:, 0] + count for piece, count in zip(pieces, counts, strict=False)])[new]
    query_ids = [names[i] for i in new]
    starts, ends, values = (pieces[0].starts, pieces[0].ends, pieces[0].values)
    if len(pieces) > 1:
        starts = np.concatenate([piece.starts for piece in pieces])
        ends = np.concatenate([piece.ends for piece in pieces])
        values = np.concatenate([piece.values for piece in pieces])
    tag = next((piece.tag for piece in pieces if len(piece.values)), pieces[0].tag)
    rows = Run(
        data[tag[0] : tag[1]].tobytes().decode(),
        tuple(query_ids),
        np.append(firsts, counts[-1]),
        Ids(data, starts, ends),
        values,
    )
    return rows if len(set(query_ids)) == len(query_ids) else _regroup(rows)


def _regroup(rows: Run) -> Run:
    """Group the rows of each query, if rows of other queries stand between them."""
    number = {name: i for i, name in enumerate(dict.fromkeys(rows.query_ids))}
    own = np.repeat([number[name] for name in rows.query_ids], np.diff(rows.offsets))
    order = np.argsort(own, kind="stable")
    offsets = offsets_of(np.bincount(own, minlength=len(number)))
    return Run(rows.tag, tuple(number), offsets, rows.docs[order], rows.scores[order])


def _check_utf8(path: Path, data: Bytes) -> None:
    if data.max() < 128:
        return
    content = data.tobytes()
    try:
        content.decode()
    except UnicodeDecodeError as error:
        place = error.start - content.rfind(b"\n", 0, error.start) - 1
        reason = f"not UTF-8: {error.reason} at byte {place} of the line"
        raise UserError(f"{path}:{_count_line(data, error.start)}: {reason}") from None


def find_line(docs: Ids, row: int) -> int:
    """Find the number of the line in a file, from 1, that holds the document of a row."""
    return _count_line(docs.data, int(docs.starts[row]))


def find_second_column(docs: Ids) -> Ids:
    """Find the second column, which precedes the documents: in judgments, the subtopic or the judge."""
    firsts, ends = np.empty_like(docs.starts), np.empty_like(docs.starts)
    find_tokens_before(docs.data, docs.starts, firsts, ends)
    return Ids(docs.data, firsts, ends)


def _count_line(data: Bytes, place: int) -> int:
    return int(np.count_nonzero(data[:place] == LF)) + 1


def _read_line(data: Bytes, place: int) -> str:
    """Read the line around a place, without its line end."""
    content = data.tobytes()
    line = content[content.rfind(b"\n", 0, place) + 1 : content.index(b"\n", place)]
    return line.decode().rstrip("\r")


def split_columns(line: str) -> list[str]:
    """Split a line into columns at spaces and tabs, but not at other white space of Unicode."""
    return re.findall(r"[^ \t]+", line)


def _explain_refusal(line: str, columns: int) -> str:
    """Explain why `scan_lines` refused a line."""
    if control := CONTROL.search(line):
        return f"holds the control character {control[0]!r}"
    fields = split_columns(line)
    if line.lstrip(" \t").startswith("{"):
        return f"found a JSON object, expected {columns} columns between spaces or tabs"
    if columns == RUN_COLUMNS:
        if len(fields) < RUN_COLUMNS:
            return f"expected {RUN_COLUMNS} columns, found {len(fields)}"
        return f"score: expected a finite number, found {fields[4]!r}"
    if len(fields) != QRELS_COLUMNS:
        return f"expected {QRELS_COLUMNS} columns, found {len(fields)}"
    bounds = " between -2^53 and 2^53" if re.fullmatch(r"[+-]?\d+", fields[3]) else ""
    return f"grade: expected a whole number{bounds}, found {fields[3]!r}"
