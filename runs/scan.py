"""Reading the rows of run and qrels files: columns found, numbers read exactly, the first broken line named.

Columns are separated by spaces and tabs. A line that is blank or begins with `#` is skipped, at any place (ids
of MS MARCO segments hold `#`, so it opens a comment only there). Lines end with LF or CRLF.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from indexing.errors import UserError
from indexing.files import read_bytes
from runs.kernels import kernel
from runs.names import Names, word

RUN, QRELS = 6, 4
"""The number of columns of a run (what follows the sixth belongs to the tag) and of qrels."""

SPACE, TAB, LF, CR, HASH, PLUS, MINUS, POINT, ZERO = b" \t\n\r#+-.0"
POWERS = np.array([float(10**power) for power in range(23)])
"""The powers of ten that float64 holds exactly."""


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """The rows of a file by query: query i owns the rows `offsets[i]:offsets[i + 1]`, in the order of the file.

    Queries are in the order of their first rows; `values` are scores or grades; `tag` is that of the first row.
    """

    query_ids: tuple[str, ...]
    offsets: NDArray[np.int64]
    docs: Names
    values: NDArray[np.float64]
    tag: str

    def line(self, row: int) -> int:
        """The number of the line that a row stands on."""
        return _line(self.docs.data, self.docs.starts[row])


def read_rows(path: Path, columns: int) -> Rows:
    """The rows of a run (`columns` is `RUN`, values are scores) or of judgments (`QRELS`, values are grades).

    Raises `UserError` with file and line for a wrong number of columns, a score that is not a finite decimal
    number, a grade that is not a whole number, a control character, and bytes that are not UTF-8.
    """
    data = read_bytes(path)
    if data[:3].tobytes() == b"\xef\xbb\xbf":
        data = data[3:]
    if data[-1:].tobytes() != b"\n":
        data = np.append(data, np.uint8(LF))
        data.flags.writeable = False
    _check_utf8(path, data)
    size = len(data) // (2 * columns) + 1  # a column takes two bytes at least
    starts, ends, values = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size)
    numbers, blocks, tag = np.empty((size, 3), np.int64), np.empty((size, 3), np.int64), np.zeros(2, np.int64)
    count, found, hard, broken = _scan(data, columns, POWERS, starts, ends, values, numbers, blocks, tag)
    for row, start, end in numbers[:hard].tolist():
        values[row] = float(data[start:end].tobytes())
        if not np.isfinite(values[row]):
            broken = start
            break
    if broken >= 0:
        raise UserError(f"{path}:{_line(data, broken)}: {_reason(_line_at(data, broken), columns)}")
    names = [data[start:end].tobytes().decode() for _, start, end in blocks[:found].tolist()]
    rows = Rows(
        tuple(names),
        np.append(blocks[:found, 0], count),
        Names(data, starts[:count], ends[:count]),
        values[:count],
        data[tag[0] : tag[1]].tobytes().decode(),
    )
    return rows if len(set(names)) == len(names) else _regrouped(rows)


def _regrouped(rows: Rows) -> Rows:
    """Rows of one query brought together where other queries stand between them."""
    number = {name: i for i, name in enumerate(dict.fromkeys(rows.query_ids))}
    own = np.repeat([number[name] for name in rows.query_ids], np.diff(rows.offsets))
    order = np.argsort(own, kind="stable")
    offsets = np.append(0, np.cumsum(np.bincount(own, minlength=len(number))))
    return Rows(tuple(number), offsets, rows.docs[order], rows.values[order], rows.tag)


def _check_utf8(path: Path, data: NDArray[np.uint8]) -> None:
    if data.max() < 128:
        return
    content = data.tobytes()
    try:
        content.decode()
    except UnicodeDecodeError as error:
        place = error.start - content.rfind(b"\n", 0, error.start) - 1
        reason = f"not UTF-8: {error.reason} at byte {place} of the line"
        raise UserError(f"{path}:{_line(data, error.start)}: {reason}") from None


def _line(data: NDArray[np.uint8], place: int) -> int:
    return int(np.count_nonzero(data[:place] == LF)) + 1


def _line_at(data: NDArray[np.uint8], place: int) -> str:
    """The line around a place, without its end."""
    content = data.tobytes()
    line = content[content.rfind(b"\n", 0, place) + 1 : content.index(b"\n", place)]
    return line.decode().removesuffix("\r")


def _reason(line: str, columns: int) -> str:
    """Why `_scan` refused a line."""
    strange = re.search(r"[\x00-\x08\x0a-\x1f]", line)
    if strange:
        return f"holds the control character {strange[0]!r}"
    fields = re.findall(r"[^ \t]+", line)
    if columns == RUN:
        if len(fields) < RUN:
            return f"expected {RUN} columns, found {len(fields)}"
        return f"score: expected a finite number, found {fields[4]!r}"
    if len(fields) != QRELS:
        return f"expected {QRELS} columns, found {len(fields)}"
    return f"grade: expected a whole number, found {fields[3]!r}"


@kernel
def _token_end(data: NDArray[np.uint8], at: int) -> int:
    """Where the token at a place ends: at the first byte that is a space or below; there is always one."""
    while data[at] > SPACE:
        at += 1
    return at


@kernel
def _gap_end(data: NDArray[np.uint8], at: int) -> int:
    while data[at] == SPACE or data[at] == TAB:
        at += 1
    return at


@kernel
def _at_end(data: NDArray[np.uint8], at: int) -> bool:
    return bool(data[at] == LF or (data[at] == CR and data[at + 1] == LF))


@kernel
def _number(data: NDArray[np.uint8], at: int, powers: NDArray[np.float64]) -> tuple[float, int, bool, bool]:
    """A decimal number at a place: its value, its end, whether the value is exact, whether it is an integer.

    The end is -1 where there is no number. A mantissa below 2**53 times or over an exact power of ten is rounded
    once, hence correctly (Clinger, PLDI 1990); any other value is left to the caller.
    """
    negative = bool(data[at] == MINUS)
    if negative or data[at] == PLUS:
        at += 1
    mantissa, exponent, digits, kept = np.uint64(0), 0, 0, 0
    point = -1
    while True:
        digit = np.uint64(data[at]) - np.uint64(ZERO)
        if digit <= np.uint64(9):
            digits += 1
            if mantissa != np.uint64(0) or digit != np.uint64(0):
                kept += 1
            mantissa = mantissa * np.uint64(10) + digit
        elif data[at] == POINT and point < 0:
            point = digits
        else:
            break
        at += 1
    if digits == 0:
        return 0.0, -1, False, False
    if point >= 0:
        exponent = point - digits
    integer = point < 0
    if data[at] == 69 or data[at] == 101:  # E, e
        integer = False
        at += 1
        below = data[at] == MINUS
        if below or data[at] == PLUS:
            at += 1
        start, power = at, 0
        while ZERO <= data[at] <= ZERO + 9:
            power = min(10 * power + int(np.int64(data[at])) - ZERO, 1_000_000)
            at += 1
        if at == start:
            return 0.0, -1, False, False
        exponent += -power if below else power
    small = bool(mantissa <= np.uint64(1 << 53))
    exact = kept == 0 or (kept <= 19 and small and -22 <= exponent <= 22)
    value = 0.0
    if exact and kept > 0:
        value = np.float64(mantissa)
        value = value * powers[exponent] if exponent >= 0 else value / powers[-exponent]
    return -value if negative else value, at, exact, integer


@kernel
def _scan(
    data: NDArray[np.uint8],
    columns: int,
    powers: NDArray[np.float64],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    values: NDArray[np.float64],
    numbers: NDArray[np.int64],
    blocks: NDArray[np.int64],
    tag: NDArray[np.int64],
) -> tuple[int, int, int, int]:
    """Fill the columns from lines that each end with LF; returns counts, and the place of an error, else -1.

    Counted are rows, blocks (first row and place of the query id, for rows of one query that stand together) and
    numbers (row and place, for those that are not read exactly here).
    """
    row, block, hard = 0, 0, 0
    query, query_end = 0, 0
    at = 0
    while at < len(data):
        line = at
        if data[at] == HASH:
            while data[at] != LF:
                at += 1
            at += 1
            continue
        at = _gap_end(data, at)
        if _at_end(data, at):
            at += 1 if data[at] == LF else 2
            continue

        end, i = at, query
        while i < query_end and data[end] == data[i]:
            end += 1
            i += 1
        same = i == query_end and data[end] <= SPACE and row > 0
        if not same:
            end = _token_end(data, end)
        query, query_end, at = at, end, _gap_end(data, end)
        if not same:
            blocks[block, 0], blocks[block, 1], blocks[block, 2] = row, query, query_end
            block += 1

        end = _token_end(data, at)
        second = end > at > query_end
        at = _gap_end(data, end)

        starts[row] = at
        while at + 8 <= len(data):
            eight = word(data, at)
            low = (eight - np.uint64(0x2121212121212121)) & ~eight & np.uint64(0x8080808080808080)
            if low != np.uint64(0):
                break
            at += 8
        end = _token_end(data, at)
        ends[row] = end
        third = end > starts[row] > 0
        at = _gap_end(data, end)
        gap = at > end
        if columns == RUN:
            rank_end = _token_end(data, at)
            third = third and gap and rank_end > at
            at = _gap_end(data, rank_end)
            gap = at > rank_end
        if not (second and third and gap):
            return row, block, hard, line

        value, end, exact, integer = _number(data, at, powers)
        if end < 0 or data[end] > SPACE:
            return row, block, hard, line
        values[row] = value
        if columns == QRELS:
            if not (exact and integer):
                return row, block, hard, line
            at = _gap_end(data, end)
        else:
            if not exact:
                numbers[hard, 0], numbers[hard, 1], numbers[hard, 2] = row, at, end
                hard += 1
            at = _gap_end(data, end)
            start = at
            end = _token_end(data, at)
            if end == at:
                return row, block, hard, line
            at = end
            while data[at] > SPACE or data[at] == SPACE or data[at] == TAB:
                if data[at] > SPACE:
                    end = at + 1
                at += 1
            if row == 0:
                tag[0], tag[1] = start, end
        if not _at_end(data, at):
            return row, block, hard, line
        row += 1
        at += 1 if data[at] == LF else 2
    return row, block, hard, -1
