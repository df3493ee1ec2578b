"""Many ids as stretches of bytes, so that a run of a million rows is a few arrays and not a million strings."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from retrieval.types import offsets_of
from runs.trec.kernels import THREADS, in_threads, kernel

WORTH_A_THREAD = 50_000
"""Names from which on a second thread pays."""


@dataclass(frozen=True, slots=True, eq=False)
class Names:
    """Ids in UTF-8: name i is `data[starts[i]:ends[i]]` (read-only uint8[bytes], int64[n], int64[n])."""

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, rows: NDArray[np.int64] | NDArray[np.bool_] | slice) -> "Names":
        """The names of some rows; the bytes are shared."""
        return Names(self.data, self.starts[rows], self.ends[rows])

    def strings(self) -> list[str]:
        """The names as text."""
        data = self.data.tobytes()
        return [data[a:b].decode() for a, b in zip(self.starts.tolist(), self.ends.tolist(), strict=True)]

    def distinct(self) -> tuple[list[str], NDArray[np.int64]]:
        """The different names by first occurrence, and for each row the position of its name among them."""
        first, _ = match(self, whole(len(self)), self[:0], whole(0))
        own = first == np.arange(len(self))
        return self[own].strings(), (np.cumsum(own) - 1)[first]


def names_of(strings: Sequence[str]) -> Names:
    """Names from text."""
    encoded = [string.encode() for string in strings]
    bounds = offsets_of([len(name) for name in encoded])
    return Names(np.frombuffer(b"".join(encoded), np.uint8), bounds[:-1], bounds[1:])


def joined(parts: Sequence[Names]) -> Names:
    """The names of several, one after another."""
    shifts = offsets_of([len(names.data) for names in parts]).tolist()
    starts = [names.starts + shift for names, shift in zip(parts, shifts, strict=False)]
    ends = [names.ends + shift for names, shift in zip(parts, shifts, strict=False)]
    data = np.concatenate([names.data for names in parts])
    data.flags.writeable = False
    return Names(data, np.concatenate(starts), np.concatenate(ends))


def whole(count: int) -> NDArray[np.int64]:
    """One group of all rows: bounds for `match`."""
    return np.array([[0, count]], dtype=np.int64)


def match(
    one: Names, one_bounds: NDArray[np.int64], other: Names, other_bounds: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find equal names, group by group: group g is the rows `bounds[g, 0]` to `bounds[g, 1]` (int64[groups, 2]).

    Returns for every row of `one`, and for every row of `other`, the first row of `one` in the same group that
    has the same name; -1 for a name that is not there and for a row that is in no group.
    """
    first, found = np.full(len(one), -1, np.int64), np.full(len(other), -1, np.int64)

    def match_groups(own: slice) -> None:
        size = 4 * int(np.diff(one_bounds[own]).max(initial=1))
        columns = (one.data, one.starts, one.ends, one_bounds[own])
        others = (other.data, other.starts, other.ends, other_bounds[own])
        _match(*columns, *others, np.empty(size, np.int64), np.empty(size, np.uint64), first, found)

    share = len(one_bounds) // THREADS + 1 if len(one) + len(other) > WORTH_A_THREAD else max(len(one_bounds), 1)
    in_threads(match_groups, [slice(i, i + share) for i in range(0, len(one_bounds), share)])
    return first, found


@kernel
def word(data: NDArray[np.uint8], at: int) -> np.uint64:
    """Eight bytes as an integer, the first one lowest; the compiler makes one load of it."""
    i = np.uint64(at)
    found = np.uint64(data[i])
    for byte in range(1, 8):
        found |= np.uint64(data[i + np.uint64(byte)]) << np.uint64(8 * byte)
    return found


@kernel
def _hash(data: NDArray[np.uint8], start: int, end: int) -> np.uint64:
    mixed = np.uint64(end - start)
    factor = np.uint64(0x9E3779B97F4A7C15)
    if end - start < 8:
        for i in range(start, end):
            mixed = (mixed << np.uint64(8)) ^ np.uint64(data[i])
        mixed *= factor
    else:
        for i in range(start, end - 8, 8):
            mixed = (mixed ^ word(data, i)) * factor
            mixed ^= mixed >> np.uint64(32)
        mixed = (mixed ^ word(data, end - 8)) * factor
    mixed ^= mixed >> np.uint64(32)
    return mixed * factor


@kernel
def _equal(
    one: NDArray[np.uint8], start: int, end: int, other: NDArray[np.uint8], other_start: int, other_end: int
) -> bool:
    length = end - start
    if length != other_end - other_start:
        return False
    i = 0
    while i + 8 <= length and word(one, start + i) == word(other, other_start + i):
        i += 8
    while i < length and one[start + i] == other[other_start + i]:
        i += 1
    return i == length


@kernel
def _slot(
    key: np.uint64,
    name: NDArray[np.uint8],
    start: int,
    end: int,
    rows: NDArray[np.int64],
    keys: NDArray[np.uint64],
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
) -> int:
    """Where a name stands in a table of rows of `data`, or the empty place where it would."""
    slot = int(np.int64(key & np.uint64(len(rows) - 1)))
    while rows[slot] >= 0 and (
        keys[slot] != key or not _equal(name, start, end, data, starts[rows[slot]], ends[rows[slot]])
    ):
        slot = (slot + 1) & (len(rows) - 1)
    return slot


@kernel
def _match(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    bounds: NDArray[np.int64],
    other: NDArray[np.uint8],
    other_starts: NDArray[np.int64],
    other_ends: NDArray[np.int64],
    other_bounds: NDArray[np.int64],
    room: NDArray[np.int64],
    keys: NDArray[np.uint64],
    first: NDArray[np.int64],
    found: NDArray[np.int64],
) -> None:
    """One hash table for group after group, of the size that the group needs: open addressing, at most half full."""
    for g in range(len(bounds)):
        size = 2
        while size < 2 * (bounds[g, 1] - bounds[g, 0]):
            size *= 2
        rows = room[:size]
        rows[:] = -1
        for i in range(bounds[g, 0], bounds[g, 1]):
            key = _hash(data, starts[i], ends[i])
            slot = _slot(key, data, starts[i], ends[i], rows, keys, data, starts, ends)
            first[i] = i if rows[slot] < 0 else rows[slot]
            if rows[slot] < 0:
                rows[slot], keys[slot] = i, key
        for i in range(other_bounds[g, 0], other_bounds[g, 1]):
            key = _hash(other, other_starts[i], other_ends[i])
            found[i] = rows[_slot(key, other, other_starts[i], other_ends[i], rows, keys, data, starts, ends)]
