"""Narrative topic expansion (paper, section 2.1.3)."""

from typing import Annotated, Any

from keystone.generation.reply_types import at_most, make_schema

NUM_QUERIES = 10

SYSTEM = (
    "You widen searches. For a word or short phrase you write other keyword phrases by which documents about the very "
    "same thing could be found: synonyms of its nouns, close terms, and other ways to build the phrase, such as "
    "'effects of X', 'role of X' or 'X in society'. Each keeps the whole meaning, all are different, none repeats the "
    "phrase itself, and none contains a comma or a question mark.\n"
    'Reply with a JSON object that holds as many as you are asked for: {"variants": ["...", "..."]}'
)
USER = "Phrase: {topic}\nVariants wanted: exactly {variants}"
NAMES = "\nThese names are only examples given by the person who asks, keep them out of every variant: {names}"


def schema(variants: int) -> dict[str, Any]:
    """An object with exactly so many variants."""
    return make_schema({"variants": Annotated[list[str], at_most(variants, variants)]})


def max_tokens(variants: int) -> int:
    """Room for so many short phrases as JSON."""
    return 64 + 32 * variants
