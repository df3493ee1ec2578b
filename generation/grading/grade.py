"""UMBRELA grades for one topic, and the documents that they select: by Parasol with bounds, or a covering set."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fusion.coverage import choose
from fusion.parasol import MAX_GRADE, Floats, Pairs, Top, TopSettings, find_top
from generation.context.passages import choose_best_spans, join_spans
from generation.context.tokens import clip, count_tokens
from generation.context.topic import TopicContext
from generation.grading.umbrela import GradeForm, Mode, Pair, grade_pairs
from generation.llm.model import Model
from generation.types import Failure, Fallback
from retrieval.types import Query

WAVE_CALLS = 32
"""Calls that one topic makes at a time, beside those of other topics."""

Select = Literal["parasol", "coverage"]


@dataclass(frozen=True, slots=True)
class GradeSettings:
    """How candidates are graded and selected; `runs.config.run_config.Grading` says what each setting means."""

    method: Mode = "pointwise"
    select: Select = "parasol"
    documents: int = 20
    budget: int | None = None
    cap: float = math.inf
    bounds: bool = True
    expected: bool = False
    segments: int = 3
    tokens: int = 2000
    in_one_wave: bool = False
    """Whether all pairs are asked in one wave, because replies come in one batch."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """The documents of a topic that may be graded, best first.

    `scores` are those that retrieval gave them, float64[queries, documents], NaN where a query did not find one.
    """

    topic_id: str
    context: TopicContext
    scores: Floats


@dataclass(frozen=True, slots=True)
class GradedTopic:
    """The grades of a topic's candidates, and what they select.

    `rows` are the candidates, best first by the fusion over queries; `grades` float64[queries, candidates] has NaN
    where a pair was not asked for or failed; `selected` are places in `rows`, with `scores` beside them: Parasol's, or
    in a set how many were chosen from there on.
    """

    topic_id: str
    queries: Sequence[Query]
    rows: list[int]
    spans: list[list[tuple[int, int]]]
    """Of each candidate the stretches of its text that were graded."""
    grades: NDArray[np.float64]
    pairs_asked: int
    selected: list[int]
    scores: list[float]
    fallbacks: list[Fallback]


async def grade_topic(model: Model, candidates: Candidates, settings: GradeSettings) -> GradedTopic:
    """Grade a topic's candidates for its queries and select among them.

    A pair that the model gave no grade for adds nothing to any score, and is recorded.
    """
    topic_id, context = candidates.topic_id, candidates.context
    documents = list(context.documents.values())
    spans = await asyncio.to_thread(choose_graded_spans, context, settings)
    texts = [clip(join_spans(document, own), settings.tokens) for document, own in zip(documents, spans, strict=True)]
    fallbacks: list[Fallback] = []

    async def grade(pairs: Sequence[Pair]) -> list[float]:
        questions = [query.question for query in context.queries]
        form = GradeForm(settings.method, settings.expected)
        found = await grade_pairs(model, questions, lambda place, _: texts[place], pairs, form)
        for (query, place), value in found.items():
            if isinstance(value, Failure):
                named = f"{context.queries[query].id} and {documents[place].id}"
                fallbacks.append(Fallback(topic_id, "umbrela", f"no grade for {named}: {value.reason}"))
        return [math.nan if isinstance(value := found[pair], Failure) else min(value, MAX_GRADE) for pair in pairs]

    selection = SELECTIONS[settings.select]
    bounded = settings.bounds and selection.bounded and not settings.in_one_wave
    wanted = TopSettings(settings.documents, WAVE_CALLS if bounded else None, settings.method == "grid")
    search = find_top(len(context.queries), len(documents), wanted, candidates.scores)
    top = await _grade_waves(search, grade)
    selected, scores = selection.choose(top, texts, settings)
    rows = list(context.documents)
    return GradedTopic(topic_id, context.queries, rows, spans, top.grades, top.judged, selected, scores, fallbacks)


async def _grade_waves(
    search: Generator[Pairs, Floats, Top], grade: Callable[[Sequence[Pair]], Awaitable[list[float]]]
) -> Top:
    """What a search finds when each of its waves is graded."""
    try:
        queries, documents = next(search)
        while True:
            found = await grade(list(zip(queries.tolist(), documents.tolist(), strict=True)))
            queries, documents = search.send(np.array(found))
    except StopIteration as end:
        top: Top = end.value
        return top


def choose_graded_spans(context: TopicContext, settings: GradeSettings) -> list[list[tuple[int, int]]]:
    """The stretches of each document that are graded: its best segments for the queries.

    All queries are shown the same, so that a server computes a document once.
    """
    return [
        choose_best_spans(document, context.query_vectors @ context.segments[row].T, settings.segments, settings.tokens)
        for row, document in context.documents.items()
    ]


def _select_by_parasol(top: Top, _texts: Sequence[str], _settings: GradeSettings) -> tuple[list[int], list[float]]:
    return top.documents.tolist(), top.scores.tolist()


def _select_by_coverage(top: Top, texts: Sequence[str], settings: GradeSettings) -> tuple[list[int], list[float]]:
    costs = [1 if settings.budget is None else count_tokens(text) for text in texts]
    budget = settings.documents if settings.budget is None else settings.budget
    selected = choose(top.grades, costs, budget, settings.cap)[: settings.documents]
    return selected, [float(len(selected) - place) for place in range(len(selected))]


@dataclass(frozen=True, slots=True)
class Selection:
    """A way to select documents by their grades: places of documents and their scores, best first."""

    choose: Callable[[Top, Sequence[str], GradeSettings], tuple[list[int], list[float]]]
    bounded: bool
    """Whether the first of the ranking are certain before all pairs are graded."""
    is_set: bool
    """Whether the documents are chosen as a set, which can stand without the rest of the ranking."""


SELECTIONS: Mapping[Select, Selection] = {
    "parasol": Selection(_select_by_parasol, bounded=True, is_set=False),
    "coverage": Selection(_select_by_coverage, bounded=False, is_set=True),
}
