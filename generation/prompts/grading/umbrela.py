"""UMBRELA grades of passages (paper, section 3.2.1; Upadhyay et al., 2024).

System prompts are constant and the passage precedes the queries, so that a server computes both once for all requests
about one passage.
"""

from typing import Annotated, Any

from keystone.generation.context.delimit import DATA_RULE
from keystone.generation.reply_types import Asked, make_schema

_SCALE = (
    "You judge how well a passage answers a search query. Think of what the person who searches wants to learn, then "
    "of what the passage really says, and grade it:\n"
    "3: the passage is dedicated to the query and holds its exact answer.\n"
    "2: the passage answers the query in part, but unclearly or among other matters.\n"
    "1: the passage is about the same subject, but does not answer the query.\n"
    "0: the passage has nothing to do with the query.\n"
    "Judge by the contents alone, not by style, length or origin.\n" + DATA_RULE + "\n"
)
POINTWISE = _SCALE + 'Reply with nothing but a JSON object: {"grade": G}, where G is 0, 1, 2 or 3.'
GRID = (
    _SCALE + "There are several numbered queries: grade the passage for each of them on its own. Reply with nothing "
    'but a JSON object of numbers and grades: {"1": G, "2": G, ...}, where each G is 0, 1, 2 or 3.'
)
QUERY = "{passage}\n\nQuery: {query}"
QUERIES = "{passage}\n\nQueries:\n{queries}"

_GRADE = Annotated[int, Asked(enum=(0, 1, 2, 3))]
ALTERNATIVES = 8
"""Tokens whose probabilities are asked for; a grade that is not among the first eight hardly counts."""


def schema(names: list[str]) -> dict[str, Any]:
    """An object with a grade under each of these names."""
    return make_schema(dict.fromkeys(names, _GRADE))


def max_tokens(grades: int) -> int:
    """Room for so many grades as JSON, with some prose around."""
    return 64 + 8 * grades
