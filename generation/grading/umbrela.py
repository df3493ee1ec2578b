"""UMBRELA: a model grades from 0 to 3 how well passages answer queries.

Source: Keystone-Docs RAG, section 3.2.1, after Upadhyay et al. (2024). Grades of `keystone judge`, which select no
documents, are made once, several times, or by a cascade of prompts.
"""

import math
import re
import statistics
from bisect import bisect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from keystone.generation.context.texts import delimit, neutralise
from keystone.generation.llm.ask import ask, run_together
from keystone.generation.llm.model import Model
from keystone.generation.prompts import grading as prompts
from keystone.generation.replies import find_objects, locate_reply, strip_thought
from keystone.generation.types import Failure, Reply, Request
from keystone.indexing.errors import Unusable
from keystone.indexing.io.json_values import read_whole_number

Mode = Literal["pointwise", "grid"]
"""One query and one document in a request (`pointwise`), or one document and several queries (`grid`)."""

Pair = tuple[int, int]
"""The number of a query and the number of a document."""


@dataclass(frozen=True, slots=True)
class GradeForm:
    """The form of grades: one pair or a grid of queries in a request, and whole grades or `expected` ones."""

    mode: Mode
    expected: bool = False
    prompt: str = ""
    """The system prompt of requests about one pair; empty for UMBRELA's."""
    seed: int | None = None
    """The seed of a sampled grade. None: the most likely reply gives the grade."""


SAMPLE_TEMPERATURE = 1.0
"""The temperature of sampled grades: the model's own probabilities."""
_GRADES = {"0": 0, "1": 1, "2": 2, "3": 3}
_FINAL = re.compile(r"final[ _]score\W{0,8}([0-3])(?![\d./])", re.IGNORECASE)


async def grade_pairs(
    model: Model,
    queries: Sequence[str],
    passages: Callable[[int, Sequence[int]], str],
    pairs: Sequence[Pair],
    form: GradeForm,
) -> dict[Pair, float | Failure]:
    """Grade pairs of a query and a document; returns the grade of each pair, from 0 to 3, or its failure.

    `passages(document, queries)` returns the text of a document that is graded for some queries. In the mode
    `pointwise` it gets one query at a time. If its text is the same for all queries, servers compute the text once. In
    the mode `grid` it gets all queries of the document's pairs, and one call grades them all.

    Expected grades are means over the probabilities of the four grades: see `compute_expected_grade`. A request is
    made when the model draws it.
    """
    mode, expected = form.mode, form.expected
    groups = group_pairs(pairs, mode)

    def draw_requests() -> Iterator[tuple[Request, Callable[[Reply], list[float]]]]:
        for document, chosen in groups:
            texts = [queries[query] for query in chosen]
            request = request_grades(texts, passages(document, chosen), mode, expected)
            request = _vary(request, form)
            yield request, partial(read_grades, names=name_grades(len(chosen), mode), expected=expected)

    grades: dict[Pair, float | Failure] = {}
    async for number, found in ask(model, draw_requests()):
        document, chosen = groups[number]
        values: Sequence[float | Failure] = [found] * len(chosen) if isinstance(found, Failure) else found
        grades |= {(query, document): value for query, value in zip(chosen, values, strict=True)}
    return {pair: grades[pair] for pair in pairs}


def group_pairs(pairs: Iterable[Pair], mode: Mode) -> list[tuple[int, tuple[int, ...]]]:
    """Group pairs into requests: each has a document and its queries.

    The requests of a document stand together, so that servers compute their common beginning once. Documents are in the
    order of their first pairs, and queries in the order of their numbers.
    """
    queries: dict[int, set[int]] = {}
    for query, document in pairs:
        queries.setdefault(document, set()).add(query)
    if mode == "grid":
        return [(document, tuple(sorted(chosen))) for document, chosen in queries.items()]
    return [(document, (query,)) for document, chosen in queries.items() for query in sorted(chosen)]


def name_grades(queries: int, mode: Mode) -> list[str]:
    """Name the keys of a reply: `grade` for one pair; in a grid, the numbers of the queries from 1."""
    return [str(number) for number in range(1, queries + 1)] if mode == "grid" else ["grade"]


def request_grades(queries: Sequence[str], passage: str, mode: Mode, expected: bool = False) -> Request:
    """Make a request for the grades of a passage: for one query (`pointwise`), or for numbered queries (`grid`)."""
    names = name_grades(len(queries), mode)
    texts = [neutralise(" ".join(query.split())) for query in queries]
    listed = "\n".join(f"{name}. {text}" for name, text in zip(names, texts, strict=True))
    prompt = (prompts.UMBRELA_GRID if mode == "grid" else prompts.UMBRELA)._replace(
        schema=prompts.make_grade_schema(names)
    )
    tokens, data = prompts.allow_number_tokens(len(names)), delimit("passage", passage)
    request = prompt.request(tokens, passage=data, queries=listed, query=texts[0])
    return replace(request, top_logprobs=prompts.ALTERNATIVES if expected else 0)


def _vary(request: Request, form: GradeForm) -> Request:
    if form.prompt:
        request = replace(request, messages=(("system", form.prompt), *request.messages[1:]))
    if form.seed is not None:
        request = replace(request, temperature=SAMPLE_TEMPERATURE, seed=form.seed)
    return request


