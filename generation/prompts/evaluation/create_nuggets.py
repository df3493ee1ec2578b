"""A list of nuggets that grows window by window (after AutoNuggetizer: Pradeep et al., SIGIR 2025, section 3.1)."""

from typing import Annotated

from keystone.generation.context.delimit import DATA_RULE
from keystone.generation.reply_types import at_most, make_schema

MOST_NUGGETS = 30
"""The most nuggets of a topic."""

SYSTEM = f"""You collect nuggets: the single facts that a good answer to a question should state.
{DATA_RULE}
You get the question, the nuggets found so far, and further passages. Bring the list up to date: keep what is right, \
add facts that the passages state and the question asks for, and join nuggets that say the same. Each nugget is one \
fact in 1 to 12 words that is understood without the others. Put the facts that matter most first. The list has at \
most {MOST_NUGGETS} nuggets. If the passages add nothing, repeat the list as it is.
Reply with nothing but a JSON object: {{"nuggets": ["...", "..."]}}"""
USER = "{passages}\n\nQuestion: {question}\n\nNuggets so far:\n{nuggets}"
SCHEMA = make_schema({"nuggets": Annotated[list[str], at_most(MOST_NUGGETS)]})
MAX_TOKENS = 2048
