"""Measures by the names of `ir_measures`, each by itself, so that no measure depends on the others.

Keystone computes those that `measures` defines, and those of diversity. The packages behind `ir_measures` compute the
rest. They get numbers for ids and 1 for relevant grades, so no form of an id and no grade can mislead them.

The measures of diversity look at the subtopics of a topic, by the definitions of TREC's ndeval. They depend on no id:
ndeval orders equal documents of the ideal ranking by id; here, the overlaps of their subtopics decide.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr
from dataclasses import replace
from functools import cache, partial
from io import StringIO
from typing import Any

import numpy as np

from keystone.indexing.errors import UserError
from keystone.runs.evaluation.measures import (
    FAMILIES,
    SUBTOPIC_FAMILIES,
    GradedTopic,
    Measure,
    is_defined_here,
    measure_by_definition,
    read_ir_measure,
)
from keystone.runs.trec.arrays import Flags, Floats, Ints
from keystone.runs.trec.doc_ids import match_ids
from keystone.runs.trec.types import Qrels, pair_bounds

FAULTS = (ArithmeticError, AssertionError, LookupError, RuntimeError, TypeError, ValueError)
"""What the packages behind `ir_measures` raise for judgments or parameters that they do not expect."""


def measure_by_name(places: Ints, offsets: Ints, qrels: Qrels, measures: Sequence[Measure]) -> dict[str, Floats]:
    """Measure a run, sorted as trec_eval does, on the topics of `qrels`: for each measure float64[topics].

    Topic i owns the rows `offsets[i]:offsets[i + 1]` of `places` (int64[rows]), the positions of documents among the
    judgments of their topic; -1 marks a document without a judgment.
    """
    ranked, rankings = list_grades(places, offsets, qrels), cache(partial(_list_rankings, places, offsets))
    values = {}
    for measure in measures:
        asked = read_ir_measure(str(measure))
        if measure.family in SUBTOPIC_FAMILIES:
            found = _measure_diversity(asked, places, offsets, qrels, ranked)
        elif is_defined_here(asked):
            found = [measure_by_definition(asked, topic) for topic in _list_topics(ranked, offsets, qrels)]
        else:
            found = _ask_ir_measures(asked, rankings(), qrels).tolist()
        values[str(measure)] = np.array(found, dtype=np.float64)
    return values


def measure_by_function(
    function: Callable[[GradedTopic], float], places: Ints, offsets: Ints, qrels: Qrels, measure: Measure
) -> Floats:
    """Measure a run as `measure_by_name` does, by another package's function of one topic: float64[topics].

    `keystone.runs.evaluation.measures.Family` says what the function gets.
    """
    ranked, judgments = list_grades(places, offsets, qrels), qrels
    if not FAMILIES[measure.family].of_grades:
        judgments = replace(qrels, grades=_mark_relevant(qrels.grades, measure.relevant_from))
        ranked = _mark_relevant(ranked, measure.relevant_from)
    topics = _list_topics(ranked, offsets, judgments)
    cut = (replace(topic, ranked=topic.ranked[: measure.cutoff or None]) for topic in topics)
    return np.array([float(function(topic)) for topic in cut], dtype=np.float64)


def _mark_relevant(grades: Ints, lowest: int) -> Ints:
    return np.where(grades >= lowest, 1, np.minimum(grades, 0))


def _list_topics(ranked: Ints, offsets: Ints, qrels: Qrels) -> Iterator[GradedTopic]:
    """List the grades of each topic: of its judged documents, and of its rows in `ranked` (int64[rows])."""
    top = int(qrels.grades.max())
    for (a, b), (c, d) in zip(pair_bounds(qrels.offsets).tolist(), pair_bounds(offsets).tolist(), strict=True):
        yield GradedTopic(qrels.grades[a:b], ranked[c:d], top)


def list_grades(places: Ints, offsets: Ints, qrels: Qrels) -> Ints:
    """List the grade of each row, -1 for a document without a judgment: int64[rows]."""
    rows = np.repeat(qrels.offsets[:-1], np.diff(offsets)) + places
    return np.where(places < 0, -1, qrels.grades[np.maximum(rows, 0)])


def _measure_diversity(asked: Any, places: Ints, offsets: Ints, qrels: Qrels, ranked: Ints) -> list[float]:
    found = []
    judged_only = "judged_only" in asked.SUPPORTED_PARAMS and asked["judged_only"]
    for number, judged in enumerate(list_subtopic_flags(qrels, asked["rel"])):
        own = slice(*offsets[number : number + 2].tolist())
        rows = places[own][ranked[own] >= 0] if judged_only else places[own]
        found.append(measure_topic(asked, judged, judged[rows] & (rows >= 0)[:, None]))
    return found


def _ask_ir_measures(asked: Any, rankings: dict[str, dict[str, float]], qrels: Qrels) -> Floats:
    import ir_measures

    grades, plain = qrels.grades, asked
    if "rel" in asked.SUPPORTED_PARAMS and isinstance(asked["rel"], int):
        grades, plain = _mark_relevant(grades, asked["rel"]), asked(rel=1)
    with redirect_stderr(StringIO()):
        try:
            evaluator = ir_measures.evaluator([plain], _list_judgments(qrels.offsets, grades))
            metrics = list(evaluator.iter_calc(rankings))
        except FAULTS as error:
            reason = str(error) or type(error).__name__
            raise UserError(f"{asked}: ir_measures cannot compute it on these judgments: {reason}") from error
    values = np.zeros(len(qrels.query_ids))
    for metric in metrics:
        values[int(metric.query_id)] = metric.value
    if not np.isfinite(values).all():
        raise UserError(f"{asked}: ir_measures finds no number on these judgments; expected other parameters")
    return values


def _list_judgments(offsets: Ints, grades: Ints) -> dict[str, dict[str, int]]:
    """List the grades of each topic by its number, for documents by their positions.

    If all grades of a topic are negative, they become 0, or else trec_eval would read memory that it never wrote.
    """
    best = np.maximum.reduceat(grades, offsets[:-1])
    lifted = np.where(np.repeat(best, np.diff(offsets)) < 0, 0, grades).tolist()
    bounds = pair_bounds(offsets).tolist()
    return {str(i): {str(place): g for place, g in enumerate(lifted[a:b])} for i, (a, b) in enumerate(bounds)}


def _list_rankings(places: Ints, offsets: Ints) -> dict[str, dict[str, float]]:
    """List the rows of each topic that has any, with scores that fall from place to place."""
    found = {}
    for i, (start, end) in enumerate(pair_bounds(offsets).tolist()):
        own = places[start:end].tolist()
        names = [str(place) if place >= 0 else f"-{row}" for row, place in enumerate(own)]
        if names:
            found[str(i)] = dict(zip(names, np.arange(len(own), 0.0, -1).tolist(), strict=True))
    return found


EQUAL = 1 - 1e-12
"""Gains that differ by less than this factor are equal."""


def list_subtopic_flags(qrels: Qrels, grade: int) -> Iterator[Flags]:
    """List for each topic which documents are relevant, from a grade on, to which subtopics: bool[judged, subtopics].

    Subtopics without a relevant document are left out. Judgments without subtopics are of one subtopic.
    """
    if qrels.subtopics is None:
        for start, end in pair_bounds(qrels.offsets).tolist():
            relevant = qrels.grades[start:end] >= grade
            yield relevant[:, None][:, : int(relevant.any())]
        return
    rows = qrels.subtopics
    _, places = match_ids(qrels.docs, pair_bounds(qrels.offsets), rows.docs, pair_bounds(rows.offsets))
    _, numbers = rows.subtopics.find_distinct()
    bounds = zip(pair_bounds(qrels.offsets).tolist(), pair_bounds(rows.offsets).tolist(), strict=True)
    for (first, last), (start, end) in bounds:
        of_grade = start + np.flatnonzero(rows.grades[start:end] >= grade)
        _, columns = np.unique(numbers[of_grade], return_inverse=True)
        flags = np.zeros((last - first, columns.max(initial=-1) + 1), dtype=bool)
        flags[places[of_grade] - first, columns] = True
        yield flags


def measure_topic(asked: Any, judged: Flags, ranked: Flags) -> float:
    """Measure a topic by the subtopics of its judged documents and of the rows of its ranking: bool[..., subtopics]."""
    subtopics = judged.shape[1]
    if not subtopics or not ranked.any():
        return 0.0
    cutoff = asked.params.get("cutoff", len(ranked))
    found = ranked[:cutoff]
    if asked.NAME == "StRecall":
        return float(found.any(axis=0).mean())
    if asked.NAME == "P_IA":
        return float(found.sum() / (cutoff * subtopics))
    if asked.NAME == "AP_IA":
        precision = np.cumsum(found, axis=0) / np.arange(1, len(found) + 1)[:, None]
        return float(((precision * found).sum(axis=0) / judged.sum(axis=0)).mean())
    alpha = asked["alpha"] if "alpha" in asked.SUPPORTED_PARAMS else 0.5
    gain = _discount(asked, _find_gains(found, alpha)).sum()
    if asked.NAME in ("alpha_nDCG", "nERR_IA", "nNRBP"):
        depth = cutoff if "cutoff" in asked.params else len(judged)
        return float(gain / _discount(asked, _find_ideal_gains(judged, alpha, depth)).sum())
    if asked.NAME == "NRBP":
        return float(gain * (1 - (1 - alpha) * asked["beta"]) / subtopics)
    return float(gain / _discount(asked, subtopics * (1 - alpha) ** np.arange(cutoff)).sum())


def _find_gains(found: Flags, alpha: float) -> Floats:
    """Find the gain of each row: each time that a subtopic was seen before lowers its gain by the share alpha."""
    seen: Ints = np.cumsum(found, axis=0) - found
    return np.asarray(((1 - alpha) ** seen * found).sum(axis=1), dtype=np.float64)


def _discount(asked: Any, gains: Floats) -> Floats:
    """Discount gains by rank, as alpha-nDCG, ERR-IA or NRBP."""
    places = np.arange(len(gains))
    if asked.NAME in ("NRBP", "nNRBP"):
        return np.asarray(gains * float(asked["beta"]) ** places)
    return gains / (np.log2(places + 2) if "DCG" in asked.NAME else places + 1)


def _find_ideal_gains(judged: Flags, alpha: float, depth: int) -> Floats:
    """Find the gains of the ideal ranking, greedily: the document with the highest gain comes next."""
    kinds, counts = np.unique(judged[judged.any(axis=1)], axis=0, return_counts=True)
    order = np.argsort(_number_by_overlaps(kinds, counts.tolist()), kind="stable")
    kinds, counts = kinds[order], counts[order]
    seen: Ints = np.zeros(kinds.shape[1], dtype=np.int64)
    gains = list[float]()
    while len(gains) < depth and counts.any():
        offered = np.where(counts > 0, kinds @ (1.0 - alpha) ** seen, -1)
        best = int(np.argmax(offered >= offered.max() * EQUAL))
        gains.append(float(offered[best]))
        counts[best] -= 1
        seen += kinds[best]
    return np.array(gains)


def _number_by_overlaps(kinds: Flags, counts: Sequence[int]) -> list[int]:
    """Number kinds of documents by the subtopics that they share, whatever the names of both; rarer kinds first.

    Two kinds differ if their counts do, or if they share subtopics with kinds that differ (colour refinement).
    """
    own = _number(counts)
    while True:
        subtopics = _number([_list_shared(own, column) for column in kinds.T])
        refined = _number([(own[i], _list_shared(subtopics, row)) for i, row in enumerate(kinds)])
        if max(refined) == max(own):
            return own
        own = refined


def _list_shared(numbers: Sequence[int], flags: Flags) -> tuple[int, ...]:
    return tuple(sorted(numbers[i] for i in np.flatnonzero(flags).tolist()))


def _number(keys: Sequence[Any]) -> list[int]:
    """Number keys from 0 in their order; equal keys have the same number."""
    numbers = {key: number for number, key in enumerate(sorted(set(keys)))}
    return [numbers[key] for key in keys]
