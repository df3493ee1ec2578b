"""The guard against circular evaluation: grades that selected a run's documents must not silently judge that run.

The manifest of a run directory says which files were made with or after its grades. The grades are in its
`grades.qrels`, whose second column names the model. So a line there is recognised in any file of judgments.
Judgments of `keystone judge` have a record beside them, which names the model. They count as the grades of that model.
"""

from collections.abc import Set
from pathlib import Path

import numpy as np

from keystone.indexing.io.reading import hash_file
from keystone.indexing.types import document_id
from keystone.runs.pipeline.directory import read_entries
from keystone.runs.pipeline.file_names import QRELS
from keystone.runs.pipeline.grade_files import Judgment
from keystone.runs.trec.collections import read_qrels_bytes
from keystone.runs.trec.judge_record import name_record, read_record
from keystone.runs.trec.rows import split_columns
from keystone.runs.trec.types import Run


def find_shaping_grades(run: Path, qrels: Path) -> Path | None:
    """Find the grades that selected the documents of a run file; None if no grades did.

    The run file lies in its run directory, or the judgments lie in that directory and the run file is a copy.
    """
    for directory in (run.parent, qrels.parent):
        shaped = _list_shaped_files(directory)
        beside = run.parent == directory and run.name in shaped
        if beside or (shaped and hash_file(run) in shaped.values()):
            return directory / QRELS
    return None


def find_circular_rows(path: Path, run: Run, qrels: Path) -> tuple[int, Path]:
    """Count the rows of a run that are judged by grades that selected its documents; returns the file that tells it.

    A copy of a run is known by the record of judgments, if the run was pooled for them.
    """
    record = read_record(qrels)
    if grades := find_shaping_grades(path, qrels):
        return count_circular_rows(run, read_judgment_lines(qrels), grades, record.model if record else ""), grades
    pooled = record.runs if record else []
    rows = {one.sha256: one.circular_rows for one in pooled if one.circular_rows}
    return (rows.get(hash_file(path), 0) if rows else 0), name_record(qrels)


def count_circular_rows(run: Run, judged: Set[Judgment], grades: Path, judge: str = "") -> int:
    """Count the rows of a run that are judged by a line that is also in the file `grades`.

    All judgments by the model `judge` count as the same as its grades of the same topics and documents. Those of a
    segment count as those of its document.
    """
    own = read_judgment_lines(grades)
    graded = _list_pairs(own, judge)
    by_judge = {
        (topic, name)
        for topic, name in _list_pairs(judged, judge)
        if {(topic, name), (topic, document_id(name))} & graded
    }
    known = _list_pairs(judged & own) | by_judge
    queries = np.repeat(run.query_ids, np.diff(run.offsets)).tolist()
    return sum(row in known for row in zip(queries, run.docs.decode_ids(), strict=True))


def _list_pairs(judgments: Set[Judgment], judge: str | None = None) -> set[tuple[str, str]]:
    """List topic and document of judgments: of all, or of those by `judge`."""
    return {(one.query_id, one.doc_id) for one in judgments if judge in (None, one.graded_by)}


def _list_shaped_files(directory: Path) -> dict[str, str]:
    """List the files of a run directory that its grades have shaped: those made with them, and all made from these.

    Returns the SHA-256 of each.
    """
    entries = read_entries(directory)
    if QRELS not in entries or not (directory / QRELS).is_file():
        return {}
    shaped = {name for name, entry in entries.items() if entry.get("key") == entries[QRELS].get("key")}
    while more := {name for name, entry in entries.items() if shaped & set(entry.get("inputs", ()))} - shaped:
        shaped |= more
    return {name: entries[name].get("sha256", "") for name in shaped}


def read_judgment_lines(path: Path) -> set[Judgment]:
    """Read topic, judge, document and grade of each line. The file has been read as judgments before."""
    rows = map(split_columns, read_qrels_bytes(path).tobytes().decode("utf-8-sig").splitlines())
    return {Judgment(row[0], row[1], row[2], int(float(row[3]))) for row in rows if row and not row[0].startswith("#")}
