"""The prompts of grades: UMBRELA, its second opinions, rankings of passages, and what a document says of a sentence."""

from typing import Annotated, Any, Literal

from keystone.generation.context.texts import DATA_RULE
from keystone.generation.replies import ANY_CASE, Asked, Part, at_most, make_schema
from keystone.generation.types import Prompt

Verdict = Literal["supports", "contradicts", "neither"]


class Judged(Part):
    """What a document says about a statement."""

    verdict: Annotated[Verdict, ANY_CASE]


GROUND = Prompt(
    "ground",
    "You judge what a document says about a statement. The verdict is `supports` if the document states what the "
    "statement claims, or states facts from which all of it follows. It is `contradicts` if the document states that "
    "the statement, or a part of it, is wrong, or states facts with which it cannot be true. It is `neither` in any "
    "other case, also for a document about the same subject that leaves the statement open or supports only a part of "
    "it. Judge by the document alone, not by knowledge of your own.\n" + DATA_RULE + "\n"
    "Reply with nothing but a JSON object, such as "
    '{"verdict": "neither"}.',
    "{document}\n\nStatement: {sentence}",
    make_schema(Judged),
    64,
)
"""Whether a document supports or contradicts a sentence of an answer (the task of grounding in BioGen 2025)."""

RANK = Prompt(
    "rerank",
    "You rank passages for somebody who wrote down, at length, what they want to learn. First find the separate "
    "things that the text asks about. A passage ranks high if it really answers some of them, and the higher the more "
    "of them it answers and the more exactly. A passage that only shares words or a subject with the text ranks low. "
    "Style, length, origin and the place in the list count for nothing.\n" + DATA_RULE + "\n"
    'Reply with nothing but a JSON object: {"ranking": [...]}, the numbers of all passages, the best first, each once.',
    "What they want to learn:\n{narrative}\n\nPassages:\n{passages}\n\nRank all {number} passages, 1 to {number}.",
)
"""Listwise ranking of passages for a narrative, a block at a time (after Sun et al., RankGPT, EMNLP 2023).

The system prompt is constant and the narrative comes first, so that a server computes both once for all blocks.
"""


def make_rank_schema(passages: int) -> dict[str, Any]:
    """An object with so many numbers."""
    number = Annotated[int, Asked(minimum=1, maximum=passages)]
    return make_schema({"ranking": Annotated[list[number], at_most(passages, passages)]})


def allow_number_tokens(numbers: int) -> int:
    """Room for so many numbers or grades as JSON, with some prose around."""
    return 64 + 8 * numbers


_SCALE = (
    "You judge how well a passage answers a search query. Think of what the person who searches wants to learn, then "
    "of what the passage really says, and grade it:\n"
    "3: the passage is dedicated to the query and holds its exact answer.\n"
    "2: the passage answers the query in part, but unclearly or among other matters.\n"
    "1: the passage is about the same subject, but does not answer the query.\n"
    "0: the passage has nothing to do with the query.\n"
    "Judge by the contents alone, not by style, length or origin.\n" + DATA_RULE + "\n"
)
UMBRELA = Prompt(
    "umbrela",
    _SCALE + 'Reply with nothing but a JSON object: {"grade": G}, where G is 0, 1, 2 or 3.',
    "{passage}\n\nQuery: {query}",
)
"""UMBRELA grades of passages (paper, section 3.2.1; Upadhyay et al., 2024).

System prompts are constant and the passage precedes the queries, so that a server computes both once for all requests
about one passage.
"""
UMBRELA_GRID = Prompt(
    "umbrela",
    _SCALE + "There are several numbered queries: grade the passage for each of them on its own. Reply with nothing "
    'but a JSON object of numbers and grades: {"1": G, "2": G, ...}, where each G is 0, 1, 2 or 3.',
    "{passage}\n\nQueries:\n{queries}",
)
ALTERNATIVES = 8
"""Tokens whose probabilities are asked for; a grade that is not among the first eight hardly counts."""


def make_grade_schema(names: list[str]) -> dict[str, Any]:
    """An object with a grade under each of these names."""
    return make_schema(dict.fromkeys(names, Annotated[int, Asked(enum=(0, 1, 2, 3))]))


_REPLY = DATA_RULE + "\n" + 'Reply with nothing but a JSON object: {"grade": G}, where G is 0, 1, 2 or 3.'
BY_QUESTIONS = (
    "You assess a passage for somebody who typed a search query. Ask yourself these questions in order, and stop at "
    "the first no:\n"
    "Is the passage about the subject of the query? If not, the grade is 0.\n"
    "Does it state something that this person asked for? If not, the grade is 1.\n"
    "Does it state this fully and plainly, and is most of the passage about it? If not, the grade is 2.\n"
    "Otherwise the grade is 3.\n"
    "Only statements of the passage count, not those that you could add yourself.\n" + _REPLY
)
BY_USE = (
    "Somebody has to write an accurate reply to a search query, and may use a single passage as the source. Judge the "
    "worth of the passage for this reply:\n"
    "3: the reply can be written from the passage alone.\n"
    "2: the passage gives a part of the reply, or gives it vaguely; other sources are needed.\n"
    "1: the passage gives background of the same subject, but no part of the reply.\n"
    "0: the passage gives nothing, because it is about something else.\n"
    "Good style, length or a known origin add no worth.\n" + _REPLY
)
"""Two further prompts for UMBRELA's scale, for judgments by several prompts.

They lead to the grade by other ways than the first prompt, so that an accident of one wording does not decide.
"""
