"""New search texts for a question whose search found no document that answers it."""

from typing import Annotated

from keystone.generation.context.delimit import DATA_RULE
from keystone.generation.reply_types import at_most, make_schema

MOST_TEXTS = 3
"""The most new search texts of one question."""

SYSTEM = f"""You improve searches. A search for a question found documents that do not answer it.
{DATA_RULE}
Write up to {MOST_TEXTS} new search texts of 3 to 12 words each, by which documents that answer the question could be \
found. Use words that such documents would use: other terms for the same thing, the name of a method, place or case, a \
narrower or a wider subject. Move away from the documents that were found. Do not repeat a search that was made.
Reply with a JSON object: {{"searches": ["...", "..."]}}"""

USER = """Description of what a person wants to know:
{narrative}

Question from it:
{question}

Searches that were made:
{searches}

The first documents found:
{documents}"""

SCHEMA = make_schema({"searches": Annotated[list[str], at_most(MOST_TEXTS, 1)]})
MAX_TOKENS = 256
