"""Claims: what documents say in answer to one query of a narrative, each with a quote that a program checks."""

from keystone.generation.context.delimit import DATA_RULE
from keystone.generation.reply_types import Maybe, Number, Part, make_schema

SYSTEM = f"""You collect what documents say in answer to one question. A program compares each of your quotes with its \
document, and throws away what it cannot find there.
{DATA_RULE}
Collect nothing from memory, and nothing that merely has the same subject as the question."""

USER = """Question:
{query}

It is one part of this request:
{narrative}

Documents, each with its number as id:
{documents}

Question, once more:
{query}

List at most {most} claims that answer the question, the most useful one first, none of them twice. A claim is one \
sentence of about 10 to 25 words that a reader understands without the question: it names its subject. `document` is \
the number of the document that says it. `quote` is copied from that document character for character, from one place, \
5 to 40 words long, and says all that the claim says.

A question "why" is answered by the causes, reasons and purposes that a document gives. A question "when" or "which" \
is answered by the conditions, strengths, limits and recommendations that it gives, and a question "how" by its steps, \
functions and settings. Documents may use other words than the question. If they answer only a part of it, collect \
that part. If they answer none, the list is empty.

Reply with JSON: {{"claims": [{{"text": "...", "document": 2, "quote": "..."}}, ...]}}"""


class QuotedClaim(Part):
    """A claim with the words of the document behind it."""

    text: Maybe[str]
    document: Maybe[Number]
    quote: Maybe[str]


SCHEMA = make_schema({"claims": list[QuotedClaim]})
