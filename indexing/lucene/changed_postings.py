"""The postings of an updated index, from the older postings and the texts of new and changed documents, without Java.

The files have the bytes that `write_postings` would write for a new Lucene index. No text of a document that stays is
read. Its postings are copied in chunks, so memory holds the terms, the postings of removed and new documents, and one
chunk.
"""

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from keystone.indexing.errors import UserError
from keystone.indexing.io.writing import reserve_array
from keystone.indexing.lucene.postings import Postings, frequency_type, write_counts
from keystone.indexing.types import Progress, Tick, silent

CHUNK_POSTINGS = 1 << 20
"""The postings that memory holds at the same time."""
TERM_STEP = 16
"""A term is looked for first among every so many terms."""

Ints = NDArray[np.int64]


class _Added(NamedTuple):
    """The postings of new and changed documents, ordered by term and row. There are s terms, and a postings in all."""

    names: list[bytes]
    """The terms in ascending order."""
    counts: Ints
    """The number of postings of each term: int64[s]."""
    rows: NDArray[np.int32]
    """The documents, int32[a]."""
    frequencies: NDArray[np.uint32]
    """How often a document holds the term, uint32[a]."""
    lengths: NDArray[np.uint8]
    """Lucene's byte for the length of each document."""


def update_postings(
    older: Postings,
    stayed: Ints,
    rows: Ints,
    stems: Iterable[Sequence[str]],
    folder: Path,
    progress: Progress = silent,
) -> None:
    """Write the postings of an updated index into a new folder.

    `stayed` int64[documents] has the older row of each document that has not changed, in ascending order, and -1 for
    the others. These are in `rows`, int64[n], ascending, and `stems` yields the stems of each of them in order.
    `UserError` if the older postings are damaged.
    """
    folder.mkdir()
    kept = np.flatnonzero(stayed >= 0)
    renumbered = np.full(len(older.lengths), -1, np.int32)
    renumbered[stayed[kept]] = kept
    added = _gather(rows, stems)
    places = _find_places(older, added.names)
    try:
        removed, most = _find_removed(older, renumbered)
    except IndexError as error:
        raise UserError(f"{older.folder}: damaged postings: build the index again") from error
    most = max(most, int(added.frequencies.max(initial=1)))

    of_removed = np.searchsorted(older.offsets, removed, side="right") - 1
    counts = np.diff(older.offsets) - np.bincount(of_removed, minlength=len(older.offsets) - 1)
    is_known = _hold(older, places, added.names)
    counts[places[is_known]] += added.counts[is_known]
    _write_terms(older, counts, added, places, ~is_known, folder)

    lengths = np.zeros(len(stayed), np.uint8)
    lengths[kept], lengths[rows] = older.lengths[stayed[kept]], added.lengths
    ends = older.offsets[places + is_known]
    inserted = _bisect(
        older.rows,
        np.repeat(older.offsets[places], added.counts),
        np.repeat(ends, added.counts),
        np.append(stayed[kept], len(older.lengths))[np.searchsorted(kept, added.rows)],
    )
    total = len(older.rows) - len(removed) + len(added.rows)
    made = (
        reserve_array(folder / "rows.npy", np.int32, (total,)),
        reserve_array(folder / "frequencies.npy", frequency_type(most), (total,)),
    )
    with progress("Updating the postings", len(older.rows)) as tick:
        _merge(older, renumbered, removed, added, inserted, made, tick)
    for file in made:
        file.flush()
    np.save(folder / "lengths.npy", lengths)
    tokens = older.tokens - int(older.frequencies[removed].sum(dtype=np.int64)) + int(added.frequencies.sum())
    write_counts(folder, int(np.count_nonzero(lengths)), tokens)


def encode_length(length: int) -> int:
    """Return Lucene's byte for a length in tokens: exact up to 40, then to four significant bits, rounded down."""
    rest = length - 24
    if rest < 8:
        return length
    shift = rest.bit_length() - 4
    return 24 + ((shift + 1) << 3) + ((rest >> shift) & 7)


def _gather(rows: Ints, stems: Iterable[Sequence[str]]) -> _Added:
    numbers = defaultdict[str, int](count().__next__)
    terms, frequencies, sizes = list[int](), list[int](), list[int]()
    lengths = np.zeros(len(rows), np.uint8)
    for place, own in enumerate(stems):
        counted = Counter(own)
        terms.extend(map(numbers.__getitem__, counted))
        frequencies.extend(counted.values())
        sizes.append(len(counted))
        lengths[place] = encode_length(len(own))
    by_name = sorted((stem.encode(), number) for stem, number in numbers.items())
    ranks = np.empty(len(numbers), np.int64)
    ranks[[number for _, number in by_name]] = np.arange(len(numbers))
    ranked = ranks[terms]
    order = np.argsort(ranked, kind="stable")
    return _Added(
        [name for name, _ in by_name],
        np.bincount(ranked, minlength=len(numbers)),
        np.repeat(rows, sizes)[order].astype(np.int32),
        np.array(frequencies, np.uint32)[order],
        lengths,
    )


