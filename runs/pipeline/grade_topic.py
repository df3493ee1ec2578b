"""UMBRELA grades for one topic, and the documents that they select: by Parasol with bounds, or a covering set."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from fusion.coverage import choose
from fusion.parasol import MAX_GRADE, Floats, Pairs, Top, TopSettings, find_top
from generation.context.passages import best_spans, told
from generation.context.tokens import clip, tokens
from generation.llm.model import Model
from generation.types import Failure, Fallback
from generation.umbrela import GradeForm, Mode, Pair, grade_pairs
from retrieval.types import Query, Rankings, Topic
from runs.pipeline.job import Job
from runs.pipeline.steps import asked_of, narrative_rankings, part
from runs.pipeline.topic_documents import Material, gathered

WAVE = 32
"""Calls that one topic makes at a time, beside those of other topics."""


@dataclass(frozen=True, slots=True)
class Graded:
    """The grades of a topic's candidates, and what they select.

    `rows` are the candidates, best first by the fusion over queries; `grades` float64[queries, candidates] has NaN
    where a pair was not asked for or failed; `selected` are places in `rows`, with `scores` beside them: Parasol's, or
    in a set how many were chosen from there on.
    """

    topic_id: str
    queries: list[Query]
    rows: list[int]
    spans: list[list[tuple[int, int]]]
    """Of each candidate the stretches of its text that were graded."""
    grades: NDArray[np.float64]
    asked: int
    selected: list[int]
    scores: list[float]
    fallbacks: list[Fallback]


async def grade_topic(job: Job, model: Model, topic: Topic, queries: Sequence[Query], hybrid: Rankings) -> Graded:
    """Grade a topic's candidates for its queries and select among them.

    A pair that the model gave no grade for adds nothing to any score, and is recorded.
    """
    settings = job.config.grading
    mode: Mode = "grid" if settings.method == "grid" else "pointwise"
    rows = candidates(job, topic, queries, hybrid)
    material = await asyncio.to_thread(gathered, job, rows, [queries[n] for n in asked_of(topic.id, queries)])
    spans = await asyncio.to_thread(graded_spans, job, material)
    shown = zip(material.documents.values(), spans, strict=True)
    texts = [clip(told(document, own), settings.tokens) for document, own in shown]
    fallbacks: list[Fallback] = []

    async def grades(pairs: Sequence[Pair]) -> list[float]:
        questions = [query.question for query in material.queries]
        form = GradeForm(mode, settings.expected)
        found = await grade_pairs(model, questions, lambda place, _: texts[place], pairs, form)
        for (query, place), grade in found.items():
            if isinstance(grade, Failure):
                named = f"{material.queries[query].id} and {material.documents[rows[place]].id}"
                fallbacks.append(Fallback(topic.id, "umbrela", f"no grade for {named}: {grade.reason}"))
        return [math.nan if isinstance(grade := found[pair], Failure) else min(grade, MAX_GRADE) for pair in pairs]

    at_once = job.config.model is not None and job.config.model.backend == "batch"
    bounded = settings.bounds and settings.select == "parasol" and not at_once
    search = find_top(
        len(material.queries),
        len(rows),
        TopSettings(settings.documents, WAVE if bounded else None, mode == "grid"),
        scores_of(hybrid, asked_of(topic.id, queries), rows),
    )
    top = await _answered(search, grades)
    selected, scores = top.documents.tolist(), top.scores.tolist()
    if settings.select == "coverage":
        costs = [1 if settings.budget is None else tokens(text) for text in texts]
        budget = settings.documents if settings.budget is None else settings.budget
        selected = choose(top.grades, costs, budget, settings.cap)[: settings.documents]
        scores = [float(len(selected) - place) for place in range(len(selected))]
    return Graded(topic.id, material.queries, rows, spans, top.grades, top.judged, selected, scores, fallbacks)


async def _answered(
    search: Generator[Pairs, Floats, Top], grades: Callable[[Sequence[Pair]], Awaitable[list[float]]]
) -> Top:
    """What a search finds when each of its waves is graded."""
    try:
        queries, documents = next(search)
        while True:
            found = await grades(list(zip(queries.tolist(), documents.tolist(), strict=True)))
            queries, documents = search.send(np.array(found))
    except StopIteration as end:
        top: Top = end.value
        return top


def scores_of(hybrid: Rankings, places: Sequence[int], rows: Sequence[int]) -> Floats:
    """The hybrid score of each row for each query, float64[queries, rows]; NaN where a query did not find it."""
    known = [dict(zip(hybrid.of(n).tolist(), hybrid.scores_of(n).tolist(), strict=True)) for n in places]
    return np.array([[scores.get(row, np.nan) for row in rows] for scores in known])


def candidates(job: Job, topic: Topic, queries: Sequence[Query], hybrid: Rankings) -> list[int]:
    """The union of the first documents of each query (R_i; paper, section 3.1), in the order of their fusion."""
    places = asked_of(topic.id, queries)
    first = part(hybrid, places).top(job.config.grading.pool)
    if not len(first.docs):
        return []
    own = [queries[place] for place in places]
    found: list[int] = narrative_rankings(replace(job, topics=[topic]), own, first, len(first.docs)).docs.tolist()
    return found


def graded_spans(job: Job, material: Material) -> list[list[tuple[int, int]]]:
    """What of each document is graded: its best segments for the queries.

    All queries are shown the same, so that a server computes a document once.
    """
    settings = job.config.grading
    return [
        best_spans(document, material.asked @ material.segments[row].T, settings.segments, settings.tokens)
        for row, document in material.documents.items()
    ]
