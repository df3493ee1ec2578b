"""The check of an answer's sentences against the segments that they cite, which also words them as these do."""

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
- `support`: how far the cited sources together support it. "full": every claim in it. "partial": some claims, or \
weaker ones. "none": no claim. A reason, a consequence, a comparison and a recommendation are claims, too: the sources \
have to say or imply that one thing follows from the other, or suits better.
- `citations`: the sources of the list that should be cited, at most {most}, the best one first. Take the fewest that \
support as much of the sentence as the list can. Leave the list empty if no source supports any of it.
- `text`: empty, if `citations` support every claim of the sentence as it stands. Otherwise the sentence put right: it \
claims only what `citations` say and what follows from that, still tells what it was there to tell, names the same \
subject, and keeps every call, value, condition and step that is there. It has about as many words as before. If \
nothing worth saying is left, give empty `citations` too.

Words that only say what the sources leave open are no claim, and stay as they are.

Reply with JSON: {{"sentences": [{{"id": 0, "support": "full", "citations": [2], "text": ""}}, ...]}}"""


class CheckedText(Part):
    """How far a sentence is supported, by which sources, and the text that they support."""

    id: Maybe[Number]
    support: Maybe[Support]
    citations: Maybe[Usable[Number]]
    text: Maybe[str]


SCHEMA = make_schema({"sentences": list[CheckedText]})
