"""Rows of run files as bytes: each score has as few digits as float32 needs."""

import numpy as np

from keystone.runs.trec.arrays import Bytes, Floats, Ints
from keystone.runs.trec.doc_ids import Columns, encode_ids, load_eight_bytes
from keystone.runs.trec.kernels import kernel
from keystone.runs.trec.types import Run

MAX_POWER = 60
POWERS_OF_TEN = np.array([float(f"1e{power}") for power in range(-MAX_POWER, MAX_POWER + 1)])
"""Powers of ten from -MAX_POWER to MAX_POWER, each rounded to float64 once."""
LEAST_EXPONENT = -149
HALF_STEPS = np.array([2.0 ** (max(exponent, -126) - 24) for exponent in range(LEAST_EXPONENT, 128)])
"""Half the distance between neighbours, for each exponent of float32 from the least."""
SPACE, ZERO, POINT, MINUS, PLUS, EXPONENT = b" 0.-+e"
ROW_BYTES = 64
"""The most bytes that a row takes besides its ids and its tag."""


def render_rows(run: Run, buffer: Bytes | None = None) -> memoryview:
    """Render the rows of a run file, with ranks from 1. The scores of the run are finite float32.

    A score gets the fewest of 7, 8 or 9 digits that are read as the same float32, and no zeros at their end. A reader
    may parse them as float32, or as float64 first. If `buffer` is large enough, the bytes lie in it.
    """
    docs, offsets = run.docs, run.offsets
    ending = f" {run.tag}\n"
    joints = encode_ids([f"{ending}{query_id} Q0 " for query_id in run.query_ids])
    lengths = joints.ends - joints.starts
    ids = int(lengths.sum() + lengths @ np.diff(offsets) + (docs.ends - docs.starts).sum())
    size = ids + ROW_BYTES * (len(docs) + 1)
    out = buffer if buffer is not None and len(buffer) >= size else np.empty(size, np.uint8)
    wide = run.scores.astype(np.float64)
    decimals = np.empty(len(wide), np.int64)
    _round_scores(wide, wide.view(np.int64), POWERS_OF_TEN, HALF_STEPS, decimals)
    used = _render(joints.columns, offsets, docs.columns, wide, decimals, len(ending.encode()), out)
    return out[:used].data


@kernel
def _render(
    joints: Columns, offsets: Ints, docs: Columns, scores: Floats, decimals: Ints, ending: int, out: Bytes
) -> int:
    """Put the rows. A joint holds the `ending` bytes that end a row, and the bytes that begin its query's next row."""
    joint_data, joint_starts, joint_ends = joints
    doc_data, doc_starts, doc_ends = docs
    at = 0
    for q in range(len(joint_starts)):
        start, end = joint_starts[q], joint_ends[q]
        at = _put(joint_data, start + ending, end, out, at)
        for row in range(offsets[q], offsets[q + 1]):
            at = _put(doc_data, doc_starts[row], doc_ends[row], out, at)
            out[at] = SPACE
            at = _put_integer(row - offsets[q] + 1, out, at + 1)
            out[at] = SPACE
            at += 1
            if scores[row] < 0:
                out[at] = MINUS
                at += 1
            if scores[row] == 0:
                out[at] = ZERO
                at += 1
            else:
                at = _put_decimal(decimals[row], out, at)
            at = _put(joint_data, start, end, out, at)
        at -= end - start - ending
    return at


@kernel
def _put_eight(eight: np.uint64, out: Bytes, at: int) -> None:
    """Put eight bytes, the lowest first. The compiler turns the loop into one store."""
    place = np.uint64(at)
    for byte in range(8):
        out[place + np.uint64(byte)] = np.uint8(eight >> np.uint64(8 * byte) & np.uint64(255))


@kernel
def _put(data: Bytes, start: int, end: int, out: Bytes, at: int) -> int:
    """Copy a piece, eight bytes at a time. The last eight may go beyond it; the next piece overwrites them."""
    after = at + end - start
    while start < end and start + 8 <= len(data):
        _put_eight(load_eight_bytes(data, start), out, at)
        start += 8
        at += 8
    while start < end:
        out[at] = data[start]
        start += 1
        at += 1
    return after


@kernel
def _put_integer(value: int, out: Bytes, at: int) -> int:
    end, limit = at + 1, 10
    while value >= limit:
        limit *= 10
        end += 1
    rest, ten = np.uint64(value), np.uint64(10)
    for i in range(end - 1, at - 1, -1):
        tenth = rest // ten
        out[i] = np.uint64(ZERO) + rest - ten * tenth
        rest = tenth
    return end


