"""TREC run and qrels files.

trec_eval ignores the rank column and sorts by score down in float32, then document id *down*. So a run is read into
that order, and written with scores that strictly decrease in float32: every reader finds the order that was meant.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexing.errors import UserError
from indexing.io.files import written
from retrieval.types import offsets_of
from runs.trec.doc_ids import Names, match, names_of
from runs.trec.kernels import THREADS
from runs.trec.render import render, strictly_decreasing
from runs.trec.rows import Rows, read_rows
from runs.trec.scan import QRELS, RUN
from runs.trec.trec_eval_order import best_first

PART = 1 << 14
"""Rows that are made at once: few enough for their bytes to stay in the processor's cache until they are written."""
ROOM = 160
"""Bytes kept for a row; a part that needs more gets room of its own."""


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """A run, columnar: query i owns rows `offsets[i]:offsets[i + 1]` of `docs` and `scores`, best first."""

    tag: str
    query_ids: tuple[str, ...]
    offsets: NDArray[np.int64]
    docs: Names
    scores: NDArray[np.floating[Any]]

    def of(self, query_ids: Sequence[str]) -> "Run":
        """The run for these queries, in this order; one that the run lacks has no rows."""
        offsets, rows = _chosen(self.query_ids, self.offsets, query_ids)
        return Run(self.tag, tuple(query_ids), offsets, self.docs[rows], self.scores[rows])

    def hits(self) -> dict[str, list[tuple[str, float]]]:
        """For each query its (document id, score) pairs; a million rows take a second."""
        pairs = list(zip(self.docs.strings(), self.scores.tolist(), strict=True))
        return {name: pairs[a:b] for name, a, b in zip(self.query_ids, self.offsets, self.offsets[1:], strict=False)}


@dataclass(frozen=True, slots=True, eq=False)
class Qrels:
    """Judgments, columnar: topic i owns rows `offsets[i]:offsets[i + 1]` of `docs` and `grades`, best grade first."""

    query_ids: tuple[str, ...]
    offsets: NDArray[np.int64]
    docs: Names
    grades: NDArray[np.int64]

    def of(self, query_ids: Sequence[str]) -> "Qrels":
        """The judgments of these topics, in this order; one that is not judged has no rows."""
        offsets, rows = _chosen(self.query_ids, self.offsets, query_ids)
        return Qrels(tuple(query_ids), offsets, self.docs[rows], self.grades[rows])


def run_of(tag: str, hits: Mapping[str, Sequence[tuple[str, float]]]) -> Run:
    """A run from the (document id, score) pairs of each query, best first."""
    offsets = offsets_of([len(own) for own in hits.values()])
    docs = names_of([doc_id for own in hits.values() for doc_id, _ in own])
    return Run(tag, tuple(hits), offsets, docs, np.array([score for own in hits.values() for _, score in own], float))


def qrels_of(grades: Mapping[str, Mapping[str, int]]) -> Qrels:
    """Judgments from the grade of each judged document of each topic."""
    offsets = offsets_of([len(own) for own in grades.values()])
    docs = names_of([doc_id for own in grades.values() for doc_id in own])
    return _best_first(
        tuple(grades), offsets, docs, np.array([g for own in grades.values() for g in own.values()], int)
    )


def write_run(path: Path, run: Run) -> None:
    """Write a run with ranks from 1, in the order given; all of it or nothing."""
    rooms = [np.empty(PART * ROOM, np.uint8) for _ in range(THREADS + 1)]
    ahead: deque[Future[memoryview]] = deque()
    with written(path) as out, ThreadPoolExecutor(THREADS) as pool:
        for number, part in enumerate(_parts(run)):
            if number >= len(rooms):
                out.write(ahead.popleft().result())  # which frees the room that is next
            ahead.append(pool.submit(_rendered, part, rooms[number % len(rooms)]))
        for rows in ahead:
            out.write(rows.result())


def read_run(path: Path) -> Run:
    """A run in trec_eval's order: score down in float32, then document id down; the rank column is not looked at.

    `UserError` with file and line for a malformed row and for a document that a query lists twice.
    """
    return in_trec_eval_order(read_run_as_it_stands(path))


def read_run_as_it_stands(path: Path) -> Run:
    """As `read_run`, with the rows of each query in the order of the file."""
    rows = read_rows(path, RUN)
    first = _first(rows)
    _refuse(path, rows, first, np.flatnonzero(first != np.arange(len(first))), "occurs more than once")
    return Run(rows.tag, rows.query_ids, rows.offsets, rows.docs, rows.values)


