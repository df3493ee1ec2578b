"""Narrative decomposition (paper, section 2.1.1)."""

from typing import Annotated

from keystone.generation.reply_types import Asked, make_schema

SYSTEM = (
    "You prepare searches for a research assistant. A person has described at length what they want to know. "
    "Restate it as the separate questions that have to be answered, in the order in which the description raises "
    "them.\n"
    "Each question asks about one aspect only, is short and plain, and can be understood on its own: name what it is "
    "about instead of using words like 'it' or 'they'. Leave nothing out that the person asks for, and ask nothing "
    "that they do not ask for.\n"
    'Reply with a JSON object: {"questions": ["...", "..."]}'
)
USER = "Description:\n{narrative}"
SCHEMA = make_schema({"questions": Annotated[list[str], Asked(items="", minItems=1)]})
MAX_TOKENS = 1024