def _find_places(older: Postings, names: Sequence[bytes]) -> Ints:
    """Find the place of each term among the older terms, or the place before which it belongs: int64[names]."""
    content, ends = older.terms.tobytes(), older.term_ends.tolist()

    def read(place: int) -> bytes:
        return content[ends[place] : ends[place + 1]]

    every = range(len(ends) - 1)
    some = list(map(read, every[::TERM_STEP]))
    after = (bisect_right(some, name) * TERM_STEP for name in names)
    places = [
        bisect_left(every, name, max(0, end - TERM_STEP), min(end, len(every)), key=read)
        for name, end in zip(names, after, strict=True)
    ]
    return np.array(places, np.int64)


def _hold(older: Postings, places: Ints, names: Sequence[bytes]) -> NDArray[np.bool_]:
    """Tell for each term whether it is the older one at its place: bool[names]."""
    begins, ends = older.term_ends[places], np.append(older.term_ends, older.term_ends[-1])[places + 1]
    spans = zip(begins.tolist(), ends.tolist(), names, strict=True)
    return np.array([older.terms[begin:end].tobytes() == name for begin, end, name in spans], bool)


def _find_removed(older: Postings, renumbered: NDArray[np.int32]) -> tuple[Ints, int]:
    """Find postings of removed documents: int64[n], and the greatest frequency of others, 1 if a byte holds it."""
    is_gone, found, most = renumbered < 0, [np.empty(0, np.int64)], 1
    for start in range(0, len(older.rows), CHUNK_POSTINGS):
        chunk = slice(start, start + CHUNK_POSTINGS)
        gone = is_gone.take(older.rows[chunk])
        found.append(start + np.flatnonzero(gone))
        if older.frequencies.dtype != np.uint8:
            most = max(most, int(older.frequencies[chunk][~gone].max(initial=1)))
    return np.concatenate(found), most


def _write_terms(
    older: Postings, counts: Ints, added: _Added, places: Ints, is_new: NDArray[np.bool_], folder: Path
) -> None:
    """Write the terms that a document holds: older ones with their `counts` of documents, and new ones."""
    names = [name for name, new in zip(added.names, is_new, strict=True) if new]
    sizes = np.array([len(name) for name in names], np.int64)
    all_counts = np.insert(counts, places[is_new], added.counts[is_new])
    all_sizes = np.insert(np.diff(older.term_ends), places[is_new], sizes)
    begins = np.repeat(older.term_ends[places[is_new]], sizes)
    content = np.insert(older.terms, begins, np.frombuffer(b"".join(names), np.uint8))
    held = all_counts > 0
    (folder / "terms").write_bytes(content[np.repeat(held, all_sizes)].tobytes())
    for name, numbers in (("term_ends", all_sizes), ("offsets", all_counts)):
        np.save(folder / f"{name}.npy", np.concatenate([[0], np.cumsum(numbers[held])]).astype(np.int64))


def _bisect(rows: NDArray[np.int32], low: Ints, high: Ints, bounds: Ints) -> Ints:
    """Find the first place from `low` to `high` whose row reaches the bound, or `high`, for all int64[n] at once."""
    while (is_open := low < high).any():
        middle = np.where(is_open, (low + high) >> 1, 0)
        is_below = is_open & (rows[middle] < bounds)
        low = np.where(is_below, middle + 1, low)
        high = np.where(is_open & ~is_below, middle, high)
    return low


def _merge(
    older: Postings,
    renumbered: NDArray[np.int32],
    removed: Ints,
    added: _Added,
    inserted: Ints,
    made: tuple[NDArray[Any], NDArray[Any]],
    tick: Tick,
) -> None:
    """Write the rows and frequencies of the older postings that stay, and of those added before their places."""
    place, count = 0, len(older.rows)
    new_places = inserted - np.searchsorted(removed, inserted) + np.arange(len(inserted))
    for start in range(0, max(count, 1), CHUNK_POSTINGS):
        chunk = slice(start, start + CHUNK_POSTINGS)
        rows = renumbered.take(older.rows[chunk])
        stays = rows >= 0
        last = len(inserted) if chunk.stop >= count else int(np.searchsorted(inserted, chunk.stop))
        new = slice(int(np.searchsorted(inserted, start)), last)
        places = new_places[new] - place
        is_old = np.ones(int(np.count_nonzero(stays)) + len(places), bool)
        is_old[places] = False
        for file, own, more in (
            (made[0], rows, added.rows),
            (made[1], older.frequencies[chunk], added.frequencies),
        ):
            part = file[place : place + len(is_old)]
            part[is_old] = own[stays]
            part[places] = more[new]
        place += len(is_old)
        tick(len(rows))
