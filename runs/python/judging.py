"""What `keystone tune`, `judge` and `nuggets` find, as values: settings, judgments and nuggets."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import nullcontext
from io import StringIO
from typing import Any, TypeVar
from warnings import warn

from keystone.generation.grading.umbrela import JudgeSettings
from keystone.indexing.errors import UserError
from keystone.indexing.index import Index
from keystone.indexing.types import show_as_html
from keystone.retrieval.types import Topic
from keystone.runs.config.run_config import RunConfig
from keystone.runs.evaluation import rubrics as rubric_steps
from keystone.runs.evaluation import tune as tuning
from keystone.runs.evaluation.answers.files import find_narratives
from keystone.runs.evaluation.arena.answers import read_answer_sets
from keystone.runs.evaluation.arena.play import RULES, run_battles
from keystone.runs.evaluation.arena.tournament import Leaderboard, Settings
from keystone.runs.evaluation.evaluate import Evaluation
from keystone.runs.evaluation.judging.judge import judge_pool, pool_runs
from keystone.runs.evaluation.measures import add_judged_share
from keystone.runs.evaluation.nuggets import files as nugget_files
from keystone.runs.evaluation.nuggets.files import NuggetBank
from keystone.runs.evaluation.nuggets.judge import Judgments, assign_banks, create_banks_for
from keystone.runs.evaluation.nuggets.score import score_banks
from keystone.runs.evaluation.rubrics import Rubric
from keystone.runs.evaluation.tune import Trials, Tuning
from keystone.runs.evaluation.weights import tune_weights
from keystone.runs.pipeline.grade_files import gather_qrels
from keystone.runs.pipeline.model_runner import open_model_runner
from keystone.runs.python.checks import (
    check_all,
    check_config,
    check_count,
    check_ids,
    check_path,
    check_paths,
    write_override,
)
from keystone.runs.python.conversions import extend, to_qrels, to_run, to_topics
from keystone.runs.python.files import AnyPath, list_measures
from keystone.runs.python.steps import THREADS, open_job_of
from keystone.runs.report.terminal import print_tuning
from keystone.runs.trec.types import Qrels
from keystone.runs.wording import plural

T = TypeVar("T")


class PrintedTuning(Tuning):
    """A tuning that `print` shows as `keystone tune` does."""

    def __str__(self) -> str:
        print_tuning(self, out := StringIO())
        return out.getvalue().rstrip()

    def _repr_html_(self) -> str:
        return show_as_html(str(self))


def tune(
    config: AnyPath,
    qrels: AnyPath,
    tries: Mapping[str, Sequence[Any]] | None = None,
    *,
    weights: bool = False,
    measures: Any = ("nDCG@10", "R@100"),
    folds: int = 5,
    skip_own: bool = False,
) -> Tuning:
    """Choose settings of a run's YAML file by cross-validation over judged topics, as `keystone tune` does.

    `tries` has the values to try by key, such as `{"fusion.k_narrative": [10, 60]}`; None: those of the command. The
    first measure chooses. With `skip_own`, a document that has its topic's id does not count. With `weights`, only the
    weights of the systems are chosen. `print` shows the result as the command does.
    """
    if weights and tries is not None:
        raise UserError("weights: found with tries, expected one of them")
    if not isinstance(tries, Mapping | None):
        raise UserError(f"tries: found {type(tries).__name__}, expected lists of values by key")
    for key, values in (tries or {}).items():
        if not isinstance(values, Iterable) or isinstance(values, str | bytes | Mapping):
            raise UserError(f"tries: {key}: found {values!r:.100}, expected a list of values")
    attempts = [write_override(key, list(values)) for key, values in (tries or {}).items()]
    named = add_judged_share(list_measures(measures))
    trials = Trials(check_path(qrels, "qrels"), named, attempts or None, check_count(folds, "folds", 2), skip_own)
    choose = tune_weights if weights else tuning.tune
    found = choose(check_path(config, "config"), [], trials, THREADS)
    return extend(found, PrintedTuning)


def judge(
    index: Index,
    topics: Any,
    runs: Sequence[Any],
    config: RunConfig,
    *,
    depth: int = 20,
    repeats: int = 1,
    cascade: bool = False,
) -> Qrels:
    """Judge the first `depth` documents of each run by a model (UMBRELA), as `keystone judge` does.

    `runs` are anything that `to_run` takes. The model grades each document `repeats` times, and the median counts. With
    `cascade`, a second prompt is asked, and a third if two grades differ by 2 or more. Warnings name a document without
    a grade, and a topic of the runs that `topics` lack. `UserError` for repeats with a fixed temperature or seed.
    """
    if (repeats := check_count(repeats, "repeats")) > 1 and cascade:
        raise UserError(f"judge: found cascade and repeats {repeats}, expected one of them")
    check_config(config).require_model()
    config.refuse_fixed_samples(repeats)
    if isinstance(runs, str | Mapping) or not isinstance(runs, Sequence) or not runs:
        raise UserError(f"runs: found {type(runs).__name__}, expected a list of runs")
    pool = pool_runs([to_run(run) for run in runs], check_count(depth, "depth"))
    judged_topics = [topic for topic in to_topics(topics) if topic.id in pool]
    if not judged_topics:
        raise UserError("topics: found none of the topics of the runs")
    if missing := sorted(pool.keys() - {topic.id for topic in judged_topics}):
        lost_topics = plural(len(missing), "topic")
        warn(f"judge: {lost_topics} of the runs without a narrative, such as {missing[0]}", stacklevel=2)
    with open_job_of(index, judged_topics, config) as (job, ask):
        found = judge_pool(job, ask, pool, JudgeSettings(repeats, cascade))
    if lost := [*found.failures, *(f"the index has no document {doc_id}" for doc_id in found.unknown)]:
        warn(f"judge: {len(lost):,} documents have no grade, such as: {lost[0]}", stacklevel=2)
    return gather_qrels(found.judgments)


def judge_battles(
    answers: Sequence[AnyPath],
    config: RunConfig | None = None,
    *,
    topics: Any = None,
    both_orders: bool = False,
    repeats: int = 1,
    adaptive: bool = False,
) -> Leaderboard:
    """Judge answers of several runs against each other, as `keystone judge battles` does; returns the leaderboard.

    `answers` are files or run directories. The model of `config` judges, or rules if it is None. `topics` are the
    narratives that the files lack. Warnings name missing answers, and battles without a verdict. `UserError` for
    repeats with a fixed temperature or seed.
    """
    repeats = check_count(repeats, "repeats")
    if config is not None:
        check_config(config).refuse_fixed_samples(repeats)
    paths = check_paths(answers, "answers")
    known = {one.id: one.narrative for one in to_topics(topics)} if topics is not None else find_narratives(paths)
    played = Settings(both_orders=both_orders, repeats=repeats, adaptive=adaptive)
    sets, narratives = read_answer_sets(paths, known)
    judge_name = RULES if config is None else check_config(config).require_model().name
    with open_model_runner(config, None) if config else nullcontext() as ask:
        done = run_battles(sets, narratives, played, ask, judge_name)
    for caution in done.cautions:
        warn(caution, stacklevel=2)
    return done.board


def create_nuggets(
    index: Index, topics: Any, qrels: Any, config: RunConfig, relevant_from: int = 2
) -> list[NuggetBank]:
    """Create the nuggets of each topic from its relevant documents, vital or okay, by the model of a configuration.

    `qrels` are anything that `to_qrels` takes. The documents and segments with at least the grade `relevant_from` give
    nuggets. Warnings name what is missing.
    """
    judged = Judgments("qrels", to_qrels(qrels), relevant_from)
    with open_job_of(index, to_topics(topics), check_config(config)) as (job, ask):
        return _warned(create_banks_for(job.topics, job.store, judged, job.config, ask))


def assign_nuggets(answers: Sequence[AnyPath], nuggets: Sequence[NuggetBank], config: RunConfig) -> list[NuggetBank]:
    """Assign nuggets to the answers of files or run directories by a model; returns those of each run and topic."""
    paths, nuggets = check_paths(answers, "answers"), _check_banks(nuggets)
    with open_model_runner(check_config(config), None) as ask:
        return _warned(assign_banks(paths, nuggets, "nuggets", ask))


def score_nuggets(assigned: Sequence[NuggetBank], topics: Collection[str | Topic] = ()) -> list[Evaluation]:
    """Score runs from the nuggets that are assigned to their answers: A, V, W and their strict forms.

    `topics` are all topics, or their ids; one without an answer counts 0. Without them, they are those of `assigned`.
    """
    return score_banks(check_all(assigned, NuggetBank, "assigned", "assign_nuggets"), _list_ids(topics))


def read_nuggets(path: AnyPath) -> list[NuggetBank]:
    """Read nuggets in any form of `docs/judge.md`. `UserError` names file and line of a bad record."""
    return nugget_files.read_nuggets(check_path(path, "path"))


def write_nuggets(path: AnyPath, nuggets: Sequence[NuggetBank], form: str = "nuggetizer") -> None:
    """Write nuggets as a file of `nuggetizer`, `nuggetbank` or `ragtime`. `UserError` for another form."""
    if form not in nugget_files.FORMS:
        raise UserError(f"form: found {form!r}, expected one of {', '.join(nugget_files.FORMS)}")
    nugget_files.write_nuggets(check_path(path, "path"), _check_banks(nuggets), form)


def assign_rubrics(answers: Sequence[AnyPath], rubrics: Sequence[Rubric], config: RunConfig | None) -> list[Rubric]:
    """Grade the answers of files or run directories by rubrics, by a model, or without a configuration by rules."""
    paths, rubrics = check_paths(answers, "answers"), _check_rubrics(rubrics)
    with open_model_runner(check_config(config), None) if config is not None else nullcontext() as ask:
        return _warned(rubric_steps.assign_rubrics(paths, rubrics, "rubrics", ask))


def score_rubrics(graded: Sequence[Rubric], topics: Collection[str | Topic] = ()) -> list[Evaluation]:
    """Score runs from graded rubrics, with three grades and with two. `topics` are as for `score_nuggets`."""
    return rubric_steps.score_rubrics(check_all(graded, Rubric, "graded", "assign_rubrics"), _list_ids(topics))


def read_rubrics(path: AnyPath) -> list[Rubric]:
    """Read rubrics of ResearchRubrics or of RAGDoll. `UserError` names file and line of a bad row."""
    return rubric_steps.read_rubrics(check_path(path, "path"))


def write_rubrics(path: AnyPath, rubrics: Sequence[Rubric], form: str = "ragdoll") -> None:
    """Write rubrics as a file of `ragdoll` or `researchrubrics`. `UserError` for another form."""
    if form not in rubric_steps.FORMS:
        raise UserError(f"form: found {form!r}, expected one of {', '.join(rubric_steps.FORMS)}")
    rubric_steps.write_rubrics(check_path(path, "path"), _check_rubrics(rubrics), form)


def _check_banks(value: Any) -> list[NuggetBank]:
    return check_all(value, NuggetBank, "nuggets", "read_nuggets")


def _check_rubrics(value: Any) -> list[Rubric]:
    return check_all(value, Rubric, "rubrics", "read_rubrics")


def _list_ids(topics: Any) -> list[str]:
    """List the ids of topics, or ids as they are, of which one may stand alone. `UserError` for anything else."""
    one_alone = isinstance(topics, str | Topic) or not isinstance(topics, Iterable)
    return check_ids([getattr(one, "id", one) for one in ([topics] if one_alone else topics)], "topics")


def _warned(found: tuple[list[T], list[str]]) -> list[T]:
    banks, cautions = found
    for caution in cautions:
        warn(caution, stacklevel=3)
    return banks
