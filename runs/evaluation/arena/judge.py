"""Judges of battles, and a tournament of files by one of them, from answers to the files of its arena."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from keystone.generation.grading.rate_answers import ArenaVerdict, judge_shown_pairs, request_verdict
from keystone.generation.llm.settings import ModelSettings
from keystone.generation.rules.answer_form import compare_coverage
from keystone.generation.types import Failure
from keystone.indexing.errors import UserError
from keystone.runs.evaluation.arena.answers import AnswerSet
from keystone.runs.evaluation.arena.files import Shown, check_folder
from keystone.runs.evaluation.arena.tournament import (
    MOST_SHARE,
    Judge,
    Judgment,
    Leaderboard,
    Settings,
    Task,
    list_matches,
    list_tasks,
    make_leaderboard,
    play,
)
from keystone.runs.pipeline.foresight import Ask, Foreseen, foresee
from keystone.runs.pipeline.model_runner import RunWithModel, ask_model

RULES = "rules"
"""The name of the judge that needs no model."""


@dataclass(frozen=True, slots=True)
class Tournament:
    """A tournament that was played: its judgments, what they showed, and the leaderboard."""

    judgments: tuple[Judgment, ...]
    shown: Shown
    board: Leaderboard
    cautions: tuple[str, ...]


def judge_by_rules(shown: Shown) -> Judge:
    """Make the judge that compares coverage of the request, without a model."""

    def judge(tasks: Sequence[Task]) -> list[ArenaVerdict | Failure]:
        pairs = map(shown.show, tasks)
        return [compare_coverage(pair.question, pair.a, pair.b) for pair in pairs]

    return judge


def judge_by_model(shown: Shown, run_with_model: RunWithModel) -> Judge:
    """Make the judge that asks the model of a configuration."""

    def judge(tasks: Sequence[Task]) -> list[ArenaVerdict | Failure]:
        pairs = [shown.show(task) for task in tasks]
        return ask_model(run_with_model, lambda model: judge_shown_pairs(model, pairs)) if tasks else []

    return judge


def run_battles(
    sets: Sequence[AnswerSet],
    narratives: Mapping[str, str],
    settings: Settings,
    run_with_model: RunWithModel | None = None,
    judge_name: str = RULES,
    folder: Path | None = None,
) -> Tournament:
    """Run the battles of answers, by the model of `run_with_model`, or by rules if that is None.

    `folder` is where the files of the arena will be written. `UserError` if it holds those of another tournament, and
    if the model gives no verdict at all.
    """
    shown = Shown({one.run_id: one for one in sets}, narratives, settings.repeats > 1)
    if folder is not None:
        check_folder(folder, _list_all(sets, settings), shown)
    judge = judge_by_rules(shown) if run_with_model is None else judge_by_model(shown, run_with_model)
    judgments = play(sets, judge, settings)
    failures = [(one.task.id, one.verdict.reason) for one in judgments if isinstance(one.verdict, Failure)]
    if judgments and len(failures) == len(judgments):
        raise UserError(f"the model gave no verdict: {failures[0][0]}: {failures[0][1]}")
    board = make_leaderboard(judgments, [*shown.sets], judge_name)
    cautions = [*_caution(sets), *(f"{task_id}: no verdict: {reason}" for task_id, reason in failures)]
    return Tournament(tuple(judgments), shown, board, tuple(cautions))


def _list_all(sets: Sequence[AnswerSet], settings: Settings) -> list[Task]:
    return [
        task
        for match in list_matches(sets)
        for task in list_tasks(match, settings.seed, settings.both_orders, settings.repeats)
    ]


def _caution(sets: Sequence[AnswerSet]) -> list[str]:
    """Name the runs that lack answers to narratives of other runs: no battle is about these."""
    topics = {topic_id for one in sets for topic_id in one.texts}
    lacking = [(one.run_id, sorted(topics - one.texts.keys())) for one in sets]
    return [
        f"{run_id}: no answer to {len(lost):,} of {len(topics):,} narratives, such as {lost[0]}; no battle counts there"
        for run_id, lost in lacking
        if lost
    ]


def foresee_battles(
    sets: Sequence[AnswerSet], narratives: Mapping[str, str], settings: Settings, model: ModelSettings | None
) -> tuple[int, Foreseen | None]:
    """Foresee the battles of a tournament: their number at most, and what a model's calls can cost, or None."""
    shown = Shown({one.run_id: one for one in sets}, narratives, settings.repeats > 1)
    tasks = _list_all(sets, settings)
    share = MOST_SHARE if settings.adaptive else 1.0
    number = int(len(tasks) * share)
    if model is None or not number:
        return number, None
    longest = max((request_verdict(shown.show(task)) for task in tasks), key=lambda one: len(one.messages[0][1]))
    return number, foresee(Ask("battles", number, longest), model)
