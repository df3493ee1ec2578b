"""The compiled loop that finds rows in bytes. Each line ends with LF; `runs/trec/rows.py` defines the format."""

import numpy as np

from keystone.runs.trec.arrays import Bytes, Floats, Ints
from keystone.runs.trec.doc_ids import load_eight_bytes
from keystone.runs.trec.kernels import kernel

RUN_COLUMNS, QRELS_COLUMNS = 6, 4
"""The number of columns in a run and in qrels. In a run, all text from the sixth column on is the tag."""

Filled = tuple[Ints, Ints, Floats, Ints, Ints, Ints]
"""What `scan_lines` fills: starts and ends of documents, values, numbers, blocks, and the tag."""

SPACE, TAB, LF, CR, HASH, PLUS, MINUS, POINT, ZERO = b" \t\n\r#+-.0"
POWERS_OF_TEN = np.array([float(10**power) for power in range(23)])
"""The powers of ten that float64 holds exactly."""


@kernel
def _find_token_end(data: Bytes, at: int) -> int:
    """Find the end of the token at a place: the first byte that is a space or below. Each line has one."""
    while data[at] > SPACE:
        at += 1
    return at


@kernel
def find_tokens_before(data: Bytes, starts: Ints, firsts: Ints, ends: Ints) -> None:
    """Find the token before each token that begins at `starts`, in the same line: its first byte and its end."""
    for row in range(len(starts)):
        at = starts[row] - 1
        while data[at] <= SPACE:
            at -= 1
        ends[row] = at + 1
        while data[at] > SPACE:
            at -= 1
        firsts[row] = at + 1


@kernel
def _skip_gap(data: Bytes, at: int) -> int:
    while data[at] == SPACE or data[at] == TAB:
        at += 1
    return at


@kernel
def _find_next_line(data: Bytes, at: int) -> int:
    """Find the beginning of the next line if this one ends at a place, else -1."""
    while data[at] == CR:
        at += 1
    return at + 1 if data[at] == LF else -1


@kernel
def _parse_number(data: Bytes, at: int, powers: Floats) -> tuple[float, int, bool]:
    """Parse the decimal number at a place: its value, its end, and whether the value is exact.

    The end is -1 if the place holds no number. A mantissa below 2**53, times or over an exact power of ten, is
    rounded once and hence correctly (Clinger, PLDI 1990). Up to 19 digits over such a power are nearly always exact,
    too. The caller parses the other values.
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
        return 0.0, -1, False
    if point >= 0:
        exponent = point - digits
    if data[at] == 69 or data[at] == 101:  # E, e
        at += 1
        below = data[at] == MINUS
        if below or data[at] == PLUS:
            at += 1
        start, power = at, 0
        while ZERO <= data[at] <= ZERO + 9:
            power = min(10 * power + int(np.int64(data[at])) - ZERO, 1_000_000)
            at += 1
        if at == start:
            return 0.0, -1, False
        exponent += -power if below else power
    if kept == 0:
        return -0.0 if negative else 0.0, at, True
    if kept > 19 or not -22 <= exponent <= 22:
        return 0.0, at, False
    value, exact = float(mantissa), True
    if mantissa <= np.uint64(1 << 53):
        value = value * powers[exponent] if exponent >= 0 else value / powers[-exponent]
    elif exponent < 0:
        value, exact = _divide_by_power(mantissa, powers[-exponent])
    else:
        exact = exponent == 0
    return -value if negative else value, at, exact


@kernel
def _divide_by_power(mantissa: np.uint64, power: float) -> tuple[float, bool]:
    """Divide a long mantissa by a power of ten. Returns the quotient, and whether it is surely rounded correctly.

    The remainder, which is exact, corrects the quotient of the rounded mantissa (the product by Dekker, Numerische
    Mathematik 1971). The correction has 52 good bits. If 40 of them give the same quotient, it is correct.
    """
    high = float(mantissa)
    low = float(np.int64(mantissa - np.uint64(high)))
    quotient = high / power
    product = quotient * power
    split = 134217729.0 * quotient
    q_high = split - (split - quotient)
    q_low = quotient - q_high
    split = 134217729.0 * power
    p_high = split - (split - power)
    p_low = power - p_high
    error = q_low * p_low - (((product - q_high * p_high) - q_low * p_high) - q_high * p_low)
    correction = ((high - product) - error + low) / power
    value = quotient + correction
    above, below = quotient + correction * (1 + 2.0**-40), quotient + correction * (1 - 2.0**-40)
    return value, above == below


@kernel
def scan_lines(
    data: Bytes, first: int, last: int, columns: int, powers: Floats, filled: Filled
) -> tuple[int, int, int, int]:
    """Fill the columns from the lines of `data[first:last]`. Returns three counts, and the line of an error or -1.

    The counts are those of rows, of blocks and of numbers. A block (first row, start and end of the query id) stands
    for adjacent rows of one query. `numbers` (row, start, end) are those that this loop does not parse exactly.
    """
    starts, ends, values, numbers, blocks, tag = filled
    row, block, hard = 0, 0, 0
    query, query_end = 0, 0
    at = first
    while at < last:
        line = at
        at = _skip_gap(data, at)
        if data[at] == HASH:
            while data[at] != LF:
                at += 1
        following = _find_next_line(data, at)
        if following >= 0:
            at = following
            continue

        end, i = at, query
        while i < query_end and data[end] == data[i]:
            end += 1
            i += 1
        same = i == query_end and data[end] <= SPACE and row > 0
        if not same:
            end = _find_token_end(data, end)
        query, query_end, at = at, end, _skip_gap(data, end)
        if not same:
            blocks[block, 0], blocks[block, 1], blocks[block, 2] = row, query, query_end
            block += 1

        end = _find_token_end(data, at)
        second = end > at > query_end
        at = _skip_gap(data, end)

        starts[row] = at
        while at + 8 <= len(data):
            eight = load_eight_bytes(data, at)
            low = (eight - np.uint64(0x2121212121212121)) & ~eight & np.uint64(0x8080808080808080)
            if low != np.uint64(0):
                break
            at += 8
        end = _find_token_end(data, at)
        ends[row] = end
        third = end > starts[row] > 0
        at = _skip_gap(data, end)
        gap = at > end
        if columns == RUN_COLUMNS:
            rank_end = _find_token_end(data, at)
            third = third and gap and rank_end > at
            at = _skip_gap(data, rank_end)
            gap = at > rank_end
        if not (second and third and gap):
            return row, block, hard, line

        value, end, exact = _parse_number(data, at, powers)
        if end < 0 or data[end] > SPACE:
            return row, block, hard, line
        values[row] = value
        if columns == QRELS_COLUMNS:
            if not (exact and value == np.floor(value) and abs(value) < 2.0**53):
                return row, block, hard, line
            at = _skip_gap(data, end)
        else:
            if not exact:
                numbers[hard, 0], numbers[hard, 1], numbers[hard, 2] = row, at, end
                hard += 1
            at = _skip_gap(data, end)
            start = at
            end = _find_token_end(data, at)
            if end == at:
                return row, block, hard, line
            at = end
            while data[at] > SPACE or data[at] == SPACE or data[at] == TAB:
                if data[at] > SPACE:
                    end = at + 1
                at += 1
            if row == 0:
                tag[0], tag[1] = start, end
        following = _find_next_line(data, at)
        if following < 0:
            return row, block, hard, line
        row += 1
        at = following
    return row, block, hard, -1
