"""The check of the documents before an answer is written: which questions do they answer, and where?

It begins as `keystone.generation.prompts.answers.whole` does, so that a server reads the documents once for both.
"""

from typing import get_args

from keystone.generation.prompts.answers.whole import DOCUMENTS
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

SCHEMA = {
    "type": "object",
    "properties": {
        "questions": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "id": {"type": "integer"},
                    "found": {"type": "string", "enum": list(get_args(Answered))},
                    "document": {"type": "integer"},
                    "quote": {"type": "string"},
                    "searches": {"type": "array", "items": {"type": "string"}, "maxItems": MOST_SEARCHES},
                },
                "required": ["id", "found", "document", "quote", "searches"],
                "additionalProperties": False,
            },
        }
    },
    "required": ["questions"],
    "additionalProperties": False,
}
