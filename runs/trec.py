"""TREC run and qrels files.

trec_eval ignores the rank column and sorts by score down, then document id *down*, some tools in float32. So a
run is written with scores that strictly decrease in float32, and every reader finds the order that was meant.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexing.errors import UserError
from indexing.files import lines, written


@dataclass(frozen=True, slots=True)
class Run:
    """A run: for each query its (document id, score) pairs, best first."""

    tag: str
    hits: dict[str, list[tuple[str, float]]]


Qrels = dict[str, dict[str, int]]
"""Judgments: query id -> document id -> grade."""


def strictly_decreasing(scores: Sequence[float] | NDArray[np.floating[Any]]) -> NDArray[np.float32]:
    """Scores (not increasing, finite) as float32, each below the one before by as little as float32 can hold."""
    with np.errstate(over="ignore"):
        values = np.asarray(scores, dtype=np.float64).astype(np.float32)
    if not np.all(np.isfinite(values)):
        raise ValueError("a score is not finite in float32")
    bits = values.view(np.int32).astype(np.int64)
    steps = np.where(bits < 0, -(bits & 0x7FFFFFFF), bits)  # float32 as integers in the order of their values
    position = np.arange(len(steps))
    steps = np.minimum.accumulate(steps + position) - position
    return np.where(steps < 0, -steps | 0x80000000, steps).astype(np.uint32).view(np.float32)


def write_run(path: Path, run: Run, depth: int | None = None) -> None:
    """Write a run with ranks from 1, in the order given, at most `depth` rows a query; all of it or nothing."""
    with written(path) as out:
        for query_id, hits in run.hits.items():
            kept = hits[:depth]
            scores = strictly_decreasing([score for _, score in kept]).tolist()
            rows = (
                f"{query_id} Q0 {doc_id} {rank} {score:.9g} {run.tag}\n"
                for rank, ((doc_id, _), score) in enumerate(zip(kept, scores, strict=True), start=1)
            )
            out.write("".join(rows).encode())


def read_run(path: Path) -> Run:
    """A run in the order of its lines. `UserError` with file and line for a malformed or repeated row."""
    hits: dict[str, list[tuple[str, float]]] = {}
    seen: set[tuple[str, str]] = set()
    tag = ""
    for number, line in lines(path):
        fields = line.split()
        if len(fields) != 6:
            raise UserError(f"{path}:{number}: expected 6 columns, found {len(fields)}")
        query_id, _, doc_id, _, score_text, tag = fields
        if (query_id, doc_id) in seen:
            raise UserError(f"{path}:{number}: document {doc_id} occurs more than once for {query_id}")
        seen.add((query_id, doc_id))
        hits.setdefault(query_id, []).append((doc_id, _score(score_text, f"{path}:{number}")))
    return Run(tag, hits)


def _score(text: str, where: str) -> float:
    try:
        score = float(text)
    except ValueError:
        score = math.nan
    if not math.isfinite(score):
        raise UserError(f"{where}: score: expected a finite number, found {text!r}")
    return score


def in_trec_eval_order(hits: Sequence[tuple[str, float]]) -> list[str]:
    """Document ids as trec_eval ranks them: by float32 score down, then id down."""
    return [doc_id for _, doc_id in sorted(((float(np.float32(s)), d) for d, s in hits), reverse=True)]


def read_qrels(path: Path) -> Qrels:
    """Judgments in TREC form; the second column is not looked at. `UserError` with file and line where malformed."""
    qrels: Qrels = {}
    for number, line in lines(path):
        fields = line.split()
        if len(fields) != 4:
            raise UserError(f"{path}:{number}: expected 4 columns, found {len(fields)}")
        query_id, _, doc_id, grade = fields
        try:
            value = int(grade)
        except ValueError:
            raise UserError(f"{path}:{number}: grade: expected a whole number, found {grade!r}") from None
        if qrels.setdefault(query_id, {}).setdefault(doc_id, value) != value:
            raise UserError(f"{path}:{number}: document {doc_id} has two grades for {query_id}")
    if not qrels:
        raise UserError(f"{path}: holds no judgment")
    return qrels
