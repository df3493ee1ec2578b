"""The answer file that is submitted to the track."""

from typing import Any

from keystone.runs.config.run_config import RunConfig
from keystone.runs.pipeline.stage import StageKind, Work
from keystone.runs.pipeline.stages.answer import ANSWERS_FILE
from keystone.runs.pipeline.values import Artifact, make_records_artifact
from keystone.runs.track_rules import TRACKS
from keystone.runs.tracks.answer_files import cite_by_track_ids, make_answer_records


def get_submission_file(config: RunConfig) -> Artifact[list[dict[str, Any]]]:
    """Get the file that is submitted: an object for each topic or answer. The configuration must name a track."""
    assert config.track is not None
    return make_records_artifact(TRACKS[config.track].answer_file, dict[str, Any], dict, dict)


def write_submission(work: Work) -> None:
    """Write the objects of the track's answer file, one for each topic."""
    job = work.job
    made = {answer.topic_id: cite_by_track_ids(answer, job.track) for answer in work.values.get(ANSWERS_FILE)}
    work.values.put(get_submission_file(job.config), make_answer_records(job.topics, made, job.track, job.author))


STAGE = StageKind(
    name="submission",
    wanted=lambda config: config.has_answers,
    makes=lambda before: (get_submission_file(before.config),),
    reads=lambda _: (ANSWERS_FILE,),
    key=lambda job, _: [job.identity, job.plain_topics, job.plain_track, job.author.as_json()],
    work=write_submission,
    answers_need=lambda _: False,
)
