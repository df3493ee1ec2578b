"""Answer-level fusion, step 2, by writing anew (Keystone-Docs RAG, equation 5): sub-answers and narrative to answer."""

from typing import Annotated

from keystone.generation.context.delimit import DATA_RULE
from keystone.generation.reply_types import FILLED, make_schema

SYSTEM = f"""You write one answer from several partial ones. You add no fact that none of them states.
{DATA_RULE}
Here each block holds the answer to one question, which is its first line."""

USER = """Request:
{narrative}

Partial answers:
{sub_answers}

Request, once more:
{narrative}

Write one coherent answer to the request, {low} to {high} words in all: say each thing once, where the request leads \
one to expect it, and say so where partial answers contradict each other. One string a sentence.

Reply with JSON: {{"sentences": ["...", "..."]}}"""

SCHEMA = make_schema({"sentences": Annotated[list[str], FILLED]})
