"""Nuggets and rubrics by a model: statements about a topic that passages lead to, and whether an answer meets them.

Nuggets are facts that passages state, with their importance. Source: AutoNuggetizer (Pradeep et al., SIGIR 2025,
section 3). A rubric has weighted criteria of a narrative; rules can grade by it too.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal, TypeVar, get_args

from keystone.generation.context.texts import clip, delimit, neutralise, share_window
from keystone.generation.llm.ask import ask_all
from keystone.generation.llm.model import Model
from keystone.generation.prompts import evaluation as prompts
from keystone.generation.replies import read_parts, read_strings
from keystone.generation.rules.support import rate_support
from keystone.generation.rules.words import find_terms, make_weigher
from keystone.generation.types import Failure, Reply, Request, Support
from keystone.indexing.errors import Unusable
from keystone.indexing.types import chunks

Importance = Literal["vital", "okay", "failed"]
Assignment = Literal["support", "partial_support", "not_support", "failed"]

T = TypeVar("T")
Label = TypeVar("Label", bound=str)

IMPORTANCES: tuple[Importance, ...] = get_args(Importance)
ASSIGNMENTS: tuple[Assignment, ...] = get_args(Assignment)
"""The labels of nuggets. `failed` stands for a label that the model did not give."""
WINDOW = 10
"""The passages, or the nuggets, of one request."""


async def create_nuggets(
    model: Model, question: str, passages: Sequence[str], window: int
) -> tuple[list[str], list[Failure]]:
    """Create the nuggets of a question from its passages, at most `MOST_NUGGETS`; also the failures of windows.

    The model sees `WINDOW` passages at a time with the list so far, and returns the list up to date. A request fits
    `window` tokens. If a window fails, the list stays as it is.
    """
    ask = partial(prompts.CREATE_NUGGETS.request, question=neutralise(question))
    return await _grow(
        model,
        list(chunks(passages, WINDOW)),
        window,
        lambda shown, known: (
            ask(passages=shown, nuggets=_number(known) or "(none)"),
            partial(read_nuggets, known=known),
        ),
    )


async def _grow(
    model: Model,
    groups: Sequence[Sequence[str]],
    window: int,
    ask: Callable[[str, list[T]], tuple[Request, Callable[[Reply], list[T]]]],
) -> tuple[list[T], list[Failure]]:
    """Bring a list up to date by each group of passages. If a request fails, the list stays as it is.

    Passages are cut to equal shares of `window` tokens.
    """
    known, failures = list[T](), list[Failure]()
    for passages in groups:
        limit = share_window(window, len(passages))
        shown = "\n\n".join(delimit(number, clip(text, limit)) for number, text in enumerate(passages, 1))
        (found,) = await ask_all(model, [ask(shown, known)])
        if isinstance(found, Failure):
            failures.append(found)
        else:
            known = found
    return known, failures


def read_nuggets(reply: Reply, known: Sequence[str]) -> list[str]:
    """Read a list of nuggets, each once, the first `MOST_NUGGETS`. `Unusable` if it drops all that were known."""
    tidy = (" ".join(text.split()) for text in read_strings(reply, "nuggets"))
    found = list(dict.fromkeys(filter(None, tidy)))[: prompts.MOST_NUGGETS]
    if known and not found:
        raise Unusable("its list is empty; expected the nuggets so far, brought up to date")
    return found


async def rate_importance(model: Model, question: str, nuggets: Sequence[str]) -> list[Importance]:
    """Rate the importance of nuggets for a question; `failed` where the model gives no usable reply."""
    return await label_statements(model, nuggets, prompts.IMPORTANCE, show_question(question), IMPORTANCES)


async def assign_nuggets(model: Model, question: str, answer: str, nuggets: Sequence[str]) -> list[Assignment]:
    """Assign nuggets to an answer; `failed` without a usable reply. An empty answer states none."""
    if not answer.strip():
        return ["not_support"] * len(nuggets)
    shown = f"{delimit('answer', answer)}\n\n{show_question(question)}"
    return await label_statements(model, nuggets, prompts.ASSIGNMENT, shown, ASSIGNMENTS)


def show_question(question: str) -> str:
    """Show a question as requests for labels do; an empty one is not shown."""
    return prompts.QUESTION.format(question=neutralise(question)) if question else ""


async def label_statements(
    model: Model,
    statements: Sequence[str],
    system: str,
    shown: str,
    labels: tuple[Label, ...],
    purpose: str = "nuggets",
    listed: str = prompts.NUGGETS,
) -> list[Label]:
    """Label statements, `WINDOW` in a request. The last label stands for a failure, and no reply may give it.

    `listed` shows them in a request, below `shown`. `purpose` is the purpose of the requests.
    """
    *given, failed = labels
    groups = list(chunks(statements, WINDOW))
    requests = []
    for group in groups:
        messages = (("system", system), ("user", shown + listed.format(nuggets=_number(group))))
        schema, room = prompts.make_label_schema(given, len(group)), 64 + 16 * len(group)
        requests.append((Request(purpose, messages, room, schema), partial(_read_labels, given, len(group))))
    found = await ask_all(model, requests)
    return [
        label
        for group, own in zip(groups, found, strict=True)
        for label in ([failed] * len(group) if isinstance(own, Failure) else own)
    ]


def _read_labels(labels: Sequence[Label], number: int, reply: Reply) -> list[Label]:
    known: dict[str, Label] = {label: label for label in labels}
    said = [text.strip().casefold() for text in read_strings(reply, "labels")]
    if len(said) != number or not known.keys() >= set(said):
        raise Unusable(f"it does not give {number} labels, each one of {', '.join(labels)}")
    return [known[label] for label in said]


def _number(nuggets: Sequence[str]) -> str:
    return "\n".join(f"{number}. {neutralise(' '.join(text.split()))}" for number, text in enumerate(nuggets, 1))


Verdict = Literal["satisfied", "partially_satisfied", "not_satisfied", "failed"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)
"""The verdicts on criteria. `failed` stands for a verdict that the model did not give."""
BY_SUPPORT: dict[Support, Verdict] = {"full": "satisfied", "partial": "partially_satisfied", "none": "not_satisfied"}


async def create_criteria(
    model: Model, question: str, passages: Sequence[str], window: int
) -> tuple[list[prompts.WrittenCriterion], list[Failure]]:
    """Create the criteria of a narrative, at most `MOST_CRITERIA`; also the failures of windows.

    The model sees `WINDOW` passages at a time with the criteria so far. Without passages it sees the narrative alone.
    A request fits `window` tokens. If a window fails, the criteria stay as they are.
    """
    ask = partial(prompts.CREATE_CRITERIA.request, question=neutralise(question))

    def show(known: Sequence[prompts.WrittenCriterion]) -> str:
        return "\n".join(f"{one.weight:+d} ({one.type}) {neutralise(one.text)}" for one in known) or "(none)"

    return await _grow(
        model,
        list(chunks(passages, WINDOW)) or [()],
        window,
        lambda shown, known: (ask(passages=shown, criteria=show(known)), read_criteria),
    )


def read_criteria(reply: Reply) -> list[prompts.WrittenCriterion]:
    """Read criteria, each text once. `Unusable` for none, and for a weight of 0 or beyond `HIGHEST_WEIGHT`."""
    found = {one.text.strip(): one for one in read_parts(reply, "criteria", prompts.WrittenCriterion)}
    found.pop("", None)
    if not found:
        raise Unusable("it has no criterion")
    for one in found.values():
        if not 1 <= abs(one.weight) <= prompts.HIGHEST_WEIGHT:
            raise Unusable(f"weight: expected -5 to -1 or 1 to 5, found {one.weight}")
    return list(found.values())[: prompts.MOST_CRITERIA]


async def grade_criteria(model: Model, question: str, answer: str, criteria: Sequence[str]) -> list[Verdict]:
    """Grade an answer by criteria; `failed` where the model gives no usable reply. An empty answer meets none."""
    if not answer.strip():
        return ["not_satisfied"] * len(criteria)
    shown = f"{delimit('answer', answer)}\n\n{show_question(question)}"
    ask = partial(label_statements, purpose="rubrics", listed=prompts.CRITERIA)
    return await ask(model, criteria, prompts.GRADE_CRITERIA, shown, VERDICTS)


def grade_by_rules(answer: str, criteria: Sequence[str]) -> list[Verdict]:
    """Grade an answer by the words that it shares with each criterion: see `rate_support`.

    Words that all criteria of a rubric have, such as "the response", weigh next to nothing.
    """
    weigh = make_weigher([find_terms(text) for text in criteria])
    return [BY_SUPPORT[rate_support(text, answer, weigh)] for text in criteria]
