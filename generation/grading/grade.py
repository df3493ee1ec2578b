"""UMBRELA grades for one topic, and the documents that they select: by Parasol with bounds, or as a covering set.

Documents beyond the pool are graded in groups. A group pays if one of its documents comes among the first k by Parasol.
After a group that does not pay, or at the limit, grading ends. Neighbours of good documents and documents of the
ranking take turns, as in Adaptive Re-Ranking with a Corpus Graph (MacAvaney, Tonellotto and Macdonald, CIKM 2022).
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from keystone.fusion.parasol import MAX_GRADE, Floats, Pairs, Top, TopSettings, choose_covering, extend_top, find_top
from keystone.generation.context.texts import clip, count_tokens
from keystone.generation.context.topic import TopicContext, choose_best_spans, join_spans
from keystone.generation.grading.umbrela import GradeForm, Mode, Pair, grade_pairs
from keystone.generation.llm.model import Model
from keystone.generation.types import Failure, Fallback
from keystone.retrieval.types import Query

GROUP_DOCUMENTS = 10
"""The documents that are graded together."""
GOOD_GRADE = 2.0
"""The least grade for one query that makes a document good, so that its neighbours are graded."""

FindNeighbours = Callable[[Sequence[int]], Awaitable[list[list[int]]]]
"""Finds the neighbours of each document, as rows."""
GradeRows = Callable[[Sequence[int]], Awaitable[Floats]]
"""Grades documents for all queries: float64[queries, documents], NaN where a grade failed."""


@dataclass(frozen=True, slots=True)
class Beyond:
    """The documents beyond a topic's candidates: the rows of its whole ranking, and the neighbours of good documents.

    At most `most` documents are graded. `read` reads the documents in some rows, with the queries of the candidates.
    """

    ranking: Sequence[int]
    find_neighbours: FindNeighbours
    read: Callable[[Sequence[int]], Awaitable[TopicContext]]
    most: int


async def grade_deeper(top: Top, rows: Sequence[int], k: int, beyond: Beyond, grade: GradeRows) -> Top:
    """Grade groups beyond the pool, whose documents are `rows`, until a group does not pay.

    Returns the first k of all graded documents, which stand in the order in which `grade` got them.
    """
    graded, near, expanded = list(rows), dict[int, None](), set[int]()
    limit = len(graded) + beyond.most
    while left := limit - len(graded):
        good = [row for row in _list_good(top, graded) if row not in expanded]
        expanded.update(good)
        near |= dict.fromkeys(chain.from_iterable(await beyond.find_neighbours(good)))
        group = choose_group(graded, list(near), beyond.ranking, min(left, GROUP_DOCUMENTS))
        if not group:
            break
        before = len(graded)
        graded += group
        top = extend_top(top, await grade(group), k)
        if not (top.scores[top.documents >= before] > 0).any():
            break
    return top


def choose_group(graded: Sequence[int], near: Sequence[int], ranking: Sequence[int], most: int) -> list[int]:
    """Choose at most `most` rows that are not graded: the next of `near` and the next of `ranking` in turn."""
    known = set(graded)
    lists = ([row for row in rows if row not in known] for rows in (near, ranking))
    turns = dict.fromkeys(chain.from_iterable(zip_longest(*lists)))
    return [row for row in turns if row is not None][:most]


def _list_good(top: Top, rows: Sequence[int]) -> list[int]:
    """List the rows of the first k documents that have a good grade for some query, best first."""
    grades = np.nan_to_num(top.grades, nan=0.0)
    return [rows[place] for place in top.documents.tolist() if grades[:, place].max(initial=0.0) >= GOOD_GRADE]


WAVE_CALLS = 32
"""How many calls one topic makes at one time. Other topics make theirs beside them."""

Select = Literal["parasol", "coverage"]
"""The ways to select documents by their grades, see `SELECTIONS`."""


@dataclass(frozen=True, slots=True)
class GradeSettings:
    """How candidates are graded and selected. `docs/config.md` explains each setting under `grading`."""

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
    """Whether all pairs are graded in one wave, because replies come in one batch."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """The documents of a topic that may be graded, best first.

    `scores` are the scores of retrieval, float64[queries, documents]. If a query did not find a document, its score is
    NaN.
    """

    topic_id: str
    context: TopicContext
    scores: Floats


@dataclass(frozen=True, slots=True)
class GradedTopic:
    """The grades of a topic's candidates, and the documents that they select.

    `rows` are the candidates, best first by the fusion over queries, then the documents that were graded beyond them.
    `grades` is float64[queries, rows]; if a pair was not graded, or its grade failed, the value is NaN. `selected` are
    places in `rows`, best first, with `scores` beside them. These are Parasol scores, or in a set the numbers from the
    size of the set down to 1.
    """

    topic_id: str
    queries: Sequence[Query]
    rows: list[int]
    spans: list[list[tuple[int, int]]]
    """The graded stretches of each candidate's text, as (start, end)."""
    grades: NDArray[np.float64]
    pairs_asked: int
    selected: list[int]
    scores: list[float]
    fallbacks: list[Fallback]


