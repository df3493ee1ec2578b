"""The ranking that is submitted: of documents, or of their segments, as the track and the configuration demand."""

from dataclasses import replace
from typing import Any

from keystone.generation.grading.grade import SELECTIONS
from keystone.retrieval.types import Rankings
from keystone.runs.config.run_config import RunConfig
from keystone.runs.pipeline import file_names
from keystone.runs.pipeline.grading.grade_files import list_best_grades
from keystone.runs.pipeline.job import Job
from keystone.runs.pipeline.ranking.cut import DepthRecord, Graded, choose_rows, identify_choice, list_read_systems
from keystone.runs.pipeline.ranking.rank import rank_for_track
from keystone.runs.pipeline.stage import Before, StageKind, Work
from keystone.runs.pipeline.stages.grades import GRADES_FILE
from keystone.runs.pipeline.stages.narrative import NARRATIVE_FILE
from keystone.runs.pipeline.stages.queries import QUERIES_FILE, get_queries, rank_queries_in
from keystone.runs.pipeline.stages.research import has_research
from keystone.runs.pipeline.values import Artifact, Values, make_records_artifact
from keystone.runs.track_rules import TRACKS
from keystone.runs.trec.run_files import read_run, write_run
from keystone.runs.trec.types import Run, make_run

DEPTHS_FILE = make_records_artifact(file_names.DEPTHS, DepthRecord)
"""How many rows of each topic are submitted, and why, if the rows are chosen."""


def get_retrieval_file(config: RunConfig) -> Artifact[Run]:
    """Get the file of the ranking that is submitted. The configuration must name a track."""
    assert config.track is not None
    name = TRACKS[config.track].retrieval_file
    return Artifact(name, lambda path, _: read_run(path), lambda path, run, _: write_run(path, run))


def _list_depths(before: Before) -> tuple[Artifact[list[DepthRecord]], ...]:
    return () if before.config.fusion.choice is None else (DEPTHS_FILE,)


def _counts_grades(config: RunConfig) -> bool:
    """Whether grades change the probabilities by which rows are chosen. A selected set has chosen already."""
    graded = config.grading.method is not None and not SELECTIONS[config.grading.select].is_set
    return graded and config.fusion.choice is not None


def choose_depths(values: Values, ranking: Rankings) -> list[DepthRecord]:
    """Choose the rows of each narrative of its last ranking, with the grades of the run, if it has any."""
    job, graded = values.job, None
    if _counts_grades(job.config):
        own = {one.topic_id: one for one in values.get(GRADES_FILE)}
        grades = [list_best_grades(own[topic.id], job.store) for topic in job.topics]
        graded = Graded(values.get(NARRATIVE_FILE), grades)
    systems = {name: values.get(file) for name, file in _list_read_files(job.config).items()}
    return choose_rows(job.config, ranking, graded, systems)


def _list_read_files(config: RunConfig) -> dict[str, Artifact[Rankings]]:
    """List the files of the systems that the calibration of `fusion.depth` reads, by name."""
    return {name: rank_queries_in(file_names.name_system_file(name)) for name in list_read_systems(config)}


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
    graded = (NARRATIVE_FILE, GRADES_FILE) if _counts_grades(before.config) else ()
    lists = _list_read_files(before.config).values()
    queries = (QUERIES_FILE,) if before.config.ranks_segments or lists else ()
    return (before.narrative_ranking, *graded, *lists, *queries)


def _make_key(job: Job, _: Before) -> Any:
    depths = [job.config.fusion.depths] if job.config.fusion.depths else []
    return [
        job.identity,
        job.plain_topics,
        job.plain_track,
        *job.segment_settings,
        *depths,
        *identify_choice(job.config),
    ]


STAGE = StageKind(
    name="segments",
    wanted=lambda config: config.track is not None and not has_research(config),
    makes=lambda before: (get_retrieval_file(before.config), *_list_depths(before)),
    notes=lambda before: _list_depths(before),
    reads=_list_inputs,
    key=_make_key,
    work=rank_units,
    answers_need=lambda _: False,
)
AFTER_RESEARCH = replace(STAGE, wanted=lambda config: config.track is not None and has_research(config))
"""The same stage after an agent's research, which ranks the narratives last."""
