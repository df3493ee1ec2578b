"""Grades as files: the record of each topic, the same grades as TREC qrels, and the ranking that they make."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from keystone.generation.grading.grade import GradedTopic
from keystone.generation.types import Fallback
from keystone.indexing.io.reading import read_text
from keystone.indexing.io.writing import write_whole
from keystone.indexing.types import Store
from keystone.retrieval.ties import decrease_strictly
from keystone.retrieval.types import Rankings, offsets_of
from keystone.runs.trec.types import Qrels, make_qrels


@dataclass(frozen=True, slots=True)
class GradeRecord:
    """The grades of one topic in the form of their file. `graded_by` names the model.

    `grades` has a row for each query and a column for each document. If a pair was not graded, or its grade failed, the
    value is None. `spans` are the graded stretches of each document. `selected` are the keystone documents, best first,
    with `scores` beside them. Of the `pairs` of a query and a document, `asked` were graded.
    """

    topic_id: str
    graded_by: str
    pairs: int
    asked: int
    queries: list[str]
    documents: list[str]
    spans: list[list[tuple[int, int]]]
    grades: list[list[float | None]]
    selected: list[str]
    scores: list[float]
    fallbacks: tuple[Fallback, ...]


class Judgment(NamedTuple):
    """A line of TREC qrels. The second column names the model that graded."""

    query_id: str
    graded_by: str
    doc_id: str
    grade: int


def make_grade_records(graded: Sequence[GradedTopic], store: Store, graded_by: str) -> Iterator[GradeRecord]:
    """Make the record of each topic."""
    for topic in graded:
        ids = store.ids(topic.rows)
        yield GradeRecord(
            topic_id=topic.topic_id,
            graded_by=graded_by,
            pairs=topic.grades.size,
            asked=topic.pairs_asked,
            queries=[query.id for query in topic.queries],
            documents=ids,
            spans=topic.spans,
            grades=[[None if math.isnan(grade) else grade for grade in row] for row in topic.grades.tolist()],
            selected=[ids[place] for place in topic.selected],
            scores=topic.scores,
            fallbacks=tuple(topic.fallbacks),
        )


def list_best_grades(record: GradeRecord, store: Store) -> dict[int, float]:
    """List the highest grade of each document for any query, by its row; documents without a grade are left out."""
    grades = np.array(record.grades, dtype=np.float64).reshape(len(record.queries), len(record.documents))
    best = np.nanmax(np.where(np.isnan(grades), -1, grades), axis=0, initial=-1)
    rows = store.rows(record.documents)
    return {int(row): float(one) for row, one in zip(rows, best, strict=True) if one >= 0}


def make_judgments(records: Iterable[GradeRecord]) -> Iterator[Judgment]:
    """Make judgments from grades, so that any run can be measured on them.

    The grades of a query are under its id. Under the topic's id, a document has its highest grade for any query, the
    whole narrative among them if it is graded. Expected grades are rounded.
    """
    for record in records:
        by = "_".join(record.graded_by.split())
        grades = np.array(record.grades, dtype=np.float64)
        rows = [row for row in zip(record.queries, grades, strict=True) if row[0] != record.topic_id]
        if len(grades):
            rows.append((record.topic_id, np.fmax.reduce(grades, axis=0)))
        for query_id, row in rows:
            for doc_id, grade in zip(record.documents, row.tolist(), strict=True):
                if not math.isnan(grade):
                    yield Judgment(query_id, by, doc_id, round(grade))


def write_judgments(path: Path, judgments: Iterable[Judgment]) -> None:
    """Write judgments in TREC form. The file appears when it is whole."""
    with write_whole(path) as out:
        for judgment in judgments:
            out.write(" ".join(map(str, judgment)).encode() + b"\n")


def read_judgments(path: Path) -> list[Judgment]:
    """Read the judgments of a file that `write_judgments` wrote."""
    rows = (line.split(" ") for line in read_text(path).split("\n") if line)
    return [Judgment(query_id, by, doc_id, int(grade)) for query_id, by, doc_id, grade in rows]


def gather_qrels(judgments: list[Judgment]) -> Qrels:
    """Gather judgments by topic or query, as reading their file does."""
    grades: dict[str, dict[str, int]] = {}
    for one in judgments:
        grades.setdefault(one.query_id, {})[one.doc_id] = one.grade
    return make_qrels(grades)


def find_grades(records: Sequence[GradeRecord], store: Store) -> dict[str, dict[str, dict[int, float]]]:
    """Find the grades above 0: by the id of the topic, then of the query, then by the row of the document."""
    return {
        record.topic_id: {
            query_id: {row: grade for row, grade in zip(rows, grades, strict=True) if grade}
            for query_id, grades in zip(record.queries, record.grades, strict=True)
        }
        for record in records
        for rows in [store.rows(record.documents).tolist()]
    }


def make_keystone_rankings(graded: Sequence[GradedTopic], narrative: Rankings, alone: bool) -> Rankings:
    """Rank each topic's selected documents first. Unless `alone` is true, the rest of its narrative ranking follows.

    A selected document scores 1 plus its own score; a document of the rest scores 1 / (1 + rank). If Parasol gives
    equal scores, its order decides: scores are lowered to decrease strictly in float32, as in the file.
    """
    docs, scores = [], []
    for i, topic in enumerate(graded):
        chosen = np.array(topic.rows, dtype=np.int32)[topic.selected]
        rest = narrative.of(i)[~np.isin(narrative.of(i), chosen)][: 0 if alone else None]
        docs += [chosen, rest]
        scores += [1 + np.array(topic.scores), 1 / (1 + np.arange(1, len(rest) + 1))]
    counts = np.array([len(part) for part in docs]).reshape(-1, 2).sum(axis=1)
    offsets = offsets_of(counts)
    falling = decrease_strictly(np.concatenate(scores), offsets)
    return Rankings(narrative.query_ids, offsets, np.concatenate(docs), falling)
