"""The check of the documents before an answer is written: which questions do they answer, and where?

It begins as `keystone.generation.prompts.answers.whole` does, so that a server reads the documents once for both.
"""

from typing import Annotated

from keystone.generation.prompts.answers.whole import DOCUMENTS
from keystone.generation.reply_types import Maybe, Number, Part, Several, at_most, make_schema
from keystone.generation.types import Answered

MOST_SEARCHES = 2
"""The most new search texts of one question."""

USER = (
    DOCUMENTS
    + """Before the answer to this request is written, its questions are compared with the documents. They are, as a \
JSON list:
{questions}

Report on every question:
- `found`: how far the documents answer it. "answered": all that the question wants is there. "partly": something of \
use is there, and something that the question wants is missing. "not": nothing there answers it.
- `document` and `quote`: the number of the document that answers most of it, and the words that do so, copied from \
that document character for character, 5 to 40 words from one place. For "not", -1 and an empty text.
- `searches`: for "partly" and "not", up to {most} texts of 2 to 8 words by which documents with the missing part can \
be found: the names that such documents use for the thing. For "answered", an empty list.

Reply with JSON: {{"questions": [{{"id": 0, "found": "partly", "document": 3, "quote": "...", "searches": ["..."]}}, \
...]}}"""
)


class CheckedQuestion(Part):
    """How far the documents answer one question, where they do, and what to search for."""

    id: Maybe[Number]
    found: Maybe[Answered]
    document: Maybe[Number]
    quote: Maybe[str]
    searches: Annotated[Several[str], at_most(MOST_SEARCHES)]


SCHEMA = make_schema({"questions": list[CheckedQuestion]})
