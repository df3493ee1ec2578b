"""Reading and writing of TREC run files, and reading of qrels files.

trec_eval ignores the rank column and sorts by score down in float32, then document id *down*. So Keystone sorts a run
that way as it reads it. It writes scores that strictly decrease in float32, so every reader finds the same order.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle, pairwise
from pathlib import Path

import numpy as np

from keystone.indexing.errors import UserError
from keystone.indexing.io.reading import hash_file
from keystone.indexing.io.writing import write_whole
from keystone.indexing.types import Store, document_id
from keystone.retrieval.ties import decrease_strictly
from keystone.retrieval.types import offsets_of
from keystone.runs.trec.arrays import Bytes, Ints
from keystone.runs.trec.collections import find_qrels_file
from keystone.runs.trec.doc_ids import Ids, encode_ids, match_ids
from keystone.runs.trec.kernels import THREADS, map_ahead
from keystone.runs.trec.render import render_rows
from keystone.runs.trec.rows import find_line, find_second_column, read_rows
from keystone.runs.trec.scan import QRELS_COLUMNS, RUN_COLUMNS
from keystone.runs.trec.types import (
    Qrels,
    Run,
    SubtopicGrades,
    find_first_rows,
    pair_bounds,
    sort_best_first,
    sort_qrels,
)

PART_ROWS = 1 << 14
"""Rows rendered at once: few enough that their bytes stay in the processor's cache until they are written."""
ROW_BYTES = 160
"""Bytes reserved for a row. A part that needs more gets a buffer of its own."""


def write_run(path: Path, run: Run) -> None:
    """Write a run with ranks from 1, in its own order, whole or not at all. `ValueError` for a score beyond float32."""
    buffers = [np.empty(PART_ROWS * ROW_BYTES, np.uint8) for _ in range(THREADS + 1)]  # written ones are used again
    with write_whole(path) as out:
        for rows in map_ahead(lambda one: render_run(*one), zip(_cut_into_parts(run), cycle(buffers), strict=False)):
            out.write(rows)


def read_run(path: Path) -> Run:
    """Read a run in trec_eval's order: score down in float32, then document id down. The rank column is ignored.

    `UserError` with file and line for a malformed row and for a document that a query lists twice.
    """
    return sort_as_trec_eval(read_unsorted_run(path))


def read_unsorted_run(path: Path) -> Run:
    """Read a run as `read_run` does, but keep each query's rows in the order of the file."""
    rows = read_rows(path, RUN_COLUMNS)
    first = find_first_rows(rows.docs, rows.offsets)
    _refuse_row(path, rows, "occurs more than once", first, np.flatnonzero(first != np.arange(len(first))))
    return rows


def require_rows(path: Path, run: Run) -> Run:
    """Return the run of a file. `UserError` if it has no row."""
    if not run.query_ids:
        raise UserError(f"{path}: holds no row, expected a run")
    return run


def drop_own_documents(run: Run) -> Run:
    """Drop each query's own document, the one with the query's id. BEIR does so if its queries are documents."""
    queries = np.arange(len(run.query_ids))
    _, found = match_ids(
        encode_ids(run.query_ids), np.stack([queries, queries + 1], axis=1), run.docs, pair_bounds(run.offsets)
    )
    return run.keep(found < 0)


def sort_as_trec_eval(run: Run) -> Run:
    """Sort each query as trec_eval does: by score down in float32, then by document id down."""
    with np.errstate(over="ignore"):
        order = sort_best_first(run.scores.astype(np.float32), run.docs, run.offsets)
    return Run(run.tag, run.query_ids, run.offsets, run.docs[order], run.scores[order])


def read_qrels(path: Path) -> Qrels:
    """Read judgments from a file in the form of TREC or BEIR, from a folder of BEIR or from a data set of ir_datasets.

    If the second column differs between rows, it names subtopics.
    A file may repeat a judgment with the same grade. `UserError` with file and line for a malformed row and for a
    document with two grades for one topic and subtopic. A file without a judgment is a `UserError`, too.
    """
    path = find_qrels_file(path)
    rows = read_rows(path, QRELS_COLUMNS)
    if not len(rows.scores):
        raise UserError(f"{path}: holds no judgment")
    found = Qrels(rows.query_ids, rows.offsets, rows.docs, rows.scores.astype(np.int64))
    return arrange_qrels(found, find_second_column(rows.docs), partial(_refuse_row, path, rows, "has two grades"))


def arrange_qrels(rows: Qrels, second: Ids, refuse: Callable[[Ints, Ints], None]) -> Qrels:
    """Arrange rows in any order as judgments, with the second column of their file.

    A document may have several rows in its topic: with other subtopics, or with the same grade. If it has two grades
    for one subtopic, `refuse` raises an error. `refuse` gets the first row of each row's document and subtopic
    (int64[rows]). It also gets the numbers of the rows with another grade than that row (int64[wrong rows]).
    """
    first = find_first_rows(rows.docs, rows.offsets)
    names, code = second.find_distinct()
    same = first
    if len(names) > 1:
        _, firsts, pair = np.unique(first * len(names) + code, return_index=True, return_inverse=True)
        same = firsts[pair]
    refuse(same, np.flatnonzero(rows.grades != rows.grades[same]))
    grades = rows.grades.copy()
    subtopics = None
    if len(names) > 1:
        own = same == np.arange(len(same))
        offsets = offsets_of(own)[rows.offsets]
        subtopics = SubtopicGrades(rows.query_ids, offsets, second[own], rows.docs[own], grades[own])
        np.maximum.at(grades, first, rows.grades)
    own = first == np.arange(len(first))
    offsets = offsets_of(own)[rows.offsets]
    return replace(sort_qrels(rows.query_ids, offsets, rows.docs[own], grades[own]), subtopics=subtopics)


