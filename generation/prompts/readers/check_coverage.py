"""The check before an escalation: which queries do the cited passages of a draft answer?"""

from keystone.generation.context.delimit import DATA_RULE
from keystone.generation.reply_types import Maybe, Number, Part, make_schema
from keystone.generation.types import Support

SYSTEM = f"""You check whether passages answer questions. You never answer the questions yourself.
{DATA_RULE}
Judge by the passages alone. Knowledge of your own does not count."""

USER = """Passages:
{documents}

Questions, each with its number as id:
{queries}

Say for each question how far the passages answer it:
- "full": a reader of the passages could answer every part of the question.
- "partial": the passages answer a part, or only touch on it.
- "none": the passages answer nothing of it.

Reply with JSON: {{"queries": [{{"id": 0, "support": "full"}}, {{"id": 1, "support": "none"}}]}}"""


class Coverage(Part):
    """How far the documents answer a query."""

    id: Maybe[Number]
    support: Maybe[Support]


SCHEMA = make_schema({"queries": list[Coverage]})
