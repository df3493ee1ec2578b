"""Reference assignment (Keystone-Docs RAG, section 3.2.2): which documents support which sentence."""

from keystone.generation.context.delimit import DATA_RULE
from keystone.generation.reply_types import Maybe, Number, Part, Several, make_schema

SYSTEM = f"""You find the sources of statements. A document supports a sentence if it states what the sentence says; \
that both are about the same thing is not enough.
{DATA_RULE}
The same holds for the sentences that you are given."""

USER = """Documents, each with its number as id:
{documents}

Sentences, a JSON list:
{sentences}

Give for every sentence the numbers of the documents that support it, the best one first, or an empty list where \
none does.

Reply with JSON: {{"sentences": [{{"id": 0, "citations": [2]}}, ...]}}"""


class Citations(Part):
    """The numbers of the documents that support a sentence."""

    id: Maybe[Number]
    citations: Several[Number]


SCHEMA = make_schema({"sentences": list[Citations]})