async def grade_topic(
    model: Model, candidates: Candidates, settings: GradeSettings, beyond: Beyond | None = None
) -> GradedTopic:
    """Grade a topic's candidates for its queries, then those `beyond` them as long as it pays; select among all.

    If the model gives no grade for a pair, the pair adds nothing to any score, and a `Fallback` records it. If a set by
    coverage would be empty, documents without grades are selected.
    """
    topic_id, context = candidates.topic_id, candidates.context
    rows, ids, texts = list[int](), list[str](), list[str]()
    spans: list[list[tuple[int, int]]] = []
    fallbacks: list[Fallback] = []

    async def show(context: TopicContext) -> None:
        chosen = await asyncio.to_thread(choose_graded_spans, context, settings)
        for (row, document), own in zip(context.documents.items(), chosen, strict=True):
            rows.append(row)
            ids.append(document.id)
            spans.append(own)
            texts.append(clip(join_spans(document, own), settings.tokens))

    async def grade(pairs: Sequence[Pair]) -> list[float]:
        questions = [query.question for query in context.queries]
        form = GradeForm(settings.method, settings.expected)
        found = await grade_pairs(model, questions, lambda place, _: texts[place], pairs, form)
        for (query, place), value in found.items():
            if isinstance(value, Failure):
                pair_ids = f"{context.queries[query].id} and {ids[place]}"
                fallbacks.append(Fallback(topic_id, "umbrela", f"no grade for {pair_ids}: {value.reason}"))
        return [math.nan if isinstance(value := found[pair], Failure) else min(value, MAX_GRADE) for pair in pairs]

    async def grade_rows(found: Sequence[int]) -> Floats:
        assert beyond is not None
        places = range(len(rows), len(rows) + len(found))
        await show(await beyond.read(found))
        queries = range(len(context.queries))
        grades = await grade([(query, place) for place in places for query in queries])
        return np.array(grades).reshape(len(places), len(queries)).T

    await show(context)
    selection = SELECTIONS[settings.select]
    bounded = settings.bounds and selection.bounded and not settings.in_one_wave
    wanted = TopSettings(settings.documents, WAVE_CALLS if bounded else None, settings.method == "grid")
    search = find_top(len(context.queries), len(rows), wanted, candidates.scores)
    top = await _grade_waves(search, grade)
    if beyond is not None:
        top = await grade_deeper(top, rows, settings.documents, beyond, grade_rows)
    selected, scores = selection.choose(top, texts, settings)
    return GradedTopic(topic_id, context.queries, rows, spans, top.grades, top.judged, selected, scores, fallbacks)


async def _grade_waves(
    search: Generator[Pairs, Floats, Top], grade: Callable[[Sequence[Pair]], Awaitable[list[float]]]
) -> Top:
    """Run a search of `keystone.fusion.parasol.find_top`, and grade each wave of pairs that it asks for."""
    try:
        queries, documents = next(search)
        while True:
            found = await grade(list(zip(queries.tolist(), documents.tolist(), strict=True)))
            queries, documents = search.send(np.array(found))
    except StopIteration as end:
        top: Top = end.value
        return top


def choose_graded_spans(context: TopicContext, settings: GradeSettings) -> list[list[tuple[int, int]]]:
    """Choose the stretches of each document that are graded: its best segments for the queries.

    The stretches are the same for all queries, so that a server computes a document once.
    """
    return [
        choose_best_spans(document, context.query_vectors @ context.segments[row].T, settings.segments, settings.tokens)
        for row, document in context.documents.items()
    ]


def _select_by_coverage(top: Top, texts: Sequence[str], settings: GradeSettings) -> tuple[list[int], list[float]]:
    costs = [1 if settings.budget is None else count_tokens(text) for text in texts]
    budget = settings.documents if settings.budget is None else settings.budget
    chosen = choose_covering(top.grades, costs, budget, settings.cap)
    if not chosen:  # the documents without a grade, in the order of their fusion
        chosen = choose_covering(np.isnan(top.grades).astype(np.float64), costs, budget, settings.cap)
    selected = chosen[: settings.documents]
    return selected, [float(len(selected) - place) for place in range(len(selected))]


@dataclass(frozen=True, slots=True)
class Selection:
    """A way to select documents by their grades. `choose` returns places of documents and their scores, best first."""

    choose: Callable[[Top, Sequence[str], GradeSettings], tuple[list[int], list[float]]]
    bounded: bool
    """Whether the selection can be certain before all pairs are graded."""
    is_set: bool
    """Whether the documents are a set, which a track may submit without the rest of the ranking."""


SELECTIONS: Mapping[Select, Selection] = {
    "parasol": Selection(lambda top, *_: (top.documents.tolist(), top.scores.tolist()), bounded=True, is_set=False),
    "coverage": Selection(_select_by_coverage, bounded=False, is_set=True),
}
"""The ways to select documents by their names in a configuration."""
