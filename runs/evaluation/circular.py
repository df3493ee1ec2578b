"""The record beside judgments by a model, and the guard against circular evaluation.

Grades that selected a run's documents must not silently judge that run. The manifest of a run directory says which
files were made with or after its grades. The grades are in its `grades.qrels`, whose second column names the model. So
its lines are recognised in any file of judgments. The record of `keystone judge` names the model, too: its judgments
count as the grades of that model.
"""

from collections.abc import Set
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import orjson
from pydantic import TypeAdapter, ValidationError

from keystone.indexing.errors import UserError
from keystone.indexing.io.reading import hash_file
from keystone.indexing.io.writing import write_whole
from keystone.indexing.types import document_id
from keystone.runs.pipeline.directory import read_entries
from keystone.runs.pipeline.file_names import QRELS
from keystone.runs.pipeline.grade_files import Judgment
from keystone.runs.trec.collections import read_qrels_bytes
from keystone.runs.trec.rows import split_columns
from keystone.runs.trec.types import Run

RECORD_SUFFIX = ".judge.json"
"""The end of the record's name, after the whole name of the file of judgments."""


@dataclass(frozen=True, slots=True)
class PooledRun:
    """A run file whose documents were judged."""

    file: str
    sha256: str
    circular_rows: int
    """How many rows are judged by the model whose grades selected the documents of the run."""


@dataclass(frozen=True, slots=True)
class JudgeRecord:
    """Who made a file of judgments, and how. `model` stands in the second column of the file."""

    model: str
    prompts: dict[str, str]
    """The SHA-256 of each prompt, by its name."""
    date: str
    """The day on which the file was made."""
    sha256: str
    """The SHA-256 of the file of judgments."""
    depth: int
    repeats: int
    cascade: bool
    failed: int
    """The number of pooled documents without a judgment, because the model gave no grade."""
    runs: list[PooledRun]
    grades: list[list[int]]
    """All grades behind each line of the file, if there are several; else empty."""
    against: str = ""
    """The file of other judgments that these were compared with, if any."""
    compared: list[int | None] = field(default_factory=list)
    """The grade in that file for each line of this one, or None; empty without such a file."""


_ADAPTER = TypeAdapter(JudgeRecord)


def name_record(qrels: Path) -> Path:
    """Name the record of a file of judgments."""
    return qrels.with_name(f"{qrels.name}{RECORD_SUFFIX}")


def read_record(qrels: Path) -> JudgeRecord | None:
    """Read the record of a file of judgments; None if it has none. `UserError` if the record is damaged."""
    path = name_record(qrels)
    if not path.is_file():
        return None
    try:
        return _ADAPTER.validate_json(path.read_bytes())
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise UserError(f"{path}: not a record of judgments: {place or 'the file'}: {first['msg']}") from error


def write_record(qrels: Path, record: JudgeRecord) -> None:
    """Write the record of a file of judgments. The file appears when it is whole."""
    with write_whole(name_record(qrels)) as out:
        out.write(orjson.dumps(asdict(record), option=orjson.OPT_APPEND_NEWLINE))


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
    """Count the rows of a run judged by grades that selected its documents; also returns the file that shows it.

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
    """List the files of a run directory that its grades have shaped, directly or not, with the SHA-256 of each."""
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
