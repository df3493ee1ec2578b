"""A run and relevance judgments as columns: ids as bytes, scores and grades as numbers; trec_eval's order of rows."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keystone.indexing.types import show_as_html
from keystone.retrieval.types import offsets_of
from keystone.runs.trec.arrays import Bytes, Flags, Ints
from keystone.runs.trec.doc_ids import Columns, Ids, encode_ids, match_ids
from keystone.runs.trec.kernels import kernel

Keys = NDArray[np.float32] | NDArray[np.uint64]
"""What rows are sorted by before their ids."""


def sort_best_first(keys: Keys, ids: Ids, offsets: Ints) -> Ints | slice:
    """Sort the rows of each query, `offsets[i]:offsets[i + 1]`, by key down, then id down in byte order.

    Returns the sorted row numbers (int64[rows]). If all rows are in order already, it returns a slice of all rows.
    """
    order = np.arange(len(keys))
    moved = _merge_sort(keys, ids.columns, offsets, order, np.empty_like(order))
    return order if moved else slice(None)


def place_by_id(ids: Ids, offsets: Ints) -> Ints:
    """Find the place of each row after sorting each query's ids up in byte order: int64[rows].

    The rows of query i keep the places `offsets[i]:offsets[i + 1]`.
    """
    keys = np.empty(len(ids), np.uint64)
    _fill_keys(ids.columns, offsets, keys)
    rows = np.arange(len(ids))
    places = np.empty_like(rows)
    places[rows[sort_best_first(keys, ids, offsets)]] = rows
    first_and_last = np.repeat(offsets[:-1] + offsets[1:] - 1, np.diff(offsets))
    reversed: Ints = first_and_last - places
    return reversed


@kernel
def _fill_keys(ids: Columns, offsets: Ints, keys: NDArray[np.uint64]) -> None:
    """Fill `keys` with the eight bytes that follow the common prefix of a query's ids, as one number.

    If two keys differ, they have the order of their ids. Zeros fill up an id that ends within its eight bytes.
    """
    data, starts, ends = ids
    for q in range(len(offsets) - 1):
        first, last = offsets[q], offsets[q + 1]
        if first == last:
            continue
        common = ends[first] - starts[first]
        for i in range(first + 1, last):
            common = min(common, ends[i] - starts[i])
            for at in range(common):
                if data[starts[i] + at] != data[starts[first] + at]:
                    common = at
                    break
        for i in range(first, last):
            key = np.uint64(0)
            for at in range(starts[i] + common, starts[i] + common + 8):
                key = key << np.uint64(8) | (np.uint64(data[at]) if at < ends[i] else np.uint64(0))
            keys[i] = key


@kernel
def _merge_sort(keys: Keys, ids: Columns, offsets: Ints, order: Ints, other: Ints) -> int:
    """Merge-sort each query whose rows are out of order. Returns the number of such queries."""
    moved = 0
    for q in range(len(offsets) - 1):
        first, last = offsets[q], offsets[q + 1]
        width = 1
        for i in range(first + 1, last):
            if _comes_before(i, i - 1, keys, ids):
                break
        else:
            continue
        moved += 1
        while width < last - first:
            for start in range(first, last, 2 * width):
                middle, end = min(start + width, last), min(start + 2 * width, last)
                i, j = start, middle
                for k in range(start, end):
                    if i < middle and (j == end or not _comes_before(order[j], order[i], keys, ids)):
                        other[k] = order[i]
                        i += 1
                    else:
                        other[k] = order[j]
                        j += 1
            for k in range(first, last):
                order[k] = other[k]
            width *= 2
    return moved


@kernel
def _comes_before(one: int, two: int, keys: Keys, ids: Columns) -> bool:
    if keys[one] != keys[two]:
        return bool(keys[one] > keys[two])
    data, starts, ends = ids
    return _compare_ids(data, starts[one], ends[one], starts[two], ends[two]) > 0


@kernel
def _compare_ids(data: Bytes, start: int, end: int, other_start: int, other_end: int) -> int:
    """Compare two ids in byte order: below 0 if the first comes first, 0 if they are equal, else above 0."""
    for i in range(min(end - start, other_end - other_start)):
        a, b = np.int64(data[start + i]), np.int64(data[other_start + i])
        if a != b:
            return int(a - b)
    return (end - start) - (other_end - other_start)


PRINTED_ROWS = 5
"""The rows of a run or of judgments that are printed."""


@dataclass(frozen=True, eq=False)
class Run:
    """A run as columns: query i owns the rows `offsets[i]:offsets[i + 1]` of `docs` and `scores`, best first."""

    tag: str
    query_ids: tuple[str, ...]
    offsets: Ints
    docs: Ids
    scores: NDArray[np.floating[Any]]

    @cached_property
    def _places(self) -> dict[str, int]:
        return _number_ids(self.query_ids)

    def __len__(self) -> int:
        """The number of queries."""
        return len(self.query_ids)

    def __iter__(self) -> Iterator[str]:
        """Yield the ids of the queries."""
        return iter(self.query_ids)

    def __getitem__(self, query_id: str) -> list[tuple[str, float]]:
        """List the (document id, score) pairs of a query, best first. `KeyError` for a query that the run lacks."""
        rows = _find_rows(self._places, self.offsets, query_id)
        return list(zip(self.docs[rows].decode_ids(), self.scores[rows].tolist(), strict=True))

    def __eq__(self, other: object) -> bool:
        """Tell whether the other is a run with the same tag, queries, documents and scores, in this order."""
        return isinstance(other, Run) and _list_values(self) == _list_values(other)

    def _repr_html_(self) -> str:
        return show_as_html(repr(self))

    def __repr__(self) -> str:
        """Say how many queries and rows the run has, and show its first rows."""
        scores = [f"{score:.6g}" for score in self.scores[:PRINTED_ROWS].tolist()]
        return _show_first(f"Run({self.tag!r}: {len(self):,} queries, {len(self.scores):,} rows)", self, scores)

    def select(self, query_ids: Sequence[str]) -> "Run":
        """Select the rows of these queries, in this order. A query that the run lacks gets no rows."""
        offsets, rows = _select_rows(self._places, self.offsets, query_ids)
        return Run(self.tag, tuple(query_ids), offsets, self.docs[rows], self.scores[rows])

    def top(self, k: int) -> "Run":
        """Keep the first `k` rows of each query."""
        places = np.arange(len(self.scores)) - np.repeat(self.offsets[:-1], np.diff(self.offsets))
        return self.keep(places < k)

    def keep(self, kept: Flags) -> "Run":
        """Keep the rows that `kept` (bool[rows]) marks."""
        return Run(self.tag, self.query_ids, offsets_of(kept)[self.offsets], self.docs[kept], self.scores[kept])

    def list_hits(self) -> dict[str, list[tuple[str, float]]]:
        """List the (document id, score) pairs of each query. A million rows take a second."""
        pairs = list(zip(self.docs.decode_ids(), self.scores.tolist(), strict=True))
        return {name: pairs[a:b] for name, a, b in zip(self.query_ids, self.offsets, self.offsets[1:], strict=False)}


@dataclass(frozen=True, slots=True, eq=False)
class SubtopicGrades:
    """Judgments by subtopic as columns: topic i owns the rows `offsets[i]:offsets[i + 1]`, in the order of the file.

    A document may have a row for each subtopic.
    """

    query_ids: tuple[str, ...]
    offsets: Ints
    subtopics: Ids
    docs: Ids
    grades: Ints

    def select(self, query_ids: Sequence[str]) -> "SubtopicGrades":
        """Select the judgments of these topics, in this order."""
        offsets, rows = _select_rows(_number_ids(self.query_ids), self.offsets, query_ids)
        return SubtopicGrades(tuple(query_ids), offsets, self.subtopics[rows], self.docs[rows], self.grades[rows])

    def list_rows(self) -> list[tuple[str, str, str, int]]:
        """List topic, subtopic, document and grade of each judgment."""
        topics = np.repeat(np.array(self.query_ids, object), np.diff(self.offsets)).tolist()
        columns = topics, self.subtopics.decode_ids(), self.docs.decode_ids(), self.grades.tolist()
        return list(zip(*columns, strict=True))


@dataclass(frozen=True, eq=False)
class Qrels:
    """Judgments as columns: topic i owns the rows `offsets[i]:offsets[i + 1]` of `docs` and `grades`, best first.

    A document has one row in its topic. If its grades for subtopics differ, the row has the highest.
    """

    query_ids: tuple[str, ...]
    offsets: Ints
    docs: Ids
    grades: Ints
    subtopics: SubtopicGrades | None = None
    """The same judgments by subtopic, if the second column of the file names more than one."""

    @cached_property
    def _places(self) -> dict[str, int]:
        return _number_ids(self.query_ids)

    def __len__(self) -> int:
        """The number of topics."""
        return len(self.query_ids)

    def __iter__(self) -> Iterator[str]:
        """Yield the ids of the topics."""
        return iter(self.query_ids)

    def __getitem__(self, topic_id: str) -> dict[str, int]:
        """List the grade of each document of a topic, best first. `KeyError` for a topic without judgments."""
        rows = _find_rows(self._places, self.offsets, topic_id)
        return dict(zip(self.docs[rows].decode_ids(), self.grades[rows].tolist(), strict=True))

    def __eq__(self, other: object) -> bool:
        """Tell whether the other has the same judgments, by subtopic, too, in this order."""
        return isinstance(other, Qrels) and _list_values(self) == _list_values(other)

    def _repr_html_(self) -> str:
        return show_as_html(repr(self))

    def __repr__(self) -> str:
        """Say how many topics and judgments there are, and show the first judgments."""
        grades = list(map(str, self.grades[:PRINTED_ROWS].tolist()))
        return _show_first(f"Qrels({len(self):,} topics, {len(self.grades):,} judgments)", self, grades)

    def select(self, query_ids: Sequence[str]) -> "Qrels":
        """Select the judgments of these topics, in this order. A topic without judgments gets no rows."""
        offsets, rows = _select_rows(self._places, self.offsets, query_ids)
        subtopics = None if self.subtopics is None else self.subtopics.select(query_ids)
        return Qrels(tuple(query_ids), offsets, self.docs[rows], self.grades[rows], subtopics)

    def list_rows(self, least: int | None = None) -> Iterator[tuple[str, str, int]]:
        """List topic, document and grade of each judgment, or of those with at least the grade `least`."""
        rows: Flags | slice = slice(None) if least is None else self.grades >= least
        topics = np.repeat(np.array(self.query_ids, object), np.diff(self.offsets))[rows]
        return zip(topics.tolist(), self.docs[rows].decode_ids(), self.grades[rows].tolist(), strict=True)


def _list_values(rows: Run | Qrels) -> tuple[object, ...]:
    """List all values of a run or of judgments, which are equal if these are."""
    whole = rows.query_ids, rows.offsets.tolist(), rows.docs.decode_ids()
    if isinstance(rows, Run):
        return rows.tag, *whole, rows.scores.tolist()
    return *whole, rows.grades.tolist(), rows.subtopics and rows.subtopics.list_rows()


def _show_first(head: str, rows: Run | Qrels, numbers: Sequence[str]) -> str:
    queries = np.searchsorted(rows.offsets, np.arange(len(numbers)), side="right") - 1
    ids = [rows.query_ids[number] for number in queries.tolist()]
    first = zip(ids, rows.docs[:PRINTED_ROWS].decode_ids(), numbers, strict=True)
    return "\n".join([head, *(f"  {query}  {doc_id}  {number}" for query, doc_id, number in first)])


def make_run(tag: str, hits: Mapping[str, Sequence[tuple[str, float]]]) -> Run:
    """Make a run from the (document id, score) pairs of each query, best first."""
    offsets = offsets_of([len(own) for own in hits.values()])
    docs = encode_ids([doc_id for own in hits.values() for doc_id, _ in own])
    return Run(tag, tuple(hits), offsets, docs, np.array([score for own in hits.values() for _, score in own], float))


def make_qrels(grades: Mapping[str, Mapping[str, int]]) -> Qrels:
    """Make judgments from the grade of each judged document of each topic."""
    offsets = offsets_of([len(own) for own in grades.values()])
    docs = encode_ids([doc_id for own in grades.values() for doc_id in own])
    return sort_qrels(tuple(grades), offsets, docs, np.array([g for own in grades.values() for g in own.values()], int))


def sort_qrels(query_ids: tuple[str, ...], offsets: Ints, docs: Ids, grades: Ints) -> Qrels:
    """Sort the judgments of each topic by grade down, then document id down."""
    order = sort_best_first(grades.astype(np.float32), docs, offsets)
    return Qrels(query_ids, offsets, docs[order], grades[order])


def pair_bounds(offsets: Ints) -> Ints:
    """Pair the first row of each query with the row after its last: int64[queries, 2]."""
    return np.stack([offsets[:-1], offsets[1:]], axis=1)


def find_first_rows(docs: Ids, offsets: Ints) -> Ints:
    """Find the first row of each row's document among the rows of its query: int64[rows]."""
    bounds = pair_bounds(offsets)
    return match_ids(docs, bounds, docs[:0], np.zeros_like(bounds))[0]


def _number_ids(query_ids: Sequence[str]) -> dict[str, int]:
    return {query_id: number for number, query_id in enumerate(query_ids)}


def _find_rows(places: Mapping[str, int], offsets: Ints, query_id: str) -> slice:
    """Find the rows of a query. `KeyError` without the query."""
    place = places[query_id]
    return slice(offsets[place], offsets[place + 1])


def _select_rows(places: Mapping[str, int], offsets: Ints, wanted: Sequence[str]) -> tuple[Ints, Ints]:
    """Select rows of the wanted queries: their new offsets, int64[wanted + 1], and the old rows, int64[rows]."""
    own = np.array([places.get(query_id, -1) for query_id in wanted], dtype=np.int64)
    counts = np.append(np.diff(offsets), 0)[own]
    bounds = offsets_of(counts)
    return bounds, np.arange(bounds[-1]) + np.repeat(offsets[own] - bounds[:-1], counts)
