"""Writing the rows of run files: scores with as few digits as float32 needs, straight into bytes."""

import math

import numpy as np
from numpy.typing import NDArray

from runs.kernels import kernel
from runs.names import Names, names_of, word

DIGITS = 9
"""Decimal digits that tell any two float32 apart."""
MIDDLE = 60
POWERS = np.array([float(f"1e{power}") for power in range(-MIDDLE, MIDDLE + 1)])
"""Powers of ten around 1, each rounded to float64 once."""
ROW = 64
"""More bytes than a row needs beside its ids and its tag."""


def render(
    query_ids: tuple[str, ...], offsets: NDArray[np.int64], docs: Names, scores: NDArray[np.float32], tag: str
) -> memoryview:
    """The rows of a run file, ranks from 1; query i owns the rows `offsets[i]:offsets[i + 1]` of `docs` and `scores`.

    A score is the shortest decimal (at most 9 digits) that is read as the same float32, be it read as float32 or
    as float64 first. Scores are finite.
    """
    queries = names_of([f"{query_id} Q0 " for query_id in query_ids])
    ending = np.frombuffer(f" {tag}\n".encode(), np.uint8)
    counts = np.diff(offsets)
    size = int(((queries.ends - queries.starts) * counts).sum() + (docs.ends - docs.starts).sum())
    out = np.empty(size + len(docs) * (len(ending) + ROW), np.uint8)
    columns = (queries.data, queries.starts, queries.ends, offsets, docs.data, docs.starts, docs.ends)
    return out[: _render(*columns, scores, scores.view(np.int32), ending, POWERS, out)].data


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
    powers: NDArray[np.float64],
    out: NDArray[np.uint8],
) -> int:
    at = 0
    for q in range(len(query_starts)):
        for row in range(offsets[q], offsets[q + 1]):
            at = _put(queries, query_starts[q], query_ends[q], out, at)
            at = _put(docs, doc_starts[row], doc_ends[row], out, at)
            out[at] = 32
            at = _put_integer(row - offsets[q] + 1, out, at + 1)
            out[at] = 32
            at = _put_score(float(scores[row]), int(bits[row]), powers, out, at + 1)
            at = _put(ending, 0, len(ending), out, at)
    return at


@kernel
def _put(data: NDArray[np.uint8], start: int, end: int, out: NDArray[np.uint8], at: int) -> int:
    while start + 8 <= end:
        eight, place = word(data, start), np.uint64(at)
        for byte in range(8):  # one store, once compiled
            out[place + np.uint64(byte)] = np.uint8(eight >> np.uint64(8 * byte) & np.uint64(255))
        start += 8
        at += 8
    while start < end:
        out[at] = data[start]
        start += 1
        at += 1
    return at


@kernel
def _put_integer(value: int, out: NDArray[np.uint8], at: int) -> int:
    rest, ten = np.uint64(value), np.uint64(10)
    end, limit = at + 1, ten
    while rest >= limit:
        limit *= ten
        end += 1
    for i in range(end - 1, at - 1, -1):
        tenth = rest // ten
        out[i] = np.uint64(48) + rest - ten * tenth
        rest = tenth
    return end


@kernel
def _put_score(score: float, bits: int, powers: NDArray[np.float64], out: NDArray[np.uint8], at: int) -> int:
    """A float32 in decimal; `bits` are its bits.

    The candidates are the score rounded to 9, 8, ... digits, for as long as they lie inside the interval of numbers
    that round to it, by a margin (1e-14 of its bounds) that is above the error of the products here (3e-16).
    """
    if bits < 0:
        out[at] = 45  # -
        at += 1
        score = -score
        bits &= 0x7FFFFFFF
    if bits == 0:
        out[at] = 48
        return at + 1
    half = math.ldexp(1.0, max(bits >> 23, 1) - 151)
    below = half if bits & 0x7FFFFF or bits >> 23 <= 1 else half / 2
    lowest, highest = (score - below) * (1 + 1e-14), (score + half) * (1 - 1e-14)
    lead = ((bits >> 23) - 127) * 1233 >> 12
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
    return _put_decimal(mantissa, lead - digits + 1, out, at)


@kernel
def _put_decimal(mantissa: int, exponent: int, out: NDArray[np.uint8], at: int) -> int:
    """The value mantissa * 10 ** exponent, written as Python's format `g` would with as many digits as there are."""
    rest, ten = np.uint64(mantissa), np.uint64(10)
    while rest % ten == 0:
        rest //= ten
        exponent += 1
    start = at
    at = _put_integer(int(np.int64(rest)), out, at)
    lead = exponent + at - start - 1
    if exponent >= 0 and lead <= DIGITS:
        for _ in range(exponent):
            out[at] = 48
            at += 1
        return at
    if -5 <= lead < 0:
        shift = 1 - lead
        for i in range(at - 1, start - 1, -1):
            out[i + shift] = out[i]
        for i in range(start, start + shift):
            out[i] = 48
        out[start + 1] = 46
        return at + shift
    fraction = exponent < 0 <= lead
    point = start + 1 + (lead if fraction else 0)
    if point < at:
        for i in range(at, point, -1):
            out[i] = out[i - 1]
        out[point] = 46
        at += 1
    if fraction:
        return at
    out[at], out[at + 1] = 101, 45 if lead < 0 else 43
    return _put_integer(abs(lead), out, at + 2)
