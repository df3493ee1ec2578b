"""The rows of each narrative that are submitted, if `fusion.depth` lets them be chosen."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from keystone.fusion.depth import (
    FEATURES,
    LEAST_PROBABILITY,
    calibrate,
    cut_by_budget,
    cut_by_f1,
    cut_by_precision,
    expect_f1,
    separate_scores,
    weigh_by_grades,
)
from keystone.indexing.errors import UserError
from keystone.indexing.io.json_values import digest
from keystone.retrieval.types import Rankings
from keystone.runs.config.run_config import RunConfig
from keystone.runs.config.sections import ChosenDepth

UNCHOSEN_ROWS = 100
"""The rows of a narrative whose scores no mixture fits."""


@dataclass(frozen=True, slots=True)
class DepthRecord:
    """How many rows of a topic are submitted, of how many, and why."""

    topic_id: str
    rows: int
    ranked: int
    why: str
    expected_f1: float | None = None
    probability: float | None = None
    """That of the last row that is kept."""


@dataclass(frozen=True, slots=True)
class _Calibration:
    features: list[str]
    weights: list[float]


@dataclass(frozen=True, slots=True)
class Graded:
    """The ranking of the narratives before grades, whose scores have probabilities, and the grades of each topic.

    A document's grade is the highest for any query, by its row.
    """

    narrative: Rankings
    grades: Sequence[Mapping[int, float]]


def choose_rows(config: RunConfig, ranking: Rankings, graded: Graded | None = None) -> list[DepthRecord]:
    """Choose the rows of each topic of a ranking. `fusion.choice` must be given; `fusion.depths` has precedence.

    Scores that grades have made have no probability. So with `graded`, those before the grades give the probabilities,
    and the grades change them.
    """
    choice = config.fusion.choice
    assert choice is not None
    weights = None if choice.calibration is None else read_weights(choice.calibration)
    scored = ranking if graded is None else graded.narrative
    scores = [scored.scores_of(i).astype(np.float64) for i in range(len(scored))]
    found = [separate_scores(own) if weights is None else calibrate(own, weights) for own in scores]
    if graded is not None:
        found = [p if p is None else _weigh(p, ranking.of(i), graded, i) for i, p in enumerate(found)]
    rankings = [ranking.of(i) for i in range(len(ranking))]
    cuts = _cut(choice, found)
    source = "a mixture of its scores" if choice.calibration is None else str(choice.calibration)
    source += "" if graded is None else ", and by grades"
    records = []
    for topic_id, own, p, rows in zip(ranking.query_ids, rankings, found, cuts, strict=True):
        if topic_id in config.fusion.depths:
            rows = min(config.fusion.depths[topic_id], len(own))
            records.append(DepthRecord(topic_id, rows, len(own), "fusion.depths"))
        elif p is None:
            rows = min(UNCHOSEN_ROWS, len(own))
            records.append(DepthRecord(topic_id, rows, len(own), "no mixture fits its scores"))
        else:
            why, last = f"{_name_goal(choice)}, by {source}", float(p[rows - 1]) if rows else None
            expected = round(float(expect_f1(p)[rows]), 6)
            records.append(DepthRecord(topic_id, rows, len(own), why, expected, last and round(last, 6)))
    return records


def _weigh(probabilities: NDArray[np.float64], docs: NDArray[np.int32], graded: Graded, i: int) -> NDArray[np.float64]:
    """Weigh the probabilities of a narrative's ranking by grades, in the order of `docs`, the ranking after them."""
    known = dict(zip(graded.narrative.of(i).tolist(), probabilities.tolist(), strict=True))
    own, grades = docs.tolist(), graded.grades[i]
    before = np.array([known.get(doc, LEAST_PROBABILITY) for doc in own])
    return weigh_by_grades(before, np.array([grades.get(doc, np.nan) for doc in own]))


def read_weights(path: Path) -> NDArray[np.float64]:
    """Read the weights of a file of `keystone tune --calibrate`: float64[features]. `UserError` for another file."""
    try:
        found = TypeAdapter(_Calibration).validate_json(path.read_bytes())
    except OSError as error:
        raise UserError(f"fusion.depth.calibration: {path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise UserError(f"{path}: {where}: {first['msg']}; expected a file of keystone tune --calibrate") from error
    if tuple(found.features) != FEATURES or len(found.weights) != len(FEATURES) or not np.isfinite(found.weights).all():
        raise UserError(f"{path}: features and weights: expected a finite weight for each of {', '.join(FEATURES)}")
    return np.array(found.weights)


def identify_choice(config: RunConfig) -> list[str]:
    """Identify how rows are chosen, for the key of a stage; empty for a fixed depth."""
    choice = config.fusion.choice
    if choice is None:
        return []
    weights = [] if choice.calibration is None else read_weights(choice.calibration).tolist()
    return [digest([choice.model_dump(mode="json", exclude={"calibration"}), weights])]


def _cut(choice: ChosenDepth, found: Sequence[NDArray[np.float64] | None]) -> list[int]:
    rankings = [np.zeros(0) if p is None else p for p in found]
    if choice.choose == "threshold":
        return [int(np.count_nonzero(p >= choice.threshold)) for p in rankings]
    if choice.budget is not None:
        return cut_by_budget(rankings, choice.budget)
    if choice.precision is not None:
        return [cut_by_precision(p, choice.precision) for p in rankings]
    return [cut_by_f1(p) for p in rankings]


def _name_goal(choice: ChosenDepth) -> str:
    if choice.choose == "threshold":
        return f"probability of {choice.threshold:g} or more"
    if choice.budget is not None:
        return f"the most probable {choice.budget} rows of all"
    return "best expected F1" if choice.precision is None else f"expected precision of {choice.precision:g} or more"
