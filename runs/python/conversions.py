"""Conversion of runs, judgments and topics between Keystone and pandas, ranx, ir_measures and ir_datasets.

The shape of a value tells which library made it, so no library is imported to read one.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from functools import partial
from itertools import repeat
from math import isfinite
from os import PathLike
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from keystone.generation.types import Answer
from keystone.indexing.errors import UserError
from keystone.indexing.io.fields import find_names
from keystone.indexing.types import describe_id, is_id
from keystone.retrieval.ties import decrease_strictly
from keystone.retrieval.types import Query, Topic, offsets_of
from keystone.runs.evaluation.evaluate import Evaluation
from keystone.runs.python.checks import check_columns
from keystone.runs.trec.collections import DOCUMENT_NAMES, GRADE_NAMES, QUERY_NAMES, make_narrative
from keystone.runs.trec.doc_ids import encode_ids
from keystone.runs.trec.run_files import arrange_qrels, sort_as_trec_eval
from keystone.runs.trec.topics import NARRATIVE_KEYS, check_topics
from keystone.runs.trec.types import Qrels, Run, find_first_rows

T = TypeVar("T")
TEXT_NAMES = ("query", *NARRATIVE_KEYS)
SCORE_NAMES = ("score",)
"""Columns of frames, besides those that judgments have too. `keystone.indexing.io.fields` has the rule for names."""
SUBTOPIC_NAME = "iteration"

MOST_GRADE = 2**53
"""The highest grade that files of judgments hold. The lowest is its negative."""

Row = tuple[Any, Any, Any, Any]
"""A query, a document, its score or grade, and the subtopic."""
Refuse = Callable[[int, str], UserError]
"""Makes the error for a row, counted from 0, and the fault in it."""


def extend(found: Any, kind: type[T]) -> T:
    """Make a value of `kind`, which extends the data class of `found`, with the same fields."""
    return kind(**{one.name: getattr(found, one.name) for one in fields(found)})


def to_run(value: Any, tag: str | None = None) -> Run:
    """Make a run of another library's value; a `Run` stays as it is but for the tag. The rows get trec_eval's order.

    The value is a data frame (columns `qid`, `docno`, `score`), ranx's `Run` or ir_measures' `ScoredDoc`s. It may also
    be a dictionary with the score of each document of each query. The `tag` is the run's name; None: the name that
    a `Run` has, or `run`. `UserError` names an invalid row, and a document that a query has twice.
    """
    if not isinstance(tag, str | None):
        raise UserError(f"tag: found {type(tag).__name__}, expected text")
    if isinstance(value, Run):
        return replace(value, tag=tag) if tag else value
    rows, refuse = _list_rows(value, "run", SCORE_NAMES), partial(_make_error, "run")
    query_ids, offsets, order = _number_rows(rows, refuse)
    docs = encode_ids([_name(rows[i][1], i, refuse) for i in order])
    first = find_first_rows(docs, offsets)
    if len(again := np.flatnonzero(first != np.arange(len(first)))):
        raise refuse(order[again[0]], f"document {rows[order[again[0]]][1]} occurs more than once for its query")
    scores = np.array([_score(rows[i][2], i, refuse) for i in order], dtype=np.float64)
    name = tag or getattr(value, "name", None)
    return sort_as_trec_eval(Run(name if isinstance(name, str) else "run", query_ids, offsets, docs, scores))


def to_qrels(value: Any) -> Qrels:
    """Make judgments of another library's value; `Qrels` stay as they are.

    The value is a data frame (columns `qid`, `docno`, `label`), ranx's `Qrels`, or judgments of ir_measures or
    ir_datasets. It may also be a dictionary with the grade of each document of each topic. If `iteration` differs
    between rows, it names subtopics. `UserError` names an invalid row, and a document with two grades; it refuses a
    value without a row.
    """
    if isinstance(value, Qrels):
        return value
    rows, refuse = _list_rows(value, "qrels", GRADE_NAMES), partial(_make_error, "qrels")
    if not rows:
        raise UserError("qrels: found no row, expected judgments")
    query_ids, offsets, order = _number_rows(rows, refuse)
    docs = encode_ids([_name(rows[i][1], i, refuse) for i in order])
    subtopics = encode_ids([_name(rows[i][3], i, refuse) for i in order])
    grades = np.array([_grade(rows[i][2], i, refuse) for i in order], dtype=np.int64)

    def refuse_two_grades(first: NDArray[np.int64], wrong: NDArray[np.int64]) -> None:
        for row in wrong[:1].tolist():
            raise refuse(order[row], f"document {rows[order[row]][1]} has two grades, see row {order[first[row]] + 1}")

    return arrange_qrels(Qrels(query_ids, offsets, docs, grades), subtopics, refuse_two_grades)


def to_topics(value: Any) -> list[Topic]:
    """Make topics of another library's value; a list of `Topic` is checked and stays as it is.

    The value is a data frame (columns `qid`, `query`), ir_datasets' queries, a list of texts or of (id, text) pairs, or
    the narrative of each topic id as a dictionary. The id of a text alone is its place, from 0. `UserError` names a row
    that is no topic, and refuses a value without topics.
    """
    topics: list[Topic] | None = None
    if isinstance(value, str | PathLike):
        raise UserError(f"topics: found {type(value).__name__}, expected a value: read_topics reads a file")
    if hasattr(value, "columns"):
        query, text = (_choose_column(value, "topics", names) for names in (QUERY_NAMES, TEXT_NAMES))
        pairs = list(zip(value[query].to_list(), value[text].to_list(), strict=True))
    elif isinstance(value, Mapping):
        pairs = list(value.items())
    else:
        try:
            values = list(value)
            if all(isinstance(one, Topic) for one in values):
                topics, pairs = values, [(one.id, one.narrative) for one in values]
            elif all(isinstance(one, str) for one in values):
                pairs = [(str(place), text) for place, text in enumerate(values)]
            elif all(type(one) in (tuple, list) and len(one) == 2 for one in values):
                pairs = [(name, text) for name, text in values]
            else:
                pairs = [(one.query_id, make_narrative(one)) for one in values]
        except (AttributeError, TypeError) as error:
            raise UserError(
                f"topics: found {type(value).__name__}, expected a data frame, queries of ir_datasets, a list of "
                f"Topic, texts or (id, text) pairs, or a dictionary from topic id to narrative: {error}"
            ) from error
    if not pairs:
        raise UserError("topics: found none, expected at least one")
    checked = list(check_topics("topics", ((n, *pair, "id", "narrative", {}) for n, pair in enumerate(pairs, 1))))
    return [replace(one, id=own.id) for one, own in zip(topics, checked, strict=True)] if topics else checked


def _list_rows(value: Any, kind: str, number_names: Sequence[str]) -> list[Row]:
    """List query, document, number and subtopic of each row of a value, in its order."""
    if hasattr(value, "to_dict") and not hasattr(value, "columns"):  # ranx
        value = value.to_dict()
    if hasattr(value, "columns"):
        names = [_choose_column(value, kind, own) for own in (QUERY_NAMES, DOCUMENT_NAMES, number_names)]
        subtopics = value[SUBTOPIC_NAME].to_list() if SUBTOPIC_NAME in value.columns else repeat("0", len(value))
        return list(zip(*(value[name].to_list() for name in names), subtopics, strict=True))
    if isinstance(value, Mapping) and all(isinstance(own, Mapping) for own in value.values()):
        return [(query, doc_id, number, "0") for query, own in value.items() for doc_id, number in own.items()]
    number_name = number_names[-1] if kind == "run" else "relevance"
    if isinstance(value, str | PathLike):
        raise UserError(f"{kind}: found {type(value).__name__}, expected a value: read_{kind} reads a file")
    try:
        return [
            (row.query_id, row.doc_id, getattr(row, number_name), getattr(row, SUBTOPIC_NAME, "0")) for row in value
        ]
    except (AttributeError, TypeError) as error:
        raise UserError(
            f"{kind}: found {type(value).__name__}, expected a data frame, ranx's {kind.capitalize()}, a dictionary of "
            f"dictionaries, or rows with query_id, doc_id and {number_name}: {error}"
        ) from error


def _number_rows(rows: Sequence[Row], refuse: Refuse) -> tuple[tuple[str, ...], NDArray[np.int64], list[int]]:
    """Number the rows by query: the queries by first row, their offsets (int64[queries + 1]), the rows by query."""
    names = [_name(row[0], i, refuse) for i, row in enumerate(rows)]
    number = {name: place for place, name in enumerate(dict.fromkeys(names))}
    own = np.array([number[name] for name in names], dtype=np.int64)
    order: list[int] = np.argsort(own, kind="stable").tolist()
    return tuple(number), offsets_of(np.bincount(own, minlength=len(number))), order


def _choose_column(frame: Any, kind: str, names: Sequence[str]) -> str:
    columns = list(frame.columns)
    for name in find_names(columns, names)[:1]:
        if columns.count(name) > 1:
            raise UserError(f"{kind}: found the column {name} more than once")
        return name
    raise UserError(
        f"{kind}: found the columns {', '.join(map(str, columns)) or 'none'}, expected {' or '.join(names)}"
    )


def _make_error(kind: str, row: int, fault: str) -> UserError:
    return UserError(f"{kind}: row {row + 1}: {fault}")


def _name(value: Any, row: int, refuse: Refuse) -> str:
    """Name a query, document or subtopic: text without space, or an integer, which becomes text."""
    name = str(value) if isinstance(value, int | np.integer) and not isinstance(value, bool) else value
    if not isinstance(name, str) or not is_id(name):
        raise refuse(row, f"found the id {value!r}, expected {describe_id(value)}, or an integer")
    return name


def _score(value: Any, row: int, refuse: Refuse) -> float:
    number = _number(value)
    if number is None:
        raise refuse(row, f"found the score {value!r:.100}, expected a finite number")
    return float(number)


def _grade(value: Any, row: int, refuse: Refuse) -> int:
    number = _number(value)
    if number is None or int(number) != number or abs(number) > MOST_GRADE:
        raise refuse(row, f"found the grade {value!r:.100}, expected an integer from -2^53 to 2^53")
    return int(number)


def _number(value: Any) -> int | float | None:
    """Return a value if it is a finite number that a float can hold; else None."""
    if isinstance(value, np.generic):
        value = value.item()
    try:
        return value if isinstance(value, int | float) and isfinite(value) else None
    except OverflowError:
        return None


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
    | topics | `qid`, `query`, and `qtranslations` if one has any |
    | queries | as topics, `qtopic` (the topic's id), `qsparse`, `qdense`, `qpassage` |
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
    for query, doc_id, number in _list_numbers(value):
        by_query.setdefault(query, {})[doc_id] = number
    return ranx.Run(by_query, name=value.tag) if isinstance(value, Run) else ranx.Qrels(by_query)


def to_ir_measures(value: Run | Qrels) -> list[Any]:
    """Make ir_measures' `ScoredDoc`s of a run, or its `Qrel`s of judgments, with their subtopics."""
    from ir_measures import Qrel, ScoredDoc

    check_columns(value, "to_ir_measures")
    if isinstance(value, Run):
        return [ScoredDoc(*row) for row in _list_numbers(value)]
    if value.subtopics is not None:
        return [Qrel(topic, doc_id, grade, name) for topic, name, doc_id, grade in value.subtopics.list_rows()]
    return [Qrel(*row) for row in _list_numbers(value)]


