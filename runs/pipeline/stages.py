"""The stages of a run as a table: each makes its artifacts from those before it and its part of the configuration.

Each is a function from values to values; `keystone.runs.pipeline.directory` reads and writes the files around it. A run
that was interrupted so gets the same values as one that was not.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from keystone.indexing.io.writing import lock_folder
from keystone.indexing.types import Progress, Tick, silent
from keystone.runs.config.run_config import RunConfig
from keystone.runs.pipeline.artifacts import Artifacts, list_artifacts
from keystone.runs.pipeline.directory import Stage, Values, Watch, perform_stages
from keystone.runs.pipeline.job import Job, open_job
from keystone.runs.pipeline.manifest import describe_inputs, describe_model, describe_outcome
from keystone.runs.pipeline.model_runner import RunWithModel, open_model_runner
from keystone.runs.pipeline.run_model import StepCount
from keystone.runs.pipeline.stage_work import (
    make_answers,
    make_evidence,
    make_grades,
    make_hybrid,
    make_narrative,
    make_queries,
    make_rankings,
    make_reranked,
    make_retrieval,
    make_submission,
)


def run(
    config: RunConfig,
    threads: int = 1,
    progress: Progress = silent,
    announce: Callable[[Stage, bool], None] = lambda _stage, _reused: None,
    lenders: Sequence[Path] = (),
    retry: bool = False,
) -> Path:
    """Make a run, or finish one that was interrupted; returns its directory.

    Artifacts that the run directories `lenders` have with the same inputs are linked, not made again. If `retry` is
    true, the model is asked again for replies that no reader could use, and the files from them are made anew.

    `UserError` if the configuration names a missing file, or if another process makes the same run.
    """

    def name_run(stage: str, total: int | None) -> AbstractContextManager[Tick]:
        return progress(f"{config.run_id}: {stage}", total)

    job = open_job(config, threads, progress)
    values = Values(job.directory, lenders)
    found = list_artifacts(job, values)
    steps = StepCount()
    watch = Watch(announce, name_run, steps.take)
    with lock_folder(job.directory), open_model_runner(config, job.directory, steps, retry) as run_with_model:
        table = list_stages(job, run_with_model, found)
        perform_stages(values, table, describe_inputs(job), watch, lambda: describe_outcome(job, values, found), retry)
    return job.directory


def list_stages(job: Job, run_with_model: RunWithModel, files: Artifacts) -> list[Stage]:
    """List the stages that a configuration needs, in order."""
    config, index, plain = job.config, job.index.key, job.config.model_dump(mode="json")
    asks = config.list_model_steps()
    asks_for_queries = any(key.startswith("queries.") for key in asks) or bool(config.list_passage_systems())
    weightless = {**plain["queries"], "narrative_weight": config.queries.narrative_weight > 0, "passage_weight": None}
    if isinstance(config.retrieval.systems, dict):
        weightless |= {"passages": "systems" if config.list_passage_systems() else None}
    given = {"runs": [one.sha256 for one in job.given]} if job.given else {}
    unused = {"runs"} if job.index.passages else {"runs", "first_passage_weight"}
    retrieval = {key: value for key, value in plain["retrieval"].items() if key not in unused} | given
    if isinstance(config.retrieval.systems, dict):
        own = plain["retrieval"]["systems"]
        retrieval |= {"systems": {name: {**one, "weight": None} for name, one in own.items()}}
    passages = [plain["queries"]["passages"], plain["queries"]["passage_weight"]]
    identity = {"run_id": config.run_id, "index": index}
    segments = [config.segments_per_document] if config.ranks_segments else []
    topics, track = [[topic.id, topic.narrative] for topic in job.topics], asdict(job.track)
    has_grades, has_files = config.grading.method is not None, config.track is not None
    has_answers = has_files and config.answer.method is not None
    reranks_first, reranks_last = config.reranks_after("fusion"), config.reranks_after("grades")
    narrative = files.reranked if reranks_first else files.narrative
    graded = files.graded if reranks_last else files.keystone
    ranking = files.keystone if has_grades else narrative
    rerank = Stage(
        "rerank",
        (files.keystone if reranks_last else files.reranked, files.reranks),
        (graded if reranks_last else files.narrative,),
        [identity, topics, _describe_reranker(plain["rerank"]), describe_model(config, "rerank.method" in asks)],
        partial(make_reranked, job, run_with_model),
    )
    has_rounds = has_grades and config.grading.rounds > 0
    of_queries = files.joined if has_rounds else files.hybrid
    found = (files.queries, of_queries, ranking, *((files.grades,) if has_grades else ()))
    window = config.model.window if config.model and "answer.method" in asks else None
    reader, is_plain = plain["reader"], config.reader.name == "plain"
    answer_model = describe_model(config, "answer.method" in asks)
    searches = is_plain and config.answer.method == "whole" and config.answer.rounds > 0
    reader_model = answer_model if searches or not is_plain else None
    again = [config.answer.rounds, retrieval, config.list_systems(), config.describe_first_stage()] if searches else []
    table = [
        Stage("config", (files.config,), (), plain, lambda: (config,)),
        Stage(
            "queries",
            (files.queries,),
            (),
            [topics, index, weightless, describe_model(config, asks_for_queries)],
            partial(make_queries, job, run_with_model),
        ),
        Stage(
            "search",
            (*files.systems, *((files.summaries,) if config.retrieval.summarise else ())),
            (files.queries,),
            [identity, retrieval, config.list_systems(), describe_model(config, config.retrieval.summarise)],
            partial(make_rankings, job, run_with_model),
        ),
        Stage(
            "hybrid",
            (files.hybrid,),
            (files.queries, *files.systems),
            [identity, config.describe_first_stage(), passages],
            partial(make_hybrid, job),
        ),
        Stage(
            "narrative",
            (files.narrative,),
            (files.queries, files.hybrid),
            [identity, plain["fusion"], plain["queries"]],
            partial(make_narrative, job),
        ),
        replace(rerank, wanted=reranks_first),
        Stage(
            "grades",
            (files.grades, files.qrels, graded, *((files.rounds, files.joined) if has_rounds else ())),
            (files.queries, files.hybrid, narrative),
            [identity, plain["grading"], describe_model(config), plain["track"]],
            partial(make_grades, job, run_with_model),
            has_grades,
        ),
        replace(rerank, wanted=reranks_last),
        Stage(
            "segments",
            (files.retrieval,),
            (ranking, *((files.queries,) if config.ranks_segments else ())),
            [identity, topics, track, *segments, *([config.fusion.depths] if config.fusion.depths else [])],
            partial(make_retrieval, job),
            has_files,
        ),
        Stage(
            "gather",
            (files.evidence, *(() if is_plain else (files.trace,))),
            found,
            [
                reader,
                index,
                topics,
                config.answer.method,
                config.answer.documents,
                window,
                reader_model,
                *segments,
                *again,
            ],
            partial(make_evidence, job, run_with_model),
            has_answers,
        ),
        Stage(
            "answer",
            (files.answers,),
            (files.evidence, *found),
            [reader["name"], index, topics, track, plain["answer"], answer_model, *segments],
            partial(make_answers, job, run_with_model),
            has_answers,
        ),
        Stage(
            "submission",
            (files.submission,),
            (files.answers,),
            [identity, topics, track, asdict(job.author)],
            partial(make_submission, job),
            has_answers,
        ),
    ]
    return [stage for stage in table if stage.wanted]


def _describe_reranker(settings: dict[str, Any]) -> dict[str, Any]:
    """Describe a reranker for the key of its stage: its settings, without the place and the key of its server."""
    endpoint = settings["endpoint"] or {}
    return {**settings, "endpoint": {key: endpoint[key] for key in ("name", "form") if key in endpoint}}
