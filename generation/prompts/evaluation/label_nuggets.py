"""Labels of numbered nuggets: importance, and assignment to an answer (after AutoNuggetizer, sections 3.1 and 3.2)."""

from collections.abc import Sequence
from typing import Annotated, Any

from keystone.generation.context.delimit import DATA_RULE
from keystone.generation.reply_types import Asked, at_most, make_schema

_FORM = (
    '\nReply with nothing but a JSON object that gives each number its label, in order: {{"labels": [{labels}, ...]}}'
)
IMPORTANCE = (
    "You rate nuggets: single facts that an answer to a question may state. A nugget is vital if a good answer must "
    "state it. It is okay if it adds something worthwhile that a good answer may leave out.\n"
    + DATA_RULE
    + _FORM.format(labels='"vital", "okay"')
)
ASSIGNMENT = (
    "You compare an answer to a question with nuggets: single facts that it may state. The label of a nugget is "
    "support if the answer states all of it, in whatever words. It is partial_support if the answer states a part of "
    "it. Otherwise it is not_support. Judge by the answer alone, not by knowledge of your own. If a nugget is a "
    "question with its answers, the answer has to give those.\n"
    + DATA_RULE
    + _FORM.format(labels='"support", "not_support"')
)
QUESTION = "Question: {question}\n\n"
NUGGETS = "Nuggets:\n{nuggets}"


def schema(labels: Sequence[str], number: int) -> dict[str, Any]:
    """Make the JSON schema of a reply that has `number` labels, each one of `labels`."""
    return make_schema({"labels": Annotated[list[Annotated[str, Asked(enum=labels)]], at_most(number, number)]})


def max_tokens(number: int) -> int:
    """Room for so many labels as JSON, with some prose around."""
    return 64 + 16 * number
