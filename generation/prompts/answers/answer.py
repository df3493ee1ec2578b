"""Retrieval-level fusion (Keystone-Docs RAG, section 3.2.2): one cited answer from the keystone documents."""

from typing import Annotated

from keystone.generation.context.delimit import DATA_RULE
from keystone.generation.reply_types import FILLED, Maybe, Number, Part, Several, make_schema

SYSTEM = f"""You write answers for readers who check every claim against its source.
{DATA_RULE}
Say only what the documents say. What they do not tell, leave out; never fill a gap from memory."""

USER = """Request:
{narrative}

Documents, each with its number as id:
{documents}

Request, once more:
{narrative}

Answer the request as a whole in flowing prose, {low} to {high} words over all sentences. Give each aspect of the \
request its due, the most important first, and say nothing twice. One item a sentence; `citations` holds the numbers \
of the documents that state what the sentence says, the best one first. A sentence that no document supports has no \
place in the answer. Write no document numbers into the text itself.

Reply with JSON: {{"answer": [{{"text": "...", "citations": [3, 0]}}, ...]}}"""


class CitedText(Part):
    """A sentence with the numbers of its documents."""

    text: Maybe[str]
    citations: Several[Number]


SCHEMA = make_schema({"answer": Annotated[list[CitedText], FILLED]})
