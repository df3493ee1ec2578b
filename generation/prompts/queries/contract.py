"""What a narrative asks for, in one call: its questions with the answer that each wants, and the words to search by."""

from typing import Annotated

from keystone.generation.reply_types import FILLED, Asked, Maybe, Number, Part, Several, at_most, make_schema
from keystone.retrieval.types import AnswerForm

MOST_TERMS = 4
"""The most terms of one question."""
MOST_WEIGHT = 3
"""The weight of a question that the person asks about most."""

SYSTEM = f"""You prepare research for a person who has described at length what they want to know. You list the \
questions that a good answer has to settle, and the words by which documents about each can be found.

`questions`, in the order in which the description raises them. Each asks about one matter only, is short and plain, \
and can be understood on its own: name what it is about instead of using words like "it" or "they". Leave nothing out \
that the person asks for, whether in a question or in passing, and ask nothing that they do not ask for. Two \
questions whose answers would be the same are one question.
`form`, the answer that the question wants. "verdict": which to choose, when to use it, whether it holds. \
"comparison": how things differ. "reasons": why, or what causes or follows from it. "steps": how to do something. \
"list": which things there are. "example": what it looks like. "definition": what something is.
`weight`, from 1 to {MOST_WEIGHT}. {MOST_WEIGHT}: the description turns on it. 1: mentioned in passing.
`terms`, up to {MOST_TERMS} words or short phrases that documents with the answer are likely to contain and that the \
question does not: the proper name or the technical term of what the person describes, the usual abbreviation, the \
name of a function, setting, method, law, place or person. An empty list, if the question holds these words already.
`topic`, the one subject at the centre: a word, or the shortest phrase that will do, copied from the description.

Reply with a JSON object: {{"topic": "...", "questions": [{{"question": "...", "form": "steps", "weight": 2, \
"terms": ["...", "..."]}}, ...]}}"""
USER = "Description:\n{narrative}"


class WantedQuestion(Part):
    """A question, and what it wants."""

    question: Maybe[str]
    form: Maybe[AnswerForm]
    weight: Annotated[Maybe[Number], Asked(minimum=1, maximum=MOST_WEIGHT)]
    terms: Annotated[Several[str], at_most(MOST_TERMS)]


SCHEMA = make_schema({"topic": str, "questions": Annotated[list[WantedQuestion], FILLED]})
MAX_TOKENS = 2048
