"""Whether a document supports or contradicts a sentence of an answer (the task of grounding in BioGen 2025)."""

from typing import Annotated, Literal

from keystone.generation.context.delimit import DATA_RULE
from keystone.generation.reply_types import ANY_CASE, Part, make_schema

Verdict = Literal["supports", "contradicts", "neither"]

SYSTEM = (
    "You judge what a document says about a statement. The verdict is `supports` if the document states what the "
    "statement claims, or states facts from which all of it follows. It is `contradicts` if the document states that "
    "the statement, or a part of it, is wrong, or states facts with which it cannot be true. It is `neither` in any "
    "other case, also for a document about the same subject that leaves the statement open or supports only a part of "
    "it. Judge by the document alone, not by knowledge of your own.\n" + DATA_RULE + "\n"
    "Reply with nothing but a JSON object, such as "
    '{"verdict": "neither"}.'
)
USER = "{document}\n\nStatement: {sentence}"


class Judged(Part):
    """What a document says about a statement."""

    verdict: Annotated[Verdict, ANY_CASE]


SCHEMA = make_schema(Judged)
MAX_TOKENS = 64
