"""Judgments of answer files by a model: ratings of each answer, and comparisons of the first file with the others."""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import product
from typing import Any

import numpy as np

from keystone.generation.ask import run_together
from keystone.generation.grading.rate_answers import (
    AnswerPair,
    RatedAnswer,
    compare_answers,
    rate_answers,
    score_choices,
)
from keystone.generation.llm.model import Model
from keystone.generation.types import Failure
from keystone.indexing.errors import UserError
from keystone.runs.evaluation.answers.files import Reference, Submission
from keystone.runs.evaluation.answers.wins import Comparison, compute_first_slot_rate
from keystone.runs.evaluation.evaluate import Evaluation

RATINGS = ("LR-1", "LR-2")


async def judge_submissions(
    model: Model | None, submissions: Sequence[Submission], references: Sequence[Reference], names: Sequence[str]
) -> tuple[list[Evaluation], list[Comparison]]:
    """Make the ratings `LR` of all files, and the comparisons `pairwise`, as far as `names` has them.

    Both are asked together, so that a batch has the requests of both. `UserError` without a model, and if no topic has
    a question, and references for ratings.
    """
    if model is None:
        raise UserError(f"measure {names[0]!r}: needs a language model; expected one under the key model (--set)")
    for name in names:
        if not any(one.question and (one.references or name != "LR") for one in references):
            raise UserError(f"measure {name!r}: no line has question{' and references' if name == 'LR' else ''}")
    makers: dict[str, Callable[[], Awaitable[list[Any]]]] = {
        "LR": partial(_rate_submissions, model, submissions, references),
        "pairwise": partial(_compare_submissions, model, submissions, references),
    }
    found = dict(zip(names, await run_together(makers[name] for name in names), strict=True))
    return found.get("LR", []), found.get("pairwise", [])


async def _rate_submissions(
    model: Model, submissions: Sequence[Submission], references: Sequence[Reference]
) -> list[Evaluation]:
    """Rate the answers of each file. A missing or empty answer is rated 0 without asking.

    If a topic has no question or no reference text, or if the model gives no rating, the value is NaN.
    """
    fit = [place for place, one in enumerate(references) if one.question and one.references]
    asked = {
        (number, place): RatedAnswer(references[place].question, references[place].references, text)
        for number, place in product(range(len(submissions)), fit)
        if (text := submissions[number].get_text(references[place].topic_id))
    }
    ratings = await rate_answers(model, list(asked.values()))
    table = np.full((len(submissions), len(references), len(RATINGS)), np.nan)
    table[:, fit] = 0
    failures: list[list[str]] = [[] for _ in submissions]
    for (number, place), rating in zip(asked, ratings, strict=True):
        if isinstance(rating, Failure):
            failures[number].append(f"{references[place].topic_id}: {rating.reason}")
            rating = (np.nan, np.nan)
        table[number, place] = rating
    topics = tuple(reference.topic_id for reference in references)
    return [
        Evaluation(one.name, topics, dict(zip(RATINGS, own.T, strict=True)), cautions=_caution(one.name, failed))
        for one, own, failed in zip(submissions, table, failures, strict=True)
    ]


def _caution(name: str, failures: Sequence[str]) -> tuple[str, ...]:
    if not failures:
        return ()
    return (f"{name}: answers without a rating, which are left out: {len(failures):,}, such as {failures[0]}",)


async def _compare_submissions(
    model: Model, submissions: Sequence[Submission], references: Sequence[Reference]
) -> list[Comparison]:
    """Compare the first file with each other one. If one of two answers is missing, the other wins without asking.

    If both are missing, that is a tie. Topics without a question are left out.
    """
    first, *others = submissions
    asked = [
        (other, reference.topic_id, AnswerPair(reference.question, one_text, other_text))
        for other, reference in product(others, references)
        if reference.question
        and (one_text := first.get_text(reference.topic_id))
        and (other_text := other.get_text(reference.topic_id))
    ]
    choices = await compare_answers(model, [pair for _, _, pair in asked])
    found = []
    for other in others:
        own = {topic: choice for (owner, topic, _), choice in zip(asked, choices, strict=True) if owner is other}
        made = {topic: choice for topic, choice in own.items() if not isinstance(choice, Failure)}
        outcomes = {
            topic: score_choices(made[topic]) if topic in made else _score_presence(first, other, topic)
            for topic in (reference.topic_id for reference in references if reference.question)
            if topic in made or topic not in own
        }
        rate = compute_first_slot_rate([slot for choice in made.values() for slot in choice])
        unjudged = tuple(topic for topic in own if topic not in made)
        found.append(Comparison(first.name, other.name, outcomes, rate, unjudged))
    return found


def _score_presence(first: Submission, other: Submission, topic: str) -> float:
    """Score a topic that one of two files, or both, have no answer to."""
    return 0.5 + 0.5 * (bool(first.get_text(topic)) - bool(other.get_text(topic)))