def without_own(run: Run) -> Run:
    """The run without the document that has its query's id, as BEIR measures queries that are documents."""
    queries = np.arange(len(run.query_ids))
    _, found = match(
        names_of(run.query_ids), np.stack([queries, queries + 1], axis=1), run.docs, bounds_of(run.offsets)
    )
    kept = found < 0
    offsets = offsets_of(kept)[run.offsets]
    return Run(run.tag, run.query_ids, offsets, run.docs[kept], run.scores[kept])


def in_trec_eval_order(run: Run) -> Run:
    """The run as trec_eval ranks it: each query by score down in float32, then by document id down."""
    with np.errstate(over="ignore"):
        order = best_first(run.scores.astype(np.float32), run.docs, run.offsets)
    return Run(run.tag, run.query_ids, run.offsets, run.docs[order], run.scores[order])


def read_qrels(path: Path) -> Qrels:
    """Judgments in TREC form; the second column is not looked at.

    A judgment may be repeated with the same grade. `UserError` with file and line for a malformed row and for a
    document with two grades for one topic.
    """
    rows = read_rows(path, QRELS)
    if not len(rows.values):
        raise UserError(f"{path}: holds no judgment")
    first = _first(rows)
    _refuse(path, rows, first, np.flatnonzero(rows.values != rows.values[first]), "has two grades")
    own = first == np.arange(len(first))
    offsets = offsets_of(own)[rows.offsets]
    return _best_first(rows.query_ids, offsets, rows.docs[own], rows.values[own].astype(np.int64))


def _rendered(part: Run, room: NDArray[np.uint8]) -> memoryview:
    scores = strictly_decreasing(part.scores, part.offsets)
    return render(part.query_ids, part.offsets, part.docs, scores, part.tag, room)


def _parts(run: Run) -> list[Run]:
    """The run cut between queries, about `PART` rows a piece."""
    wanted = np.arange(0, run.offsets[-1], PART)
    cuts = [*np.unique(np.searchsorted(run.offsets, wanted, side="right") - 1).tolist(), len(run.query_ids)]
    parts = []
    for a, b in pairwise(cuts):
        first, last = run.offsets[a], run.offsets[b]
        rows = slice(first, last)
        own = run.offsets[a : b + 1] - first
        parts.append(Run(run.tag, run.query_ids[a:b], own, run.docs[rows], run.scores[rows]))
    return parts


def _chosen(
    query_ids: Sequence[str], offsets: NDArray[np.int64], wanted: Sequence[str]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Offsets of the wanted queries, and the rows that they own now."""
    number = {query_id: i for i, query_id in enumerate(query_ids)}
    own = np.array([number.get(query_id, -1) for query_id in wanted], dtype=np.int64)
    counts = np.append(np.diff(offsets), 0)[own]
    bounds = offsets_of(counts)
    return bounds, np.arange(bounds[-1]) + np.repeat(offsets[own] - bounds[:-1], counts)


def _first(rows: Rows) -> NDArray[np.int64]:
    bounds = bounds_of(rows.offsets)
    return match(rows.docs, bounds, rows.docs[:0], np.zeros_like(bounds))[0]


def bounds_of(offsets: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where each query's rows begin and end: int64[queries, 2]."""
    return np.stack([offsets[:-1], offsets[1:]], axis=1)


def _refuse(path: Path, rows: Rows, first: NDArray[np.int64], wrong: NDArray[np.int64], fault: str) -> None:
    """`UserError` for the wrong row that comes first in the file, if there is one."""
    if wrong.size:
        row = int(wrong[np.argmin(rows.docs.starts[wrong])])
        doc_id = rows.docs[row : row + 1].strings()[0]
        query_id = rows.query_ids[int(np.searchsorted(rows.offsets, row, side="right")) - 1]
        raise UserError(
            f"{path}:{rows.line(row)}: document {doc_id} {fault} for {query_id}, see line {rows.line(int(first[row]))}"
        )


def _best_first(
    query_ids: tuple[str, ...], offsets: NDArray[np.int64], docs: Names, grades: NDArray[np.int64]
) -> Qrels:
    order = best_first(grades.astype(np.float32), docs, offsets)
    return Qrels(query_ids, offsets, docs[order], grades[order])