def write_qrels(path: Path, qrels: Qrels) -> None:
    """Write judgments in TREC form, with subtopics or 0 in the second column; all of them or nothing."""
    rows = qrels.subtopics.list_rows() if qrels.subtopics else ((t, "0", d, g) for t, d, g in qrels.list_rows())
    with write_whole(path) as out:
        for topic, second, doc_id, grade in rows:
            out.write(f"{topic} {second} {doc_id} {grade}\n".encode())


def render_run(run: Run, buffer: Bytes | None = None) -> memoryview:
    """Render the rows of a run file, as `render_rows` does, with scores that decrease strictly."""
    return render_rows(replace(run, scores=decrease_strictly(run.scores, run.offsets)), buffer)


def _cut_into_parts(run: Run) -> list[Run]:
    """Cut the run between queries, into parts of about `PART_ROWS` rows."""
    wanted = np.arange(0, run.offsets[-1], PART_ROWS)
    cuts = [*np.unique(np.searchsorted(run.offsets, wanted, side="right") - 1).tolist(), len(run.query_ids)]
    parts = []
    for a, b in pairwise(cuts):
        first, last = run.offsets[a], run.offsets[b]
        rows = slice(first, last)
        own = run.offsets[a : b + 1] - first
        parts.append(Run(run.tag, run.query_ids[a:b], own, run.docs[rows], run.scores[rows]))
    return parts


def _refuse_row(path: Path, rows: Run, fault: str, first: Ints, wrong: Ints) -> None:
    """Raise `UserError` for the first wrong row of the file, if `wrong` holds any."""
    if wrong.size:
        row = int(wrong[np.argmin(rows.docs.starts[wrong])])
        doc_id = rows.docs[row : row + 1].decode_ids()[0]
        query_id = rows.query_ids[int(np.searchsorted(rows.offsets, row, side="right")) - 1]
        line, first_line = find_line(rows.docs, row), find_line(rows.docs, int(first[row]))
        raise UserError(f"{path}:{line}: document {doc_id} {fault} for {query_id}, see line {first_line}")


def list_first(path: Path, most: int) -> dict[str, list[str]]:
    """List the first documents of each query or topic, at most `most`. A missing file has none."""
    if not path.exists():
        return {}
    run = read_run(path)
    starts = run.offsets[:-1].tolist()
    ends = np.minimum(run.offsets[:-1] + most, run.offsets[1:]).tolist()
    bounds = zip(run.query_ids, starts, ends, strict=True)
    return {name: run.docs[start:end].decode_ids() for name, start, end in bounds}


def find_ranks(path: Path, asked: Mapping[str, Sequence[str]]) -> dict[str, list[int]]:
    """Find the rank of each asked document of a query or topic, from 1. It is 0 if the list lacks the document."""
    if not path.exists():
        return {name: [0] * len(own) for name, own in asked.items()}
    run = read_run(path).select(list(asked))
    offsets = offsets_of([len(own) for own in asked.values()])
    docs = encode_ids([doc_id for own in asked.values() for doc_id in own])
    _, rows = match_ids(run.docs, pair_bounds(run.offsets), docs, pair_bounds(offsets))
    ranks = np.where(rows < 0, 0, rows - np.repeat(run.offsets[:-1], np.diff(offsets)) + 1)
    return {name: ranks[offsets[i] : offsets[i + 1]].tolist() for i, name in enumerate(asked)}


@dataclass(frozen=True, slots=True)
class GivenRun:
    """A run file of another system. `docs` has the ids of the documents of each query or narrative, best first."""

    sha256: str
    docs: Mapping[str, Sequence[str]]
    unknown: int
    """How many of the file's lines name a document that the store lacks."""


def read_given_run(path: Path, store: Store, topic_ids: Sequence[str]) -> GivenRun:
    """Read the rankings of these topics and of their queries from a run file, in trec_eval's order.

    The id of a segment counts for its document, which keeps its best place. Without `topic_ids`, all rankings are read.
    `UserError` for a file that is no run file, and for one that ranks nothing for any of the topics.
    """
    run, own = read_run(path), set(topic_ids)
    kept = [name for name in run.query_ids if not own or name in own or document_id(name) in own]
    if not kept:
        found = f"found {run.query_ids[0]!r}" if run.query_ids else "found no line"
        raise UserError(f"{path}: {found}, expected rankings of the topics, such as {next(iter(topic_ids), '1')!r}")
    run = run.select(kept)
    doc_ids, code_of = run.docs.find_distinct()
    documents = list(map(document_id, doc_ids))
    rows = zip(doc_ids, documents, store.rows(doc_ids).tolist(), store.rows(documents).tolist(), strict=True)
    names = [name if row >= 0 else document if other >= 0 else "" for name, document, row, other in rows]
    lines = [names[code] for code in code_of.tolist()]
    docs = {
        name: list(dict.fromkeys(filter(None, lines[start:end])))
        for name, (start, end) in zip(kept, pairwise(run.offsets.tolist()), strict=True)
    }
    return GivenRun(hash_file(path), docs, lines.count(""))
