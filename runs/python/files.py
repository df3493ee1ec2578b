"""Files for Python: topics, runs and judgments read and written, runs measured, submissions validated."""

import os
from collections.abc import Iterable
from typing import Any

from keystone.indexing.errors import UserError
from keystone.indexing.types import describe_id, is_id
from keystone.retrieval.types import Topic
from keystone.runs.evaluation import evaluate as evaluation
from keystone.runs.evaluation.evaluate import Evaluation
from keystone.runs.evaluation.measures import DEFAULT_MEASURES, Measure, parse_measures
from keystone.runs.pipeline.track_of_file import find_track
from keystone.runs.python.checks import check_distinct, check_id, check_path
from keystone.runs.python.conversions import to_qrels, to_run, to_topics
from keystone.runs.track_rules import TRACKS, set_topic_limits
from keystone.runs.tracks import validate as validation
from keystone.runs.tracks.validate import Verdict
from keystone.runs.trec import run_files
from keystone.runs.trec import topics as topic_files
from keystone.runs.trec.types import Qrels, Run

AnyPath = str | os.PathLike[str]


def read_topics(path: AnyPath) -> list[Topic]:
    """Read narratives in any form of topics. `UserError` names file and line of a bad topic."""
    return topic_files.read_topics(check_path(path, "path"))


def read_run(path: AnyPath) -> Run:
    """Read a run file into trec_eval's order. `UserError` names file and line of a bad row, and a file without rows."""
    file = check_path(path, "path")
    return run_files.require_rows(file, run_files.read_run(file))


def write_run(path: AnyPath, run: Any) -> None:
    """Write a run file, whole or not at all. Scores strictly decrease in float32.

    `run` is anything that `to_run` takes. `UserError` for a tag or a query id that a run file cannot hold, for a query
    id that occurs twice, and for a score that float32 cannot hold.
    """
    run = to_run(run)
    if not is_id(run.tag):
        raise UserError(f"run: found the tag {run.tag!r}, expected {describe_id(run.tag)}: give to_run another tag")
    for query_id in run.query_ids:
        check_id(query_id, "run")
    check_distinct(run.query_ids, "run")
    try:
        run_files.write_run(check_path(path, "path"), run)
    except ValueError as error:
        raise UserError(f"run: {error}, expected scores that run files can hold") from error


def read_qrels(path: AnyPath) -> Qrels:
    """Read TREC judgments. `UserError` names file and line of a bad row."""
    return run_files.read_qrels(check_path(path, "path"))


def write_qrels(path: AnyPath, qrels: Any) -> None:
    """Write TREC judgments, whole or not at all, with subtopics or 0 in the second column.

    `qrels` are anything that `to_qrels` takes.
    """
    run_files.write_qrels(check_path(path, "path"), to_qrels(qrels))


def list_measures(value: Any) -> tuple[Measure, ...]:
    """Parse measures by name, or ir_measures' own; a single one may be given alone. `UserError` for an unknown one."""
    many = isinstance(value, Iterable) and not isinstance(value, str)
    return parse_measures(map(str, value if many else [value]))


def evaluate(run: Any, qrels: Any, measures: Any = ()) -> Evaluation:
    """Measure a run by names such as `nDCG@10`, or by one name; without names, by those of `keystone evaluate`.

    `run` and `qrels` are anything that `to_run` and `to_qrels` take, and `measures` may be ir_measures' own. If no
    topic has a relevant document, a measure that needs one is NaN, and the evaluation says so. `UserError` for an
    unknown measure, and if all measures are NaN.
    """
    run, wanted = to_run(run), list_measures(measures) or DEFAULT_MEASURES
    return evaluation.evaluate(run.tag, run, to_qrels(qrels), wanted)


def validate(path: AnyPath, topics: Any, track: str | None = None) -> Verdict:
    """Judge a submission file by the rules of a track, by default that of its run, or else of its form.

    `topics` are anything that `to_topics` takes.
    """
    if track is not None and track not in TRACKS:
        raise UserError(f"track: found {track!r}, expected one of {', '.join(TRACKS)}")
    file = check_path(path, "path")
    topics, rules = to_topics(topics), TRACKS[track] if track else find_track(file, "the argument track")
    return validation.judge(file, set_topic_limits(rules, topics), topics)
