"""Ids as slices of one array of bytes, so that a run of a million rows takes a few arrays, not a million strings."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from keystone.retrieval.types import offsets_of
from keystone.runs.trec.arrays import Bytes, Flags, Ints
from keystone.runs.trec.kernels import THREADS, kernel, map_in_threads

MIN_IDS_FOR_THREADS = 50_000
"""The number of ids from which a second thread saves time."""


Columns = tuple[Bytes, Ints, Ints]
"""The arrays of `Ids`, as kernels take them."""


@dataclass(frozen=True, slots=True, eq=False)
class Ids:
    """Ids in UTF-8: id i is `data[starts[i]:ends[i]]` (read-only uint8[bytes], int64[n], int64[n])."""

    data: Bytes
    starts: Ints
    ends: Ints

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, rows: Ints | Flags | slice) -> "Ids":
        """Take the ids of some rows. Both objects share the bytes."""
        return Ids(self.data, self.starts[rows], self.ends[rows])

    @property
    def columns(self) -> Columns:
        """The bytes, the starts and the ends."""
        return self.data, self.starts, self.ends

    def decode_ids(self) -> list[str]:
        """Decode the ids to text."""
        first, last = int(self.starts.min(initial=len(self.data))), int(self.ends.max(initial=0))
        data, starts, ends = self.data[first:last].tobytes(), self.starts - first, self.ends - first
        return [data[a:b].decode() for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]

    def find_distinct(self) -> tuple[list[str], Ints]:
        """Find the distinct ids by first occurrence, and the position of each row's id among them: int64[n]."""
        first, _ = match_ids(self, bound_all_rows(len(self)), self[:0], bound_all_rows(0))
        own = first == np.arange(len(self))
        return self[own].decode_ids(), (np.cumsum(own) - 1)[first]


def encode_ids(strings: Sequence[str]) -> Ids:
    """Encode text as ids."""
    encoded = [string.encode() for string in strings]
    bounds = offsets_of([len(own) for own in encoded])
    return Ids(np.frombuffer(b"".join(encoded), np.uint8), bounds[:-1], bounds[1:])


def concatenate_ids(parts: Sequence[Ids]) -> Ids:
    """Concatenate several sequences of ids."""
    shifts = offsets_of([len(ids.data) for ids in parts]).tolist()
    starts = [ids.starts + shift for ids, shift in zip(parts, shifts, strict=False)]
    ends = [ids.ends + shift for ids, shift in zip(parts, shifts, strict=False)]
    data = np.concatenate([ids.data for ids in parts])
    data.flags.writeable = False
    return Ids(data, np.concatenate(starts), np.concatenate(ends))


def bound_all_rows(count: int) -> Ints:
    """Make the bounds of one group of all rows, for `match_ids`: int64[1, 2]."""
    return np.array([[0, count]], dtype=np.int64)


def match_ids(one: Ids, one_bounds: Ints, other: Ids, other_bounds: Ints) -> tuple[Ints, Ints]:
    """Find equal ids, group by group: group g has the rows `bounds[g, 0]` to `bounds[g, 1]` (int64[groups, 2]).

    Returns int64[len(one)] and int64[len(other)]: for each row, the first row of `one` with the same id in the same
    group. A row without such a match, or in no group, gets -1.
    """
    first, found = np.full(len(one), -1, np.int64), np.full(len(other), -1, np.int64)

    def match_share(own: slice) -> None:
        size = 4 * int(np.diff(one_bounds[own]).max(initial=1))
        table, keys = np.empty(size, np.int64), np.empty(size, np.uint64)
        _match_groups(one.columns, one_bounds[own], other.columns, other_bounds[own], table, keys, first, found)

    share = len(one_bounds) // THREADS + 1 if len(one) + len(other) > MIN_IDS_FOR_THREADS else max(len(one_bounds), 1)
    map_in_threads(match_share, [slice(i, i + share) for i in range(0, len(one_bounds), share)])
    return first, found


@kernel
def load_eight_bytes(data: Bytes, at: int) -> np.uint64:
    """Load eight bytes as an integer, the first byte lowest. The compiler turns the loop into one load."""
    i = np.uint64(at)
    found = np.uint64(data[i])
    for byte in range(1, 8):
        found |= np.uint64(data[i + np.uint64(byte)]) << np.uint64(8 * byte)
    return found


@kernel
def _hash_id(data: Bytes, start: int, end: int) -> np.uint64:
    mixed = np.uint64(end - start)
    factor = np.uint64(0x9E3779B97F4A7C15)
    if end - start < 8:
        for i in range(start, end):
            mixed = (mixed << np.uint64(8)) ^ np.uint64(data[i])
        mixed *= factor
    else:
        for i in range(start, end - 8, 8):
            mixed = (mixed ^ load_eight_bytes(data, i)) * factor
            mixed ^= mixed >> np.uint64(32)
        mixed = (mixed ^ load_eight_bytes(data, end - 8)) * factor
    mixed ^= mixed >> np.uint64(32)
    return mixed * factor


@kernel
def _are_equal(one: Bytes, start: int, end: int, other: Bytes, other_start: int, other_end: int) -> bool:
    length = end - start
    if length != other_end - other_start:
        return False
    i = 0
    while i + 8 <= length and load_eight_bytes(one, start + i) == load_eight_bytes(other, other_start + i):
        i += 8
    while i < length and one[start + i] == other[other_start + i]:
        i += 1
    return i == length


@kernel
def _find_slot(
    key: np.uint64, name: Bytes, start: int, end: int, rows: Ints, keys: NDArray[np.uint64], ids: Columns
) -> int:
    """Find the slot of an id in a table of rows of `ids`, or the empty slot where it belongs."""
    data, starts, ends = ids
    slot = int(np.int64(key & np.uint64(len(rows) - 1)))
    while rows[slot] >= 0 and (
        keys[slot] != key or not _are_equal(name, start, end, data, starts[rows[slot]], ends[rows[slot]])
    ):
        slot = (slot + 1) & (len(rows) - 1)
    return slot


@kernel
def _match_groups(
    one: Columns,
    bounds: Ints,
    other: Columns,
    other_bounds: Ints,
    table: Ints,
    keys: NDArray[np.uint64],
    first: Ints,
    found: Ints,
) -> None:
    """Match each group by a hash table of its own: open addressing, at most half full."""
    data, starts, ends = one
    others, other_starts, other_ends = other
    for g in range(len(bounds)):
        size = 2
        while size < 2 * (bounds[g, 1] - bounds[g, 0]):
            size *= 2
        rows = table[:size]
        rows[:] = -1
        for i in range(bounds[g, 0], bounds[g, 1]):
            key = _hash_id(data, starts[i], ends[i])
            slot = _find_slot(key, data, starts[i], ends[i], rows, keys, one)
            first[i] = i if rows[slot] < 0 else rows[slot]
            if rows[slot] < 0:
                rows[slot], keys[slot] = i, key
        for i in range(other_bounds[g, 0], other_bounds[g, 1]):
            key = _hash_id(others, other_starts[i], other_ends[i])
            found[i] = rows[_find_slot(key, others, other_starts[i], other_ends[i], rows, keys, one)]
