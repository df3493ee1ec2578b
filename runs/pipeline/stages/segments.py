"""The ranking that is submitted: of documents, or of their segments, as the track and the configuration demand.

If `fusion.depth` lets the rows of each narrative be chosen, they are chosen here.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter, ValidationError

from keystone.fusion import depth
from keystone.indexing.errors import UserError
from keystone.indexing.io.json_values import digest
from keystone.retrieval.types import Rankings
from keystone.runs.config.run_config import RunConfig
from keystone.runs.config.sections import ChosenDepth
from keystone.runs.pipeline import file_names
from keystone.runs.pipeline.grade_files import list_best_grades
from keystone.runs.pipeline.job import Job
from keystone.runs.pipeline.ranking.rank import rank_for_track
from keystone.runs.pipeline.stage import Before, StageKind, Work
from keystone.runs.pipeline.stages.grades import GRADES_FILE, ends_with_set
from keystone.runs.pipeline.stages.narrative import NARRATIVE_FILE
from keystone.runs.pipeline.stages.queries import QUERIES_FILE, get_queries, rank_queries_in
from keystone.runs.pipeline.stages.research import has_research
from keystone.runs.pipeline.values import Artifact, Values, make_records_artifact
from keystone.runs.track_rules import TRACKS
from keystone.runs.trec.run_files import read_run, write_run
from keystone.runs.trec.types import Run, make_run

UNCHOSEN_ROWS = 100
"""The most rows of a narrative whose scores no mixture fits. From a budget, it gets an even share at most."""


@dataclass(frozen=True, slots=True)
class DepthRecord:
    """How many rows of a topic are submitted, of how many, and why."""

    topic_id: str
    rows: int
    ranked: int
    why: str
    expected_f1: float | None = None
    probability: float | None = None
    """The probability of the last row that is kept."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """What a file of `keystone tune --calibrate` holds: the weight of each feature."""

    features: list[str]
    weights: list[float]

    @property
    def systems(self) -> list[str]:
        """The systems whose lists it reads, beside the ranking; none if it was fitted with a single system."""
        names = self.features[len(depth.FEATURES) :: len(depth.SYSTEM_FEATURES)]
        return [name.removeprefix(f"{depth.SYSTEM_FEATURES[0]} by ") for name in names]


DEPTHS_FILE = make_records_artifact(file_names.DEPTHS, DepthRecord)
"""How many rows of each topic are submitted, and why, if the rows are chosen."""


def get_retrieval_file(config: RunConfig) -> Artifact[Run]:
    """Get the file of the ranking that is submitted. The configuration must name a track."""
    assert config.track is not None
    name = TRACKS[config.track].retrieval_file
    return Artifact(name, lambda path, _: read_run(path), lambda path, run, _: write_run(path, run))


def _list_depths(before: Before) -> tuple[Artifact[list[DepthRecord]], ...]:
    return () if before.config.fusion.choice is None else (DEPTHS_FILE,)


def _keeps_set(config: RunConfig) -> bool:
    """Whether a selected set is the last ranking. All of its rows are kept, since they were selected before."""
    return ends_with_set(config) and not has_research(config)


def _list_score_files(config: RunConfig) -> tuple[Artifact[Any], ...]:
    """List the files that give the probabilities if grades, a reranker or an agent follow the fusion.

    The last ranking gives them if the tuple is empty.
    """
    if config.fusion.choice is None or _keeps_set(config):
        return ()
    if config.grading.method is not None:
        return NARRATIVE_FILE, GRADES_FILE
    return (NARRATIVE_FILE,) if config.rerank.method is not None or has_research(config) else ()


def choose_depths(values: Values, ranking: Rankings) -> list[DepthRecord]:
    """Choose the rows of each narrative of its last ranking. `fusion.choice` must be given.

    `fusion.depths` has precedence. A set that grades have selected is kept whole.
    """
    config, choice = values.job.config, values.job.config.fusion.choice
    assert choice is not None
    keeps_set, counts_grades = _keeps_set(config), GRADES_FILE in _list_score_files(config)
    found = [None] * len(ranking) if keeps_set else _find_probabilities(values, ranking)
    rankings = [ranking.of(i) for i in range(len(ranking))]
    share = UNCHOSEN_ROWS if choice.budget is None else choice.budget // max(1, len(ranking))
    unchosen = min(UNCHOSEN_ROWS, share)
    fixed = [
        config.fusion.depths.get(topic_id, unchosen if p is None else None)
        for topic_id, p in zip(ranking.query_ids, found, strict=True)
    ]
    taken = sum(min(rows, len(own)) for rows, own in zip(fixed, rankings, strict=True) if rows is not None)
    cuts = _cut(choice, [p if rows is None else None for p, rows in zip(found, fixed, strict=True)], taken)
    source = "a mixture of its scores" if choice.calibration is None else choice.calibration.name
    source += ", and by grades" if counts_grades else ""
    records = []
    for topic_id, own, p, rows in zip(ranking.query_ids, rankings, found, cuts, strict=True):
        if topic_id in config.fusion.depths:
            rows = min(config.fusion.depths[topic_id], len(own))
            records.append(DepthRecord(topic_id, rows, len(own), "fusion.depths"))
        elif keeps_set:
            records.append(DepthRecord(topic_id, len(own), len(own), f"grading.select: {config.grading.select}"))
        elif p is None:
            rows = min(unchosen, len(own))
            records.append(DepthRecord(topic_id, rows, len(own), "no mixture fits its scores"))
        else:
            why, last = f"{_name_goal(choice)}, by {source}", float(p[rows - 1]) if rows else None
            expected = round(float(depth.expect_f1(p)[rows]), 6)
            records.append(DepthRecord(topic_id, rows, len(own), why, expected, last and round(last, 6)))
    return records


def _find_probabilities(values: Values, ranking: Rankings) -> list[NDArray[np.float64] | None]:
    """Find the probability of each row of each narrative; None for a narrative whose scores no mixture fits.

    Scores that grades, a reranker or an agent have made have no probability. So the scores of the fusion give the
    probabilities, each to the row at the same place of the last ranking. Grades change those of graded documents.
    """
    job, config, choice = values.job, values.job.config, values.job.config.fusion.choice
    assert choice is not None
    score_files = _list_score_files(config)
    scored = values.get(NARRATIVE_FILE) if score_files else ranking
    scores = [scored.scores_of(i).astype(np.float64) for i in range(len(scored))]
    found: list[NDArray[np.float64] | None]
    if choice.calibration is None:
        found = [depth.separate_scores(own) for own in scores]
    else:
        weights = np.array(read_calibration(choice.calibration).weights)
        by_system = [list(_describe_topics(scored, values.get(file))) for file in _list_read_files(config)]
        found = [depth.calibrate(own, weights, [one[i] for one in by_system]) for i, own in enumerate(scores)]
    if GRADES_FILE not in score_files:
        return [p if p is None else _fit_length(p, len(ranking.of(i))) for i, p in enumerate(found)]
    graded = {one.topic_id: one for one in values.get(GRADES_FILE)}
    grades = [list_best_grades(graded[topic.id], job.store) for topic in job.topics]
    return [p if p is None else _weigh(p, scored.of(i), ranking.of(i), grades[i]) for i, p in enumerate(found)]


def _fit_length(probabilities: NDArray[np.float64], rows: int) -> NDArray[np.float64]:
    """Return the probabilities of the first `rows` places; further places have the least probability."""
    further = np.full(max(0, rows - len(probabilities)), depth.LEAST_PROBABILITY)
    return np.append(probabilities[:rows], further)


def _describe_topics(ranking: Rankings, found: Rankings) -> Iterator[NDArray[np.float64]]:
    """Describe the rows of each topic of a ranking by what a system found for its whole narrative."""
    places = {query_id: place for place, query_id in enumerate(found.query_ids)}
    for i, topic_id in enumerate(ranking.query_ids):
        own = places[topic_id]
        hits = zip(found.of(own).tolist(), found.scores_of(own).tolist(), strict=True)
        yield depth.describe_by_system(ranking.of(i).tolist(), hits)


def _weigh(
    probabilities: NDArray[np.float64], scored: NDArray[np.int32], docs: NDArray[np.int32], grades: Mapping[int, float]
) -> NDArray[np.float64]:
    """Weigh the probabilities of the documents `scored` by grades, in the order of `docs`, the ranking after them."""
    known = dict(zip(scored.tolist(), probabilities.tolist(), strict=True))
    before = np.array([known.get(doc, depth.LEAST_PROBABILITY) for doc in docs.tolist()])
    return depth.weigh_by_grades(before, np.array([grades.get(doc, np.nan) for doc in docs.tolist()]))


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
    expected = depth.name_features(found.systems)
    if found.features != expected or len(found.weights) != len(expected) or not np.isfinite(found.weights).all():
        raise UserError(f"{path}: features and weights: expected a finite weight for each of {', '.join(expected)}")
    return found


def _identify_choice(config: RunConfig) -> list[str]:
    """Identify how rows are chosen, for the key of a stage; empty for a fixed depth, and for a set that is kept."""
    choice = config.fusion.choice
    if choice is None or _keeps_set(config):
        return []
    fitted = None if choice.calibration is None else read_calibration(choice.calibration)
    weights = [] if fitted is None else [*fitted.weights, *fitted.systems]
    return [digest([choice.model_dump(mode="json", exclude={"calibration"}), weights])]


def _list_read_files(config: RunConfig) -> list[Artifact[Rankings]]:
    """List the files of the systems that the calibration reads. `UserError` if the run lacks a system or its list."""
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
    return [rank_queries_in(file_names.name_system_file(name)) for name in systems]


def _cut(choice: ChosenDepth, found: Sequence[NDArray[np.float64] | None], taken: int) -> list[int]:
    """Choose the rows of each narrative with probabilities. The other narratives take `taken` rows of a budget."""
    rankings = [np.zeros(0) if p is None else p for p in found]
    if choice.choose == "threshold":
        return [int(np.count_nonzero(p >= choice.threshold)) for p in rankings]
    if choice.budget is not None:
        return depth.cut_by_budget(rankings, max(0, choice.budget - taken))
    if choice.precision is not None:
        return [depth.cut_by_precision(p, choice.precision) for p in rankings]
    return [depth.cut_by_f1(p) for p in rankings]


def _name_goal(choice: ChosenDepth) -> str:
    if choice.choose == "threshold":
        return f"probability of {choice.threshold:g} or more"
    if choice.budget is not None:
        return f"the most probable {choice.budget} rows of all"
    return "best expected F1" if choice.precision is None else f"expected precision of {choice.precision:g} or more"


def rank_units(work: Work) -> None:
    """Rank, for each topic, what the track judges: documents or segments."""
    job, values = work.job, work.values
    queries = get_queries(values) if job.config.ranks_segments else []
    ranking, chosen = values.get(work.before.narrative_ranking), None
    if job.config.fusion.choice is not None:
        records = choose_depths(values, ranking)
        values.put(DEPTHS_FILE, records)
        chosen = [record.rows for record in records]
    found = rank_for_track(job, queries, ranking, chosen)
    values.put(get_retrieval_file(job.config), make_run(job.config.run_id, found))


def _list_inputs(before: Before) -> tuple[Artifact[Any], ...]:
    lists = _list_read_files(before.config)
    queries = (QUERIES_FILE,) if before.config.ranks_segments or lists else ()
    return (before.narrative_ranking, *_list_score_files(before.config), *lists, *queries)


def _make_key(job: Job, _: Before) -> Any:
    choice = [*([job.config.fusion.depths] if job.config.fusion.depths else []), *_identify_choice(job.config)]
    return [job.identity, job.plain_topics, job.plain_track, *job.segment_settings, *choice]


STAGE = StageKind(
    name="segments",
    wanted=lambda config: config.track is not None and not has_research(config),
    makes=lambda before: (get_retrieval_file(before.config), *_list_depths(before)),
    notes=_list_depths,
    reads=_list_inputs,
    key=_make_key,
    work=rank_units,
    answers_need=lambda _: False,
)
AFTER_RESEARCH = replace(STAGE, wanted=lambda config: config.track is not None and has_research(config))
"""The same stage after an agent's research, which ranks the narratives last."""