@kernel
def _round_scores(scores: Floats, bits: Ints, powers: Floats, halves: Floats, decimals: Ints) -> None:
    """Round scores, float32 values as float64 with its bits, to nine digits; the first one counts 10 ** lead.

    Each of `decimals` packs the digits, the number of digits needed, and lead:
    `digits << 16 | number << 8 | lead + MAX_POWER`. Eight or seven digits are enough if they lie inside the interval
    of numbers that round to the score. A margin of 1e-14 of its bounds exceeds the error of the products here, 3e-16.
    The loop has no branches, so the processor handles several scores at once.
    """
    for row in range(len(scores)):
        score = abs(scores[row])
        exponent = max((bits[row] >> 52 & 0x7FF) - 1023, LEAST_EXPONENT)
        half = halves[exponent - LEAST_EXPONENT]
        lowest = (score - (half if bits[row] & 0xFFFFFFFFFFFFF else half / 2)) * (1 + 1e-14)
        highest = (score + half) * (1 - 1e-14)
        lead = exponent * 1233 >> 12  # log10(2) is slightly above 1233 / 4096
        lead += int(score >= powers[MAX_POWER + lead + 1])
        nine = int(score * powers[MAX_POWER + 8 - lead] + 0.5)
        eight = int(score * powers[MAX_POWER + 7 - lead] + 0.5)
        seven = int(score * powers[MAX_POWER + 6 - lead] + 0.5)
        near, nearer = seven * powers[MAX_POWER + lead - 6], eight * powers[MAX_POWER + lead - 7]
        enough = (lowest < near) & (near < highest)
        better = (lowest < nearer) & (nearer < highest)
        value = 100 * seven if enough else (10 * eight if better else nine)
        carried = value == 1_000_000_000
        value = 100_000_000 if carried else value
        digits = 7 if enough else (8 if better else 9)
        decimals[row] = value << 16 | digits << 8 | lead + int(carried) + MAX_POWER


@kernel
def _put_decimal(decimal: int, out: Bytes, at: int) -> int:
    """Put a number that `_round_scores` packed, without zeros at its end; with an exponent if that is shorter.

    The loop puts all nine digits. The bytes after the number overwrite the surplus ones.
    """
    value, digits, lead = np.uint64(decimal >> 16), decimal >> 8 & 255, (decimal & 255) - MAX_POWER
    eight = value // np.uint64(10)
    last = np.uint64(ZERO) + value - np.uint64(10) * eight
    text = _write_digits(eight)
    while 1 < digits < 8 and text >> np.uint64(8 * digits - 8) & np.uint64(255) == np.uint64(ZERO):
        digits -= 1
    if -5 <= lead < 0:
        _put_eight(np.uint64(0x303030303030_2E30), out, at)  # 0.000000
        at += 1 - lead
        _put_eight(text, out, at)
        out[at + 8] = last
        return at + digits
    _put_eight(text, out, at)
    if digits - 1 <= lead <= 9:
        out[at + 8], out[at + 9] = last, ZERO
        return at + lead + 1
    point = lead + 1 if 0 <= lead < 9 else 1
    out[at + point] = POINT
    _put_eight(text >> np.uint64(8 * point & 63), out, at + point + 1)
    out[at + 9] = last
    if 0 <= lead < 9:
        return at + digits + 1
    at += digits + 1 if digits > 1 else 1
    out[at], out[at + 1] = EXPONENT, MINUS if lead < 0 else PLUS
    return _put_integer(abs(lead), out, at + 2)


@kernel
def _write_digits(value: np.uint64) -> np.uint64:
    """Write eight digits as text, the first digit lowest: split into fours, then pairs, then digits, in parallel."""
    high = value // np.uint64(10_000)
    fours = high | (value - np.uint64(10_000) * high) << np.uint64(32)
    tops = fours * np.uint64(10_486) >> np.uint64(20) & np.uint64(0x7F0000007F)
    pairs = tops | (fours - np.uint64(100) * tops) << np.uint64(16)
    tops = pairs * np.uint64(103) >> np.uint64(10) & np.uint64(0x000F000F000F000F)
    digits = tops | (pairs - np.uint64(10) * tops) << np.uint64(8)
    return digits | np.uint64(0x3030303030303030)
