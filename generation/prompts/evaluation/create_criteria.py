"""A weighted rubric of a narrative that grows window by window, as the list of nuggets does."""

from typing import Annotated, Literal

from keystone.generation.context.delimit import DATA_RULE
from keystone.generation.reply_types import ANY_CASE, Part, at_most, make_schema

CriterionType = Literal["explicit", "implicit", "synthesis", "references", "communication", "instruction"]
"""What a criterion asks for, in the words of the track's evaluator (RAGDoll at 1f06719)."""

MOST_CRITERIA = 30
"""The most criteria of a narrative."""
HIGHEST_WEIGHT = 5

SYSTEM = f"""You write a rubric: the criteria by which a reader marks an answer to a narrative.
{DATA_RULE}
You get the narrative, the criteria so far, and passages about it. Bring the criteria up to date. Each criterion is \
one sentence about the answer that can be checked by the answer alone, and that is understood without the others. Its \
weight is a whole number: {HIGHEST_WEIGHT} if a good answer must meet it, 1 if it matters little. A criterion that \
names a serious fault has a weight from -1 to -{HIGHEST_WEIGHT}, and an answer with the fault meets it. Its type is \
explicit (the narrative asks for it), implicit (its writer expects it), synthesis (it joins several facts), references \
(its sources), communication (how it is written) or instruction (a form that is asked for). The list has at most \
{MOST_CRITERIA} criteria. If the passages add nothing, repeat the list as it is.
Reply with nothing but a JSON object: {{"criteria": [{{"text": "...", "type": "explicit", "weight": 5}}, ...]}}"""
USER = "{passages}\n\nNarrative: {question}\n\nCriteria so far:\n{criteria}"


class WrittenCriterion(Part):
    """A criterion as a model writes it."""

    text: str
    type: Annotated[CriterionType, ANY_CASE]
    weight: int


SCHEMA = make_schema({"criteria": Annotated[list[WrittenCriterion], at_most(MOST_CRITERIA)]})
MAX_TOKENS = 3072
