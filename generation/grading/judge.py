"""Grades for judgments: UMBRELA once, several times, or by a cascade of prompts. They select no documents."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from keystone.generation.ask import run_together
from keystone.generation.grading.umbrela import GradeForm, grade_pairs
from keystone.generation.llm.model import Model
from keystone.generation.prompts.grading import second_opinions, umbrela
from keystone.generation.types import Failure

WIDE_DIFFERENCE = 2
"""If two grades of a cascade differ by so much, the third prompt is asked."""
PROMPTS: Mapping[str, str] = {
    "umbrela": umbrela.POINTWISE,
    "by_questions": second_opinions.BY_QUESTIONS,
    "by_use": second_opinions.BY_USE,
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
