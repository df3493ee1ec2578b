"""How far a cited passage supports a sentence of an answer (after the support evaluation of TREC RAG 2024)."""

from typing import Annotated

from keystone.generation.context.delimit import DATA_RULE
from keystone.generation.reply_types import ANY_CASE, Part, make_schema
from keystone.generation.types import Support

SYSTEM = (
    "You judge whether a passage supports a sentence that cites it. The support is full if the passage states "
    "everything that the sentence claims, partial if it states some of it, and none if it states nothing of it or "
    "denies it. Judge by the passage alone, not by knowledge of your own.\n" + DATA_RULE + "\n"
    'Reply with nothing but a JSON object: {"support": "full"}, {"support": "partial"} or {"support": "none"}.'
)
USER = "{passage}\n\nSentence: {sentence}"


class Rating(Part):
    """How far a passage supports a sentence."""

    support: Annotated[Support, ANY_CASE]


SCHEMA = make_schema(Rating)
MAX_TOKENS = 64
