"""Rubrics by a model: weighted criteria of a narrative, and whether an answer meets them; the latter also by words."""

from collections.abc import Sequence
from functools import partial
from typing import Literal, get_args

from keystone.generation.ask import ask_all
from keystone.generation.context.delimit import delimit, neutralise
from keystone.generation.context.fit_window import share_window
from keystone.generation.context.tokens import clip
from keystone.generation.grading.nuggets import WINDOW, label_statements, show_question
from keystone.generation.llm.model import Model
from keystone.generation.prompts.evaluation import create_criteria as creation
from keystone.generation.prompts.evaluation import grade_criteria as grading
from keystone.generation.reply_types import read_parts
from keystone.generation.rules.support import rate_support
from keystone.generation.rules.words import find_terms, make_weigher
from keystone.generation.types import Failure, Reply, Request, Support
from keystone.indexing.errors import Unusable

Verdict = Literal["satisfied", "partially_satisfied", "not_satisfied", "failed"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
"""The verdicts on criteria. `failed` stands for a verdict that the model did not give."""
BY_SUPPORT: dict[Support, Verdict] = {
    "full": "satisfied",
    "partial": "partially_satisfied",
    "none": "not_satisfied",
}


async def create_criteria(
    model: Model, question: str, passages: Sequence[str], window: int
) -> tuple[list[creation.WrittenCriterion], list[Failure]]:
    """Create the criteria of a narrative, at most `MOST_CRITERIA`; also the failures of windows.

    The model sees `WINDOW` passages at a time with the criteria so far. Without passages it sees the narrative alone.
    A request fits `window` tokens. If a window fails, the criteria stay as they are.
    """
    found, failures = list[creation.WrittenCriterion](), list[Failure]()
    for start in range(0, max(len(passages), 1), WINDOW):
        request = request_criteria(question, passages[start : start + WINDOW], found, window)
        (made,) = await ask_all(model, [(request, read_criteria)])
        if isinstance(made, Failure):
            failures.append(made)
        else:
            found = made
    return found, failures


def request_criteria(
    question: str, passages: Sequence[str], known: Sequence[creation.WrittenCriterion], window: int
) -> Request:
    """Make a request that brings criteria up to date. Passages are cut to equal shares of `window` tokens."""
    limit = share_window(window, max(len(passages), 1))
    shown = "\n\n".join(delimit(number, clip(text, limit)) for number, text in enumerate(passages, 1))
    so_far = "\n".join(f"{one.weight:+d} ({one.type}) {neutralise(one.text)}" for one in known) or "(none)"
    user = creation.USER.format(passages=shown, question=neutralise(question), criteria=so_far)
    return Request("rubrics", (("system", creation.SYSTEM), ("user", user)), creation.MAX_TOKENS, creation.SCHEMA)


def read_criteria(reply: Reply) -> list[creation.WrittenCriterion]:
    """Read criteria, each text once. `Unusable` for none, and for a weight of 0 or beyond `HIGHEST_WEIGHT`."""
    found = {one.text.strip(): one for one in read_parts(reply, "criteria", creation.WrittenCriterion)}
    found.pop("", None)
    if not found:
        raise Unusable("it has no criterion")
    for one in found.values():
        if not 1 <= abs(one.weight) <= creation.HIGHEST_WEIGHT:
            raise Unusable(f"weight: expected -5 to -1 or 1 to 5, found {one.weight}")
    return list(found.values())[: creation.MOST_CRITERIA]


async def grade_criteria(model: Model, question: str, answer: str, criteria: Sequence[str]) -> list[Verdict]:
    """Grade an answer by criteria; `failed` where the model gives no usable reply. An empty answer meets none."""
    if not answer.strip():
        return ["not_satisfied"] * len(criteria)
    shown = f"{delimit('answer', answer)}\n\n{show_question(question)}"
    ask = partial(label_statements, purpose="rubrics", listed=grading.CRITERIA)
    return await ask(model, criteria, grading.SYSTEM, shown, VERDICTS)


def grade_by_rules(answer: str, criteria: Sequence[str]) -> list[Verdict]:
    """Grade an answer by the words that it shares with each criterion: see `rate_support`.

    Words that all criteria of a rubric have, such as "the response", weigh next to nothing.
    """
    weigh = make_weigher([find_terms(text) for text in criteria])
    return [BY_SUPPORT[rate_support(text, answer, weigh)] for text in criteria]
