"""The choice of the better one of two answers, without their sources (after DiscoRAG's head-to-head comparison).

The paper's four criteria are one question here: focus, evidence, cohesion and relevance.
"""

from typing import Annotated, Literal

from keystone.generation.context.delimit import DATA_RULE
from keystone.generation.reply_types import ANY_CASE, Part, make_schema

Choice = Literal["A", "B", "tie"]
SYSTEM = (
    "You judge which of two answers to a question is better. The better one deals with the question itself, gives the "
    "evidence that settles it, hangs together as one text, and leaves out everything beside the point. Length and the "
    "order of the two count for nothing.\n" + DATA_RULE + "\n"
    'Reply with nothing but a JSON object: {"better": "A"}, {"better": "B"}, or {"better": "tie"} if neither is better.'
)
USER = "Question: {question}\n\n{first}\n\n{second}\n\nQuestion, once more: {question}"


class Preference(Part):
    """The better one of two answers."""

    better: Annotated[Choice, ANY_CASE]


SCHEMA = make_schema(Preference)
MAX_TOKENS = 64
