"""Measures of diversity, which look at the subtopics of a topic, by the definitions of TREC's ndeval.

They depend on no id: where ndeval orders equal documents of the ideal ranking by their ids, the overlaps of their
subtopics decide.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keystone.runs.trec.doc_ids import match_ids
from keystone.runs.trec.types import Qrels, pair_bounds

Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]
EQUAL = 1 - 1e-12
"""Gains that differ by less than this factor are equal."""


def list_subtopic_flags(qrels: Qrels, grade: int) -> Iterator[Flags]:
    """For each topic, list which documents are relevant to which subtopics from a grade on: bool[judged, subtopics].

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
    """Find the gain of each row: each time that a subtopic was seen before takes the share alpha of its gain."""
    seen: NDArray[np.int64] = np.cumsum(found, axis=0) - found
    return np.asarray(((1 - alpha) ** seen * found).sum(axis=1), dtype=np.float64)


def _discount(asked: Any, gains: Floats) -> Floats:
    """Discount gains by rank, as alpha-nDCG, ERR-IA or NRBP."""
    places = np.arange(len(gains))
    if asked.NAME in ("NRBP", "nNRBP"):
        return np.asarray(gains * float(asked["beta"]) ** places)
    return gains / (np.log2(places + 2) if "DCG" in asked.NAME else places + 1)


def _find_ideal_gains(judged: Flags, alpha: float, depth: int) -> Floats:
    """Find the gains of the best ranking, as far as taking the document of the highest gain each time finds it."""
    kinds, counts = np.unique(judged[judged.any(axis=1)], axis=0, return_counts=True)
    order = np.argsort(_number_by_overlaps(kinds, counts.tolist()), kind="stable")
    kinds, counts = kinds[order], counts[order]
    seen: NDArray[np.int64] = np.zeros(kinds.shape[1], dtype=np.int64)
    gains = list[float]()
    while len(gains) < depth and counts.any():
        offered = np.where(counts > 0, kinds @ (1.0 - alpha) ** seen, -1)
        best = int(np.argmax(offered >= offered.max() * EQUAL))
        gains.append(float(offered[best]))
        counts[best] -= 1
        seen += kinds[best]
    return np.array(gains)


def _number_by_overlaps(kinds: Flags, counts: Sequence[int]) -> list[int]:
    """Number kinds of documents by the subtopics that they share, whatever the names of both; rarer subtopics first.

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
