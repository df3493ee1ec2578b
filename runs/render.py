"""Writing the rows of run files: scores with as few digits as float32 needs, straight into bytes."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runs.kernels import kernel
from runs.names import Names, names_of, word

DIGITS = 9
"""Decimal digits that tell any two float32 apart."""
MIDDLE = 60
POWERS = np.array([float(f"1e{power}") for power in range(-MIDDLE, MIDDLE + 1)])
"""Powers of ten around 1, each rounded to float64 once."""
HALVES = np.array([2.0 ** (max(exponent, 1) - 151) for exponent in range(255)])
"""Half the distance between neighbours, for every exponent of float32."""
SPACE, ZERO, POINT, MINUS, PLUS, E = b" 0.-+e"
ROW = 64
"""More bytes than a row needs beside its ids and its tag."""


def strictly_decreasing(
    scores: Sequence[float] | NDArray[np.floating[Any]], offsets: NDArray[np.int64] | None = None
) -> NDArray[np.float32]:
    """Scores (not increasing, finite) as float32, each below the one before by as little as float32 can hold.

    With `offsets` they decrease within each query, which owns the scores `offsets[i]:offsets[i + 1]`.
    `ValueError` for a score that float32 cannot hold.
    """
    with np.errstate(over="ignore"):
        values = np.asarray(scores, dtype=np.float64).astype(np.float32)
    finite = bool(np.isfinite(values).all())
    _decrease(values.view(np.int32), np.array([0, len(values)]) if offsets is None else offsets)
    if not finite or not np.isfinite(values).all():
        raise ValueError("a score is not finite in float32")
    return values


def render(
    query_ids: tuple[str, ...],
    offsets: NDArray[np.int64],
    docs: Names,
    scores: NDArray[np.float32],
    tag: str,
    room: NDArray[np.uint8] | None = None,
) -> memoryview:
    """The rows of a run file, ranks from 1; query i owns the rows `offsets[i]:offsets[i + 1]` of `docs` and `scores`.

    A score is the shortest decimal (at most 9 digits) that is read as the same float32, be it read as float32 or
    as float64 first. Scores are finite. The bytes lie in `room` where it is given and large enough.
    """
    queries = names_of([f"{query_id} Q0 " for query_id in query_ids])
    ending = names_of([f" {tag}\n", "padding "])
    size = int((queries.ends - queries.starts) @ np.diff(offsets) + (docs.ends - docs.starts).sum())
    size += len(docs) * (len(ending.data) + ROW)
    out = room if room is not None and len(room) >= size else np.empty(size, np.uint8)
    columns = (queries.data, queries.starts, queries.ends, offsets, docs.data, docs.starts, docs.ends)
    return out[
        : _render(*columns, scores, scores.view(np.int32), ending.data, ending.ends[0], POWERS, HALVES, out)
    ].data


@kernel
def _decrease(bits: NDArray[np.int32], offsets: NDArray[np.int64]) -> None:
    """Make float32 decrease strictly, in place; a step is the number of float32 between a value and zero."""
    for q in range(len(offsets) - 1):
        before = 1 << 32
        for i in range(offsets[q], offsets[q + 1]):
            step = int(np.int64(bits[i]))
            step = min(step if step >= 0 else -(step & 0x7FFFFFFF), before - 1)
            bits[i] = step if step >= 0 else -step - 0x80000000
            before = step


@kernel
def _render(
    queries: NDArray[np.uint8],
    query_starts: NDArray[np.int64],
    query_ends: NDArray[np.int64],
    offsets: NDArray[np.int64],
    docs: NDArray[np.uint8],
    doc_starts: NDArray[np.int64],
    doc_ends: NDArray[np.int64],
    scores: NDArray[np.float32],
    bits: NDArray[np.int32],
    ending: NDArray[np.uint8],
    ending_size: int,
    powers: NDArray[np.float64],
    halves: NDArray[np.float64],
    out: NDArray[np.uint8],
) -> int:
    at = 0
    for q in range(len(query_starts)):
        for row in range(offsets[q], offsets[q + 1]):
            at = _put(queries, query_starts[q], query_ends[q], out, at)
            at = _put(docs, doc_starts[row], doc_ends[row], out, at)
            out[at] = SPACE
            at = _put_integer(row - offsets[q] + 1, out, at + 1)
            out[at] = SPACE
            at = _put_score(float(scores[row]), int(bits[row]), powers, halves, out, at + 1)
            at = _put(ending, 0, ending_size, out, at)
    return at


@kernel
def _put(data: NDArray[np.uint8], start: int, end: int, out: NDArray[np.uint8], at: int) -> int:
    """Copy a piece in words of eight bytes, the last of which may go beyond it: the next piece is put over that."""
    after = at + end - start
    while start < end and start + 8 <= len(data):
        eight, place = word(data, start), np.uint64(at)
        for byte in range(8):  # one store, once compiled
            out[place + np.uint64(byte)] = np.uint8(eight >> np.uint64(8 * byte) & np.uint64(255))
        start += 8
        at += 8
    while start < end:
        out[at] = data[start]
        start += 1
        at += 1
    return after


@kernel
def _put_digits(value: np.uint64, out: NDArray[np.uint8], start: int, end: int) -> np.uint64:
    """Fill a stretch with the last digits of a value; returns what is left of it."""
    ten, hundred = np.uint64(10), np.uint64(100)
    while end - start >= 2:
        rest = value // hundred
        pair = value - hundred * rest
        tens = pair * np.uint64(103) >> ten  # a tenth of what is below 179
        out[np.uint64(end - 2)] = np.uint64(ZERO) + tens
        out[np.uint64(end - 1)] = np.uint64(ZERO) + pair - ten * tens
        value = rest
        end -= 2
    if end > start:
        rest = value // ten
        out[np.uint64(start)] = np.uint64(ZERO) + value - ten * rest
        value = rest
    return value


@kernel
def _put_integer(value: int, out: NDArray[np.uint8], at: int) -> int:
    end, limit = at + 1, 10
    while value >= limit:
        limit *= 10
        end += 1
    _put_digits(np.uint64(value), out, at, end)
    return end


@kernel
def _put_score(
    score: float, bits: int, powers: NDArray[np.float64], halves: NDArray[np.float64], out: NDArray[np.uint8], at: int
) -> int:
    """A float32 in decimal; `bits` are its bits.

    The candidates are the score rounded to 9, 8, ... digits, for as long as they lie inside the interval of numbers
    that round to it, by a margin (1e-14 of its bounds) that is above the error of the products here (3e-16).
    """
    if bits < 0:
        out[at] = MINUS
        at += 1
        score = -score
        bits &= 0x7FFFFFFF
    if bits == 0:
        out[at] = ZERO
        return at + 1
    half = halves[bits >> 23]
    below = half if bits & 0x7FFFFF or bits >> 23 <= 1 else half / 2
    lowest, highest = (score - below) * (1 + 1e-14), (score + half) * (1 - 1e-14)
    lead = ((bits >> 23) - 127) * 1233 >> 12  # log10(2) is 1233 / 4096 and a little
    while score >= powers[MIDDLE + lead + 1]:
        lead += 1
    while score < powers[MIDDLE + lead]:
        lead -= 1
    digits = DIGITS
    mantissa = int(score * powers[MIDDLE + digits - 1 - lead] + 0.5)
    while digits > 1:
        candidate = int(score * powers[MIDDLE + digits - 2 - lead] + 0.5)
        if not lowest < candidate * powers[MIDDLE + lead + 2 - digits] < highest:
            break
        mantissa = candidate
        digits -= 1
    if digits == 1 and mantissa == 10:
        mantissa, lead = 1, lead + 1
    return _put_decimal(np.uint64(mantissa), digits, lead, out, at)


@kernel
def _put_decimal(value: np.uint64, digits: int, lead: int, out: NDArray[np.uint8], at: int) -> int:
    """A value of so many digits, the first of which counts 10 ** lead; with an exponent where that is shorter."""
    if 0 <= lead < digits - 1:
        value = _put_digits(value, out, at + lead + 2, at + digits + 1)
        out[at + lead + 1] = POINT
        _put_digits(value, out, at, at + lead + 1)
        return at + digits + 1
    if -5 <= lead < 0:
        start = at + 1 - lead
        for i in range(at, start):
            out[i] = ZERO
        out[at + 1] = POINT
        _put_digits(value, out, start, start + digits)
        return start + digits
    if 0 <= lead <= DIGITS:
        _put_digits(value, out, at, at + digits)
        for i in range(at + digits, at + lead + 1):
            out[i] = ZERO
        return at + lead + 1
    value = _put_digits(value, out, at + 2, at + digits + 1)
    out[at], out[at + 1] = np.uint64(ZERO) + value, POINT
    at += digits + 1 if digits > 1 else 1
    out[at], out[at + 1] = E, MINUS if lead < 0 else PLUS
    return _put_integer(abs(lead), out, at + 2)
