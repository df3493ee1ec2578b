"""The rows of each narrative that are submitted, if `fusion.depth` lets them be chosen."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from keystone.fusion.depth import (
    FEATURES,
    LEAST_PROBABILITY,
    SYSTEM_FEATURES,
    calibrate,
    cut_by_budget,
    cut_by_f1,
    cut_by_precision,
    describe_by_system,
    expect_f1,
    name_features,
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
class Fitted:
    """What a file of `keystone tune --calibrate` holds: the weight of each feature."""

    features: list[str]
    weights: list[float]

    @property
    def systems(self) -> list[str]:
        """The systems whose lists it reads, beside the ranking; none if it was fitted with a single system."""
        names = self.features[len(FEATURES) :: len(SYSTEM_FEATURES)]
        return [name.removeprefix(f"{SYSTEM_FEATURES[0]} by ") for name in names]


@dataclass(frozen=True, slots=True)
class Graded:
    """The ranking of the narratives before grades, whose scores have probabilities, and the grades of each topic.

    A document's grade is the highest for any query, by its row.
    """

    narrative: Rankings
    grades: Sequence[Mapping[int, float]]


def choose_rows(
    config: RunConfig,
    ranking: Rankings,
    graded: Graded | None = None,
    systems: Mapping[str, Rankings] = MappingProxyType({}),
) -> list[DepthRecord]:
    """Choose the rows of each topic of a ranking. `fusion.choice` must be given; `fusion.depths` has precedence.

    `systems` holds what each system that the calibration reads found for all queries.

    Scores that grades have made have no probability. So with `graded`, those before the grades give the probabilities,
    and the grades change them.
    """
    choice = config.fusion.choice
    assert choice is not None
    scored = ranking if graded is None else graded.narrative
    scores = [scored.scores_of(i).astype(np.float64) for i in range(len(scored))]
    found: list[NDArray[np.float64] | None]
    if choice.calibration is None:
        found = [separate_scores(own) for own in scores]
    else:
        weights = np.array(read_calibration(choice.calibration).weights)
        by_system = [list(_describe_topics(scored, own)) for own in systems.values()]
        found = [calibrate(own, weights, [one[i] for one in by_system]) for i, own in enumerate(scores)]
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


def _describe_topics(ranking: Rankings, found: Rankings) -> Iterator[NDArray[np.float64]]:
    """Describe the rows of each topic of a ranking by what a system found for its whole narrative."""
    places = {query_id: place for place, query_id in enumerate(found.query_ids)}
    for i, topic_id in enumerate(ranking.query_ids):
        own = places[topic_id]
        hits = zip(found.of(own).tolist(), found.scores_of(own).tolist(), strict=True)
        yield describe_by_system(ranking.of(i).tolist(), hits)


def _weigh(probabilities: NDArray[np.float64], docs: NDArray[np.int32], graded: Graded, i: int) -> NDArray[np.float64]:
    """Weigh the probabilities of a narrative's ranking by grades, in the order of `docs`, the ranking after them."""
    known = dict(zip(graded.narrative.of(i).tolist(), probabilities.tolist(), strict=True))
    own, grades = docs.tolist(), graded.grades[i]
    before = np.array([known.get(doc, LEAST_PROBABILITY) for doc in own])
    return weigh_by_grades(before, np.array([grades.get(doc, np.nan) for doc in own]))


def read_calibration(path: Path) -> Fitted:
    """Read a file of `keystone tune --calibrate`. `UserError` for another file."""
    try:
        found = TypeAdapter(Fitted).validate_json(path.read_bytes())
    except OSError as error:
        raise UserError(f"fusion.depth.calibration: {path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        raise UserError(f"{path}: {where}: {first['msg']}; expected a file of keystone tune --calibrate") from error
    expected = name_features(found.systems)
    if found.features != expected or len(found.weights) != len(expected) or not np.isfinite(found.weights).all():
        raise UserError(f"{path}: features and weights: expected a finite weight for each of {', '.join(expected)}")
    return found


def identify_choice(config: RunConfig) -> list[str]:
    """Identify how rows are chosen, for the key of a stage; empty for a fixed depth."""
    choice = config.fusion.choice
    if choice is None:
        return []
    fitted = None if choice.calibration is None else read_calibration(choice.calibration)
    weights = [] if fitted is None else [*fitted.weights, *fitted.systems]
    return [digest([choice.model_dump(mode="json", exclude={"calibration"}), weights])]


def list_read_systems(config: RunConfig) -> list[str]:
    """List the systems whose lists the calibration of a run reads. `UserError` if the run lacks one or its list."""
    choice = config.fusion.choice
    if choice is None or choice.calibration is None:
        return []
    systems, own = read_calibration(choice.calibration).systems, config.list_systems()
    if not set(systems) <= set(own):
        raise UserError(
            f"{choice.calibration}: fitted with the systems {', '.join(systems)}; "
            f"expected systems of the run, which are {', '.join(own)}"
        )
    if systems and not config.searches_narratives:
        raise UserError(
            f"{choice.calibration}: fitted with lists for whole narratives; "
            "expected queries.narrative_weight above 0, so that the run has them"
        )
    return systems


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
