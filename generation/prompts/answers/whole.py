"""One cited answer, written freely from whole documents.

The reply holds a draft, its faults, and the answer without these: self-refinement (Madaan et al. 2023) in one call.
"""

from typing import Annotated

from keystone.generation.context.delimit import DATA_RULE
from keystone.generation.prompts.answers.answer import CitedText
from keystone.generation.reply_types import FILLED, at_most, make_schema

SYSTEM = f"""You answer requests from documents that you have read to the end, as an expert does for a colleague who \
will act on the answer.
{DATA_RULE}
Use only what the documents say or what follows from it. Leave out anything else that you know."""

DOCUMENTS = """Request:
{narrative}

Documents, each with its number as id:
{documents}

Request, once more:
{narrative}

"""
"""The beginning of each request about the documents of a narrative."""

USER = (
    DOCUMENTS
    + """Answer in plain prose, one connected text of at most {high} words over all sentences, which whoever asked can \
use as it stands.

Begin with what was asked for: the verdict or the recommendation with its reason where one is wanted, else the main \
answer or the first step. Then take the parts of the request in its own order, and answer each question that it \
raises in its own terms. Finish one part before the next begins, and put side by side what belongs together: a step \
and its limits, two things that are compared, a claim and the reply to it. Pass over no part, and tell nothing twice.

Where something is to be done, lead whoever asked along one way that works from beginning to end: what to set up, \
where it is written, what to call with which arguments, what comes of it, and how to tell that it works. Say which of \
several ways suits the request, the simplest if nothing speaks against it, and name the others only as far as they \
help to choose. Give every step that the next one needs. Leave out options, special cases and warnings that this \
request does not meet.

Where a matter is weighed, give each side its strongest case, say which claims the documents bear out and which one \
side only asserts, and close with the conclusion that they allow.

Where events are told, follow their course, tell what led from one to the next, and close with where they stand and \
what that means for the request.

Be concrete: give the names, figures, cases, calls, settings with their values, conditions and limits that the \
request needs and the documents give, and join what several documents say where it belongs together. Of several facts \
that show the same, give the one that decides, and what it means for the request. A sentence that answers nothing in \
the request is left out.

Write so that it is understood at the first reading. A sentence says one thing whole, in plain words, with its reason \
where that helps; it is no row of names, and holds no aside in brackets. Words such as "first", "because", "against \
this" or "otherwise" show how it goes on from the one before. Each sentence still names its subject, so that it can \
be read alone. `citations` holds the numbers of the documents, at most {most}, that together state what the sentence \
says, the best one first. Write no document numbers into the text itself.

{gaps} `missing` names it in one sentence of at most {missing} words, such as "The sources do not tell ..."; \
otherwise it is an empty text.

Write it in three steps, all in one reply.
1. `draft`: the answer as it first comes, as one text without citations.
2. `faults`: what is wrong with the draft, at most {faults} things in at most twelve words each, the gravest first. \
Read it as whoever sent the request, then compare it with the documents, one after another:
- a question that the request itself asks, which the documents answer and the draft does not, or only in part;
- where the request puts a matter in dispute: an argument, a reply or a piece of evidence of weight that is not there;
- a sentence, or a part of one, that leaves what was asked: other actors, other matters, side details, comments;
- things that belong together and stand apart: events out of their order, one side, country or person here and there;
- a statement that says more than the documents do: a link, a motive or a conclusion of the draft's own;
- a sentence that repeats another one, is hard to follow at the first reading, or tells too much at once.
3. `answer`: the answer written anew without these faults, sentence by sentence. What strays goes; what is lacking \
comes in where it belongs, by the fewest words; what belongs together is put together. In a dispute, every argument of \
weight on either side has its place with the reply to it, a lesser one in half a sentence. What is good in the draft \
stays. The last sentence does not repeat the first. Where the request is soon answered, fewer words serve as well.

Reply with JSON: {{"draft": "...", "faults": ["..."], "answer": [{{"text": "...", "citations": [3, 0]}}, ...], \
"missing": ""}}"""
)

TOLD_GAPS = """If the documents do not tell a thing that the request asks for by itself, or do not bear out what it \
takes for granted, say so once, in a few words, in the sentence that comes nearest to it: "no month is given", "the \
reports do not say how it ended". Where this concerns what was mainly asked, it is one of the first two sentences. If \
they leave a whole question of the request open, and no sentence of the answer says so,"""
"""Where an answer tells what the documents leave open."""

NO_GAPS = "No sentence says what the documents lack. Only if they leave a whole question of the request open,"
"""The same for an answer that tells no gaps."""

MOST_MISSING_WORDS = 25
"""The most words of the sentence about what the documents lack."""

MOST_FAULTS = 8
"""The most faults that the model names in its draft."""

SCHEMA = make_schema(
    {
        "draft": str,
        "faults": Annotated[list[str], at_most(MOST_FAULTS)],
        "answer": Annotated[list[CitedText], FILLED],
        "missing": str,
    }
)
