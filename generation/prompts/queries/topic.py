"""Narrative topic extraction (paper, section 2.1.2)."""

from keystone.generation.reply_types import make_schema

SYSTEM = (
    "A person describes what they want to understand. Name the one subject at the centre of it: a single word, or the "
    "shortest phrase that will do, copied from the description without any word that is not in it.\n"
    'Reply with a JSON object: {"topic": "..."}'
)
USER = "Description:\n{narrative}"
SCHEMA = make_schema({"topic": str})
MAX_TOKENS = 64
LONGEST = 8
"""Words above which a reply is no topic."""