def read_grades(reply: Reply, names: Sequence[str], expected: bool = False) -> list[float]:
    """Read the grade under each name, from 0 to 3. `Unusable` if the reply gives no grades, or different ones.

    The grades are in a JSON object. If a reply about one pair has no object, its grade may be in prose: `final
    score: 2`, or the digit alone. With `expected`, a grade is the mean over the server's probabilities. If the server
    gave none, it is the grade that the reply names.
    """
    found = find_objects(reply)
    readings = {grades for value in found if (grades := _get_grades(value, names))}
    if not found and len(names) == 1:
        text = strip_thought(reply.text)
        readings = {(_GRADES[digit],) for digit in _FINAL.findall(text) or [text.strip()] if digit in _GRADES}
    if len(readings) != 1:
        held = "different grades" if readings else "no grade from 0 to 3"
        raise Unusable(f"it holds {held} under {', '.join(names)}")
    grades = readings.pop()
    if not expected:
        return [float(grade) for grade in grades]
    return [compute_expected_grade(reply, name, grade) for name, grade in zip(names, grades, strict=True)]


def compute_expected_grade(reply: Reply, name: str, grade: int) -> float:
    """Compute the mean of 0 to 3 under the probabilities of the four digits, at the token of this name's grade.

    The token is found by its place in the text. If the reply has no places, each token is taken to be the most likely
    one that continues the text. The four probabilities are divided by their sum; other alternatives of the token do not
    count. If the reply has no probabilities, or several tokens could be the grade's, the result is `grade`.
    """
    graded = re.compile(rf'"{name}"\s*:\s*"?([0-3])')
    places = [match.start(1) for match in graded.finditer(reply.text, *locate_reply(reply.text))]
    found = _find_token(reply, places[0]) if len(places) == 1 else None
    if found is None:
        return float(grade)
    before, alternatives, after = found
    logs = [alternatives.get(f"{before}{digit}{after}", -math.inf) for digit in _GRADES]
    highest = max(logs)
    if not math.isfinite(highest):
        return float(grade)
    weights = [math.exp(log - highest) for log in logs]
    return min(3.0, sum(number * weight for number, weight in enumerate(weights)) / sum(weights))


def _find_token(reply: Reply, place: int) -> tuple[str, Mapping[str, float], str] | None:
    """Find the token that holds the character at `place` of the text.

    Returns the token's part before that character, its alternatives with log-probabilities, and its part after.
    """
    if reply.starts:
        number = bisect(reply.starts, place) - 1
        start, end = [*reply.starts, len(reply.text)][number : number + 2]
        return reply.text[start:place], reply.logprobs[number], reply.text[place + 1 : end]
    start = 0
    for alternatives in reply.logprobs:
        fitting = [token for token in alternatives if token and reply.text.startswith(token, start)]
        if not fitting:
            return None
        token = max(fitting, key=alternatives.__getitem__)
        if place < start + len(token):
            return token[: place - start], alternatives, token[place - start + 1 :]
        start += len(token)
    return None


def _get_grades(value: Mapping[str, Any], names: Sequence[str]) -> tuple[int, ...] | None:
    numbers = (read_whole_number(value.get(name)) for name in names)
    grades = tuple(number for number in numbers if number is not None and 0 <= number <= max(_GRADES.values()))
    return grades if len(grades) == len(names) else None


WIDE_DIFFERENCE = 2
"""If two grades of a cascade differ by so much, the third prompt is asked."""
PROMPTS: Mapping[str, str] = {
    "umbrela": prompts.UMBRELA.system,
    "by_questions": prompts.BY_QUESTIONS,
    "by_use": prompts.BY_USE,
}
"""The prompts of a cascade by their names, in order. Without a cascade, only the first is asked."""


@dataclass(frozen=True, slots=True)
class JudgeSettings:
    """How often a pair is graded: `repeats` times by sampled replies, or by a `cascade` of up to three prompts."""

    repeats: int = 1
    cascade: bool = False

    @property
    def prompts(self) -> Mapping[str, str]:
        """The prompts that may be asked, by name."""
        return PROMPTS if self.cascade else dict([*PROMPTS.items()][:1])


async def judge_texts(
    model: Model, question: str, texts: Sequence[str], settings: JudgeSettings
) -> list[list[int | Failure]]:
    """Grade each text for a question; returns its grades and failures, in the order of prompts or repeats."""

    async def grade(form: GradeForm, places: Sequence[int]) -> list[int | Failure]:
        pairs = [(0, place) for place in places]
        found = await grade_pairs(model, [question], lambda place, _: texts[place], pairs, form)
        return [value if isinstance(value, Failure) else int(value) for value in map(found.__getitem__, pairs)]

    def list_forms() -> list[GradeForm]:
        if settings.cascade:
            return [GradeForm("pointwise", prompt=prompt) for prompt in PROMPTS.values()][:-1]
        if settings.repeats > 1:
            return [GradeForm("pointwise", seed=seed) for seed in range(1, settings.repeats + 1)]
        return [GradeForm("pointwise")]

    places = range(len(texts))
    found = await run_together(partial(grade, form, places) for form in list_forms())
    judged = [list(of_text) for of_text in zip(*found, strict=True)]
    if settings.cascade:
        apart = [place for place in places if _differ_widely(judged[place])]
        third = GradeForm("pointwise", prompt=[*PROMPTS.values()][-1])
        for place, value in zip(apart, await grade(third, apart), strict=True):
            judged[place].append(value)
    return judged


def _differ_widely(found: Sequence[int | Failure]) -> bool:
    grades = [value for value in found if not isinstance(value, Failure)]
    return bool(grades) and max(grades) - min(grades) >= WIDE_DIFFERENCE


def choose_grade(grades: Sequence[int]) -> int:
    """Choose the median of at least one grade; of the two in the middle of an even number, the lower one."""
    return statistics.median_low(grades)
