"""Nuggets by a model: the facts that passages of a topic state, their importance, and whether an answer states them.

Source: AutoNuggetizer (Pradeep et al., SIGIR 2025, section 3).
"""

from collections.abc import Sequence
from functools import partial
from typing import Literal, TypeVar, get_args

from keystone.generation.ask import ask_all
from keystone.generation.context.delimit import delimit, neutralise
from keystone.generation.context.fit_window import share_window
from keystone.generation.context.tokens import clip
from keystone.generation.llm.model import Model
from keystone.generation.prompts.evaluation import create_nuggets as creation
from keystone.generation.prompts.evaluation import label_nuggets as labelling
from keystone.generation.structured import read_strings
from keystone.generation.types import Failure, Reply, Request
from keystone.indexing.errors import Unusable

Importance = Literal["vital", "okay", "failed"]
Assignment = Literal["support", "partial_support", "not_support", "failed"]

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
    nuggets, failures = list[str](), list[Failure]()
    for start in range(0, len(passages), WINDOW):
        request = request_nuggets(question, passages[start : start + WINDOW], nuggets, window)
        (found,) = await ask_all(model, [(request, partial(read_nuggets, known=nuggets))])
        if isinstance(found, Failure):
            failures.append(found)
        else:
            nuggets = found
    return nuggets, failures


def request_nuggets(question: str, passages: Sequence[str], nuggets: Sequence[str], window: int) -> Request:
    """Make a request that brings a list of nuggets up to date. Passages are cut to equal shares of `window` tokens."""
    limit = share_window(window, len(passages))
    shown = "\n\n".join(delimit(number, clip(text, limit)) for number, text in enumerate(passages, 1))
    user = creation.USER.format(passages=shown, question=neutralise(question), nuggets=_number(nuggets) or "(none)")
    messages = (("system", creation.SYSTEM), ("user", user))
    return Request("nuggets", messages, creation.MAX_TOKENS, creation.SCHEMA)


def read_nuggets(reply: Reply, known: Sequence[str]) -> list[str]:
    """Read a list of nuggets, each once, the first `MOST_NUGGETS`. `Unusable` if it drops all that were known."""
    tidy = (" ".join(text.split()) for text in read_strings(reply, "nuggets"))
    found = list(dict.fromkeys(filter(None, tidy)))[: creation.MOST_NUGGETS]
    if known and not found:
        raise Unusable("its list is empty; expected the nuggets so far, brought up to date")
    return found


async def rate_importance(model: Model, question: str, nuggets: Sequence[str]) -> list[Importance]:
    """Rate the importance of nuggets for a question; `failed` where the model gives no usable reply."""
    return await label_statements(model, nuggets, labelling.IMPORTANCE, show_question(question), IMPORTANCES)


async def assign_nuggets(model: Model, question: str, answer: str, nuggets: Sequence[str]) -> list[Assignment]:
    """Assign nuggets to an answer; `failed` where the model gives no usable reply. An empty answer states none.

    If the question is empty, the model does not see it.
    """
    if not answer.strip():
        return ["not_support"] * len(nuggets)
    shown = f"{delimit('answer', answer)}\n\n{show_question(question)}"
    return await label_statements(model, nuggets, labelling.ASSIGNMENT, shown, ASSIGNMENTS)


def show_question(question: str) -> str:
    """Show a question as requests for labels do; an empty one is not shown."""
    return labelling.QUESTION.format(question=neutralise(question)) if question else ""


async def label_statements(
    model: Model,
    statements: Sequence[str],
    system: str,
    shown: str,
    labels: tuple[Label, ...],
    purpose: str = "nuggets",
    listed: str = labelling.NUGGETS,
) -> list[Label]:
    """Label statements, `WINDOW` in a request. The last label stands for a failure, and no reply may give it.

    `listed` shows them in a request, below `shown`. `purpose` is the purpose of the requests.
    """
    *given, failed = labels
    groups = [statements[start : start + WINDOW] for start in range(0, len(statements), WINDOW)]
    requests = []
    for group in groups:
        messages = (("system", system), ("user", shown + listed.format(nuggets=_number(group))))
        schema, room = labelling.schema(given, len(group)), labelling.max_tokens(len(group))
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
