"""Keystone's values as those of other libraries: pandas' data frames, ranx's and ir_measures' runs and judgments."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from keystone.generation.types import Answer
from keystone.indexing.errors import UserError
from keystone.retrieval.ties import decrease_strictly
from keystone.retrieval.types import Query, Topic
from keystone.runs.evaluation.evaluate import Evaluation
from keystone.runs.python.checks import check_columns
from keystone.runs.trec.types import Qrels, Run

Columns = Mapping[str, Any]
"""The values of each column by its name."""


def to_pandas(value: Any) -> Any:
    """Make a data frame with PyTerrier's names of columns. Ranks count from 0.

    | value | columns |
    |---|---|
    | `Run` | `qid`, `docno`, `score`, `rank` |
    | `Qrels` | `qid`, `docno`, `label`, and `iteration` if the judgments name subtopics |
    | `Evaluation` | a column for each measure; a row for each topic, with its id as the index |
    | evaluations | a column for the mean of each measure; a row for each run, with its name as the index |
    | topics | `qid`, `query` |
    | queries | `qid`, `query`, `qtopic` (the topic's id), `qsparse`, `qdense`, `qpassage` |
    | answers | `qid`, `qanswer` (with numbers of citations), `qcitations` (the cited ids by number) |

    `UserError` for any other value.
    """
    from pandas import DataFrame, Index

    values = list(value) if isinstance(value, Iterable) else []
    if isinstance(value, Evaluation):
        return DataFrame(value.values, index=Index(value.topics, name="qid", dtype=str))
    if values and all(isinstance(one, Evaluation) for one in values):
        means = [{measure: one.mean(measure) for measure in one.values} for one in values]
        return DataFrame(means, index=Index([one.name for one in values], name="run", dtype=str))
    if isinstance(value, list | tuple) and not value:
        return DataFrame()
    for kind, list_columns in _COLUMNS.items():
        if isinstance(value, kind):
            return DataFrame(list_columns(value))
        if values and all(isinstance(one, kind) for one in values):
            return DataFrame(list_columns(values))
    raise UserError(f"to_pandas: found {value!r:.100}, expected a run, qrels, evaluations, topics, queries or answers")


def to_ranx(value: Run | Qrels) -> Any:
    """Make ranx's `Run` or `Qrels`. Scores strictly decrease, because ranx leaves the order of ties to chance."""
    import ranx

    check_columns(value, "to_ranx")
    if isinstance(value, Run):
        value = replace(value, scores=decrease_strictly(value.scores, value.offsets))
    by_query: dict[str, dict[str, Any]] = {}
    for query, doc_id, number in _list_rows(value):
        by_query.setdefault(query, {})[doc_id] = number
    return ranx.Run(by_query, name=value.tag) if isinstance(value, Run) else ranx.Qrels(by_query)


def to_ir_measures(value: Run | Qrels) -> list[Any]:
    """Make ir_measures' `ScoredDoc`s of a run, or its `Qrel`s of judgments, with their subtopics."""
    from ir_measures import Qrel, ScoredDoc

    check_columns(value, "to_ir_measures")
    if isinstance(value, Run):
        return [ScoredDoc(*row) for row in _list_rows(value)]
    if value.subtopics is not None:
        return [Qrel(topic, doc_id, grade, name) for topic, name, doc_id, grade in value.subtopics.list_rows()]
    return [Qrel(*row) for row in _list_rows(value)]


def _list_rows(value: Run | Qrels) -> list[tuple[str, str, Any]]:
    """List query, document, and score or grade of each row."""
    queries = np.repeat(np.array(value.query_ids, dtype=object), np.diff(value.offsets)).tolist()
    numbers = value.scores if isinstance(value, Run) else value.grades
    return list(zip(queries, value.docs.decode_ids(), numbers.tolist(), strict=True))


def _list_run_columns(run: Run) -> Columns:
    queries, docs, _ = zip(*_list_rows(run), strict=True) if len(run.scores) else ((), (), ())
    ranks = np.arange(len(run.scores)) - np.repeat(run.offsets[:-1], np.diff(run.offsets))
    return {"qid": queries, "docno": docs, "score": run.scores, "rank": ranks}


def _list_qrels_columns(qrels: Qrels) -> Columns:
    if qrels.subtopics is None:
        return dict(zip(("qid", "docno", "label"), zip(*_list_rows(qrels), strict=True), strict=True))
    names = ("qid", "iteration", "docno", "label")
    columns = dict(zip(names, zip(*qrels.subtopics.list_rows(), strict=True), strict=True))
    return {name: columns[name] for name in ("qid", "docno", "label", "iteration")}


def _list_topic_columns(topics: Sequence[Topic]) -> Columns:
    return {"qid": [topic.id for topic in topics], "query": [topic.narrative for topic in topics]}


def _list_query_columns(queries: Sequence[Query]) -> Columns:
    fields = {
        "qid": "id",
        "query": "question",
        "qtopic": "topic_id",
        "qsparse": "sparse_text",
        "qdense": "dense_text",
        "qpassage": "passage",
    }
    return {name: [getattr(query, field) for query in queries] for name, field in fields.items()}


def _list_answer_columns(answers: Sequence[Answer]) -> Columns:
    return {
        "qid": [answer.topic_id for answer in answers],
        "qanswer": [answer.number_citations() for answer in answers],
        "qcitations": [answer.list_citations() for answer in answers],
    }


_COLUMNS: dict[type, Callable[[Any], Columns]] = {
    Run: _list_run_columns,
    Qrels: _list_qrels_columns,
    Topic: _list_topic_columns,
    Query: _list_query_columns,
    Answer: _list_answer_columns,
}
