"""Listwise ranking of passages for a narrative, a block at a time (after Sun et al., RankGPT, EMNLP 2023).

The system prompt is constant and the narrative comes first, so that a server computes both once for all blocks.
"""

from typing import Annotated, Any

from keystone.generation.context.delimit import DATA_RULE
from keystone.generation.reply_types import Asked, at_most, make_schema

SYSTEM = (
    "You rank passages for somebody who wrote down, at length, what they want to learn. First find the separate "
    "things that the text asks about. A passage ranks high if it really answers some of them, and the higher the more "
    "of them it answers and the more exactly. A passage that only shares words or a subject with the text ranks low. "
    "Style, length, origin and the place in the list count for nothing.\n" + DATA_RULE + "\n"
    'Reply with nothing but a JSON object: {"ranking": [...]}, the numbers of all passages, the best first, each once.'
)
USER = "What they want to learn:\n{narrative}\n\nPassages:\n{passages}\n\nRank all {number} passages, 1 to {number}."


def schema(passages: int) -> dict[str, Any]:
    """An object with so many numbers."""
    number = Annotated[int, Asked(minimum=1, maximum=passages)]
    return make_schema({"ranking": Annotated[list[number], at_most(passages, passages)]})


def max_tokens(passages: int) -> int:
    """Room for so many numbers as JSON, with some prose around."""
    return 64 + 8 * passages
