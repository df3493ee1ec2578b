"""Grades as files: what was graded and selected, TREC qrels of it, and the ranking that follows."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from indexing.io.reading import read_json_lines
from indexing.io.writing import write_whole
from indexing.types import Store
from retrieval.types import Rankings, offsets_of
from runs.pipeline.grade_topic import Graded
from runs.trec.render import decrease_strictly


def records(graded: Sequence[Graded], store: Store, graded_by: str) -> Iterator[dict[str, Any]]:
    """One record a topic, with who graded.

    It has the queries, the documents with the spans of their text that were graded, and a row of grades a query (null:
    not asked for, or failed). `selected` are the keystone documents, best first, with `scores` beside them; of
    `pairs`, `asked` were graded.
    """
    for topic in graded:
        ids = store.ids(topic.rows)
        yield {
            "topic_id": topic.topic_id,
            "graded_by": graded_by,
            "pairs": topic.grades.size,
            "asked": topic.asked,
            "queries": [query.id for query in topic.queries],
            "documents": ids,
            "spans": topic.spans,
            "grades": [[None if math.isnan(grade) else grade for grade in row] for row in topic.grades.tolist()],
            "selected": [ids[place] for place in topic.selected],
            "scores": topic.scores,
            "fallbacks": list(map(asdict, topic.fallbacks)),
        }


def write_qrels(path: Path, records: Iterable[dict[str, Any]]) -> None:
    """The grades as qrels, so that any run can be measured on them; the second column says who graded.

    A query's grades stand under its id, and under the topic's the highest that any of its queries gives a document.
    Expected grades are rounded.
    """
    with write_whole(path) as out:
        for record in records:
            by = "_".join(record["graded_by"].split())
            grades = np.array(record["grades"], dtype=np.float64)
            named = [*zip(record["queries"], grades, strict=True)]
            if record["topic_id"] not in record["queries"] and len(grades):
                named.append((record["topic_id"], np.fmax.reduce(grades, axis=0)))
            for query_id, row in named:
                for doc_id, grade in zip(record["documents"], row.tolist(), strict=True):
                    if not math.isnan(grade):
                        out.write(f"{query_id} {by} {doc_id} {round(grade)}\n".encode())


def read_selected(path: Path, store: Store) -> dict[str, list[int]]:
    """The rows of each topic's keystone documents, best first."""
    return {record["topic_id"]: store.rows(record["selected"]).tolist() for _, record in read_json_lines(path)}


def keystone_rankings(graded: Sequence[Graded], narrative: Rankings, alone: bool) -> Rankings:
    """Each topic's selected documents, then, unless they are to stand `alone`, the rest of its narrative ranking.

    A selected document scores 1 plus its own score, and another one scores 1 / (1 + rank). If Parasol gives equal
    scores, its order decides, so scores are lowered to decrease strictly, as in the file: float32.
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
