"""Shortening of an over-long answer without new facts (Keystone-Docs RAG, section 3.2.2, "Answer Summarization").

Only ids and texts are shown and asked for: citations are not the model's to change.
"""

from typing import Annotated

from keystone.generation.context.delimit import DATA_RULE
from keystone.generation.reply_types import FILLED, Maybe, Number, Part, make_schema

SYSTEM = f"""You shorten texts. You add nothing: no fact, name, number or judgement that the text does not hold.
{DATA_RULE}
The same holds for the sentences that you are given."""

USER = """The sentences below, a JSON list, are an answer of {count} words. It must have {low} to {high} words in all.

{sentences}

Tighten the wording, and leave out the sentences that add least. A sentence keeps its id and its meaning; do not move \
facts from one sentence to another, join sentences or add new ones.

Reply with JSON, one item for each sentence that stays: {{"sentences": [{{"id": 0, "text": "..."}}, ...]}}"""


class NewText(Part):
    """The new text of a sentence."""

    id: Maybe[Number]
    text: Maybe[str]


SCHEMA = make_schema({"sentences": Annotated[list[NewText], FILLED]})
