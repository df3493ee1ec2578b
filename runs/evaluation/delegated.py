"""Measures that `ir_measures` computes, on lists in trec_eval's order."""

from collections.abc import Sequence
from contextlib import redirect_stderr
from io import StringIO

import numpy as np
from numpy.typing import NDArray

from keystone.indexing.errors import UserError
from keystone.runs.evaluation.measures import SUBTOPIC_FAMILIES, Measure, read_ir_measure
from keystone.runs.trec.types import Qrels, Run


def measure_by_ir_measures(run: Run, qrels: Qrels, measures: Sequence[Measure]) -> dict[str, NDArray[np.float64]]:
    """Measure a run, sorted as trec_eval does, on the topics of `qrels`: for each measure float64[topics].

    NaN marks a topic that a measure leaves out. Places stand for scores, so all measures see the same order of ties.
    """
    values = {str(measure): np.full(len(qrels.query_ids), np.nan) for measure in measures}
    by_document = [measure for measure in measures if measure.family not in SUBTOPIC_FAMILIES]
    by_subtopic = [measure for measure in measures if measure.family in SUBTOPIC_FAMILIES]
    number = {topic: i for i, topic in enumerate(qrels.query_ids)}
    for own, judged in ((by_document, _list_judgments), (by_subtopic, _list_subtopic_judgments)):
        if own:
            _fill(values, own, judged(qrels), run, number)
    return values


def _fill(
    values: dict[str, NDArray[np.float64]],
    measures: Sequence[Measure],
    judged: list[tuple[str, str, str, int]],
    run: Run,
    number: dict[str, int],
) -> None:
    import ir_measures

    judgments = [ir_measures.Qrel(topic, doc, grade, subtopic) for topic, subtopic, doc, grade in judged]
    lengths = np.diff(run.offsets)
    places = (np.repeat(run.offsets[1:], lengths) - np.arange(len(run.scores))).tolist()
    topics = np.repeat(run.query_ids, lengths).tolist()
    ranked = list(map(ir_measures.ScoredDoc, topics, run.docs.decode_ids(), map(float, places)))
    with redirect_stderr(StringIO()):  # a remark about subtopics, for which Keystone has a caution
        evaluator = ir_measures.evaluator([read_ir_measure(str(m)) for m in measures], judgments)
    try:
        for found in evaluator.iter_calc(ranked):
            values[repr(found.measure)][number[found.query_id]] = found.value
    except (ArithmeticError, ValueError) as error:
        names = ", ".join(map(str, measures))
        raise UserError(f"{names}: ir_measures cannot compute it on these judgments: {error}") from error


def _list_judgments(qrels: Qrels) -> list[tuple[str, str, str, int]]:
    """List topic, subtopic, document and grade.

    If all grades of a topic are negative, they become 0, because trec_eval would read memory that it never wrote.
    """
    lengths = np.diff(qrels.offsets)
    best = np.maximum.reduceat(qrels.grades, qrels.offsets[:-1])
    grades = np.where(np.repeat(best, lengths) < 0, 0, qrels.grades)
    topics = np.repeat(qrels.query_ids, lengths).tolist()
    return list(zip(topics, ["0"] * len(topics), qrels.docs.decode_ids(), grades.tolist(), strict=True))


def _list_subtopic_judgments(qrels: Qrels) -> list[tuple[str, str, str, int]]:
    return _list_judgments(qrels) if qrels.subtopics is None else qrels.subtopics.list_rows()
