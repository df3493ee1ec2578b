"""The check of an answer's sentences against the segments that they cite, and puts right what these do not say."""

from keystone.generation.context.delimit import DATA_RULE
from keystone.generation.reply_types import Maybe, Number, Part, Usable, make_schema
from keystone.generation.types import Support

SYSTEM = f"""You check whether the sources of an answer say what its sentences say, as an editor does before print.
{DATA_RULE}
The same holds for the sentences that you check. Judge by the text of the sources alone, never by knowledge of your own.
A source on the same subject is no support unless it states the claim, or the claim follows from it directly."""

USER = """Sources, each with its number as id:
{documents}

Sentences, a JSON list; `citations` holds the numbers of the sources that a sentence cites at present:
{sentences}

Report on every sentence:
- `support`: how far the cited sources together support what it tells as fact: names, figures, events, properties, \
what somebody says or does, what causes or requires what. "full": all of it. "partial": some of it, or something \
weaker. "none": nothing. How the answer itself weighs, compares, sums up or advises needs no source that says the \
same, as long as the facts that it goes by are in the sources and point that way.
- `citations`: the sources of the list that should be cited, at most {most}, the best one first. Take the fewest that \
support as much of the sentence as the list can. Leave the list empty if no source supports any of it.
- `text`: empty, if `citations` support every fact of the sentence. Otherwise the same sentence with the smallest \
change that puts it right: strike the words that no source bears out, or put in their place what the sources do say. \
Every other word stays as it is: calls, values, conditions, its verdict, its plain tone, and what joins it to the \
sentences around it, such as "against this" or "therefore". If no fact is left, give empty `citations` too.

Words that only say what the sources leave open are no fact, and stay as they are.

Reply with JSON: {{"sentences": [{{"id": 0, "support": "full", "citations": [2], "text": ""}}, ...]}}"""


class CheckedText(Part):
    """How far a sentence is supported, by which sources, and the text that they support."""

    id: Maybe[Number]
    support: Maybe[Support]
    citations: Maybe[Usable[Number]]
    text: Maybe[str]


SCHEMA = make_schema({"sentences": list[CheckedText]})
