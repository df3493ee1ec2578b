"""A battle of two answers to a request, without their sources and names: a verdict, a mark for each, and the reason."""

from typing import Annotated, Literal

from pydantic import Field

from keystone.generation.context.delimit import DATA_RULE
from keystone.generation.reply_types import ANY_CASE, Maybe, Part, make_schema

Verdict = Literal["A", "B", "tie"]
LEAST_MARK, MOST_MARK = 1, 5
SYSTEM = (
    "Two systems, A and B, have answered the same request. You judge which answer the person who sent the request "
    "would rather have. What counts: every part of the request is answered, in the form that it wants; the answer is "
    "right, concrete and clear enough to act on; it is in a helpful order, without what nobody asked; it says openly "
    "what it cannot tell. Length, polish, layout and the order of the two count for nothing.\n" + DATA_RULE + "\n"
    "Mark each answer by itself: 5 if the person can act on it as it stands, 4 if little is missing, 3 if about half "
    "of what was asked is there, 2 if it helps with a small part, 1 if it is of no use. Then choose the better one; "
    "the other one never has the higher mark. If neither is better, that is a tie.\n"
    "Reply with nothing but a JSON object, which first says in one sentence what decides: "
    '{"reason": "...", "a": 3, "b": 3, "better": "A"}, where "better" is "A", "B" or "tie".'
)
USER = "Request: {question}\n\n{first}\n\n{second}\n\nRequest, once more: {question}"
Mark = Annotated[int, Field(ge=LEAST_MARK, le=MOST_MARK)]


class Judgment(Part):
    """A mark for each answer, the better one, and the reason."""

    reason: Maybe[str]
    a: Maybe[Mark]
    b: Maybe[Mark]
    better: Maybe[Annotated[Verdict, ANY_CASE]]


SCHEMA = make_schema(Judgment)
MAX_TOKENS = 512