def _list_numbers(value: Run | Qrels) -> list[tuple[str, str, Any]]:
    queries = np.repeat(np.array(value.query_ids, dtype=object), np.diff(value.offsets)).tolist()
    numbers = value.scores if isinstance(value, Run) else value.grades
    return list(zip(queries, value.docs.decode_ids(), numbers.tolist(), strict=True))


def _list_run_columns(run: Run) -> Columns:
    queries, docs, _ = zip(*_list_numbers(run), strict=True) if len(run.scores) else ((), (), ())
    ranks = np.arange(len(run.scores)) - np.repeat(run.offsets[:-1], np.diff(run.offsets))
    return {"qid": queries, "docno": docs, "score": run.scores, "rank": ranks}


def _list_qrels_columns(qrels: Qrels) -> Columns:
    columns = {"qid": 0, "docno": 1, "label": 2}
    rows: list[tuple[Any, ...]] = list(_list_numbers(qrels))
    if qrels.subtopics is not None:
        columns = {"qid": 0, "docno": 2, "label": 3, "iteration": 1}
        rows = list(qrels.subtopics.list_rows())
    return {name: [row[place] for row in rows] for name, place in columns.items()}


def _list_topic_columns(topics: Sequence[Topic]) -> Columns:
    columns: dict[str, Any] = {"qid": [topic.id for topic in topics], "query": [topic.narrative for topic in topics]}
    if any("translations" in topic.record for topic in topics):
        columns["qtranslations"] = [topic.record.get("translations") for topic in topics]
    return columns


def _list_query_columns(queries: Sequence[Query]) -> Columns:
    fields = {
        "qid": "id",
        "query": "question",
        "qtopic": "topic_id",
        "qsparse": "sparse_text",
        "qdense": "dense_text",
        "qpassage": "passage",
    }
    if any(query.translations for query in queries):
        fields["qtranslations"] = "translations"
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
