"""Prose from claims: the program keeps the citations of each claim, and checks names and numbers."""

from typing import Annotated

from keystone.generation.context.delimit import DATA_RULE
from keystone.generation.reply_types import FILLED, Maybe, Number, Part, make_schema

SYSTEM = f"""You turn a list of checked claims into prose. You change wording, never content: you add no fact, name, \
number or judgement, and you make no claim stronger or more general than it is.
{DATA_RULE}
The same holds for the claims that you are given."""

USER = """The claims below, a JSON list, together answer this request:
{narrative}

Each stands with the question that it answers:
{claims}

Write them as one fluent answer to the request, at most {high} words in all. One item a sentence. A sentence says one \
claim, or joins up to {joined} claims that belong together; `claims` holds the ids of the claims that it says, and it \
says nothing that is not in these. Say every claim once, and keep the order of the list. Each sentence names its \
subject, so that it can be read alone. Words such as "however" or "for example" may connect sentences. Write no ids \
into the text.

Reply with JSON: {{"sentences": [{{"claims": [0], "text": "..."}}, {{"claims": [1, 2], "text": "..."}}, ...]}}"""


class JoinedClaims(Part):
    """A sentence that says several claims."""

    claims: Annotated[Maybe[list[Number]], FILLED]
    text: Maybe[str]


SCHEMA = make_schema({"sentences": Annotated[list[JoinedClaims], FILLED]})
