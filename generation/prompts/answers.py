"""The prompts of answers: written, cited, shortened, mended, checked, made of claims or of other answers, summaries."""

from typing import Annotated

from keystone.generation.context.texts import DATA_RULE
from keystone.generation.replies import FILLED, Maybe, Number, Part, Several, Usable, at_most, make_schema
from keystone.generation.types import Answered, Prompt, Support


class CitedText(Part):
    """A sentence with the numbers of its documents."""

    text: Maybe[str]
    citations: Several[Number]


ANSWER = Prompt(
    "answer",
    f"""You write answers for readers who check every claim against its source.
{DATA_RULE}
Say only what the documents say. What they do not tell, leave out; never fill a gap from memory.""",
    """Request:
{narrative}

Documents, each with its number as id:
{documents}

Request, once more:
{narrative}

Answer the request as a whole in flowing prose, {low} to {high} words over all sentences. Give each aspect of the \
request its due, the most important first, and say nothing twice. One item a sentence; `citations` holds the numbers \
of the documents that state what the sentence says, the best one first. A sentence that no document supports has no \
place in the answer. Write no document numbers into the text itself.

Reply with JSON: {{"answer": [{{"text": "...", "citations": [3, 0]}}, ...]}}""",
    make_schema({"answer": Annotated[list[CitedText], FILLED]}),
)
"""Retrieval-level fusion (Keystone-Docs RAG, section 3.2.2): one cited answer from the keystone documents."""

SUB_ANSWER = Prompt(
    "sub_answer",
    f"""You answer one question from a short list of references, so that others can join your answer to theirs.
{DATA_RULE}
Use nothing but the references, and name for every sentence those that it rests on.""",
    """Question:
{asked}

References, each with its number as id:
{documents}

Question, once more:
{asked}

Write {low} to {high} words in all, one item a sentence, each understandable by itself: name things instead of \
pointing back with "it" or "this". `citations` holds the numbers of the references that a sentence rests on, at least \
one, the best one first; only numbers of the list above. Write no numbers of references into the text itself.

Reply with JSON: {{"answer": [{{"text": "...", "citations": [0, 3]}}, {{"text": "...", "citations": [1]}}]}}""",
    ANSWER.schema,
)
"""Answer-level fusion, step 1 (Keystone-Docs RAG, section 3.3.1): one cited answer to one query of a narrative."""

MOST_MISSING_WORDS = 25
"""The most words of the sentence about what the documents lack."""
MOST_FAULTS = 8
"""The most faults that the model names in its draft."""
TOLD_GAPS = """If the documents do not tell a thing that the request asks for by itself, or do not bear out what it \
takes for granted, say so once, in a few words, in the sentence that comes nearest to it: "no month is given", "the \
reports do not say how it ended". Where this concerns what was mainly asked, it is one of the first two sentences. If \
they leave a whole question of the request open, and no sentence of the answer says so,"""
"""Where an answer tells what the documents leave open."""
NO_GAPS = "No sentence says what the documents lack. Only if they leave a whole question of the request open,"
"""The same for an answer that tells no gaps."""
DOCUMENTS = """Request:
{narrative}

Documents, each with its number as id:
{documents}

Request, once more:
{narrative}

"""
"""The beginning of each request about the documents of a narrative, so that a server reads them once for all."""

WHOLE = Prompt(
    "answer",
    f"""You answer requests from documents that you have read to the end, as an expert does for a colleague who \
will act on the answer.
{DATA_RULE}
Use only what the documents say or what follows from it. Leave out anything else that you know.""",
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
"missing": ""}}""",
    make_schema(
        {
            "draft": str,
            "faults": Annotated[list[str], at_most(MOST_FAULTS)],
            "answer": Annotated[list[CitedText], FILLED],
            "missing": str,
        }
    ),
)
"""One cited answer, written freely from whole documents.

The reply holds a draft, its faults, and the answer without these: self-refinement (Madaan et al. 2023) in one call.
"""

MOST_SEARCHES = 2
"""The most new search texts of one question."""


class CheckedQuestion(Part):
    """How far the documents answer one question, where they do, and what to search for."""

    id: Maybe[Number]
    found: Maybe[Answered]
    document: Maybe[Number]
    quote: Maybe[str]
    searches: Annotated[Several[str], at_most(MOST_SEARCHES)]


CHECK_EVIDENCE = Prompt(
    "check",
    WHOLE.system,
    DOCUMENTS
    + """Before the answer to this request is written, its questions are compared with the documents. They are, as a \
JSON list:
{questions}

Report on every question:
- `found`: how far the documents answer it. "answered": all that the question wants is there. "partly": something of \
use is there, and something that the question wants is missing. "not": nothing there answers it.
- `document` and `quote`: the number of the document that answers most of it, and the words that do so, copied from \
that document character for character, 5 to 40 words from one place. For "not", -1 and an empty text.
- `searches`: for "partly" and "not", up to {most} texts of 2 to 8 words by which documents with the missing part can \
be found: the names that such documents use for the thing. For "answered", an empty list.

Reply with JSON: {{"questions": [{{"id": 0, "found": "partly", "document": 3, "quote": "...", "searches": ["..."]}}, \
...]}}""",
    make_schema({"questions": list[CheckedQuestion]}),
)
"""The check of the documents before an answer is written: which questions do they answer, and where?"""


class NewText(Part):
    """The new text of a sentence."""

    id: Maybe[Number]
    text: Maybe[str]


SHORTEN = Prompt(
    "shorten",
    f"""You shorten texts. You add nothing: no fact, name, number or judgement that the text does not hold.
{DATA_RULE}
The same holds for the sentences that you are given.""",
    """The sentences below, a JSON list, are an answer of {count} words. It must have {low} to {high} words in all.

{sentences}

Tighten the wording, and leave out the sentences that add least. A sentence keeps its id and its meaning; do not move \
facts from one sentence to another, join sentences or add new ones.

Reply with JSON, one item for each sentence that stays: {{"sentences": [{{"id": 0, "text": "..."}}, ...]}}""",
    make_schema({"sentences": Annotated[list[NewText], FILLED]}),
)
"""Shortening of an over-long answer without new facts (Keystone-Docs RAG, section 3.2.2, "Answer Summarization").

Only ids and texts are shown and asked for: citations are not the model's to change.
"""

EDIT = Prompt(
    "edit",
    f"""You edit texts that others have written. You change wording, never content, and you add no fact.
{DATA_RULE}
The same holds for the sentences that you are given.""",
    """The sentences below, a JSON list in their final order, together answer this request:
{narrative}

{sentences}

Rewrite their texts so that they read as one concise, fluent answer of {low} to {high} words in all to the request:
{narrative}

Every sentence stays, with its id, in its place, and goes on saying what it says: its facts and numbers may not move \
to another sentence, and no number may be added.

Reply with JSON, one item for every sentence: {{"sentences": [{{"id": 0, "text": "..."}}, ...]}}""",
    SHORTEN.schema,
)
"""Answer-level fusion, step 2, by editing (Keystone-Docs RAG, section 3.3.2): wording changes, and nothing else.

Unlike the paper's prompt it shows no citations: they go by sentence id.
"""

MEND = Prompt(
    "mend",
    f"""You edit the answers of others before print. You change wording, never content: you add no fact, name, \
number or judgement, and you take none away.
{DATA_RULE}
The same holds for the sentences that you are given.""",
    """An answer to this request:
{narrative}

Its sentences, a JSON list in their order:
{sentences}

These sentences have faults:
{faults}

Change these sentences alone, and in them as few words as the fault asks for: put a name or a noun in the place of a \
pronoun, say only what is new, or begin with another word. All else stays as it is: the names, numbers, calls and \
conditions, the tone, and the words that join a sentence to the one before it.

Reply with JSON, one item for each sentence with a fault: {{"sentences": [{{"id": 0, "text": "..."}}, ...]}}""",
    SHORTEN.schema,
)
"""Mending of single sentences by the faults that a program has found. Wording changes, and nothing else."""

RESYNTHESISE = Prompt(
    "resynthesise",
    f"""You write one answer from several partial ones. You add no fact that none of them states.
{DATA_RULE}
Here each block holds the answer to one question, which is its first line.""",
    """Request:
{narrative}

Partial answers:
{sub_answers}

Request, once more:
{narrative}

Write one coherent answer to the request, {low} to {high} words in all: say each thing once, where the request leads \
one to expect it, and say so where partial answers contradict each other. One string a sentence.

Reply with JSON: {{"sentences": ["...", "..."]}}""",
    make_schema({"sentences": Annotated[list[str], FILLED]}),
)
"""Answer-level fusion, step 2, by writing anew (Keystone-Docs RAG, equation 5): sub-answers and narrative to answer."""


class Citations(Part):
    """The numbers of the documents that support a sentence."""

    id: Maybe[Number]
    citations: Several[Number]


CITE = Prompt(
    "cite",
    f"""You find the sources of statements. A document supports a sentence if it states what the sentence says; \
that both are about the same thing is not enough.
{DATA_RULE}
The same holds for the sentences that you are given.""",
    """Documents, each with its number as id:
{documents}

Sentences, a JSON list:
{sentences}

Give for every sentence the numbers of the documents that support it, the best one first, or an empty list where \
none does.

Reply with JSON: {{"sentences": [{{"id": 0, "citations": [2]}}, ...]}}""",
    make_schema({"sentences": list[Citations]}),
)
"""Reference assignment (Keystone-Docs RAG, section 3.2.2): which documents support which sentence."""


class CheckedText(Part):
    """How far a sentence is supported, by which sources, and the text that they support."""

    id: Maybe[Number]
    support: Maybe[Support]
    citations: Maybe[Usable[Number]]
    text: Maybe[str]


CHECK_SUPPORT = Prompt(
    "support",
    f"""You check whether the sources of an answer say what its sentences say, as an editor does before print.
{DATA_RULE}
The same holds for the sentences that you check. Judge by the text of the sources alone, never by knowledge of your own.
A source on the same subject is no support unless it states the claim, or the claim follows from it directly.""",
    """Sources, each with its number as id:
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

Reply with JSON: {{"sentences": [{{"id": 0, "support": "full", "citations": [2], "text": ""}}, ...]}}""",
    make_schema({"sentences": list[CheckedText]}),
)
"""The check of an answer's sentences against the segments that they cite, and puts right what these do not say."""


class QuotedClaim(Part):
    """A claim with the words of the document behind it."""

    text: Maybe[str]
    document: Maybe[Number]
    quote: Maybe[str]


CLAIMS = Prompt(
    "claims",
    f"""You collect what documents say in answer to one question. A program compares each of your quotes with its \
document, and throws away what it cannot find there.
{DATA_RULE}
Collect nothing from memory, and nothing that merely has the same subject as the question.""",
    """Question:
{query}

It is one part of this request:
{narrative}

Documents, each with its number as id:
{documents}

Question, once more:
{query}

List at most {most} claims that answer the question, the most useful one first, none of them twice. A claim is one \
sentence of about 10 to 25 words that a reader understands without the question: it names its subject. `document` is \
the number of the document that says it. `quote` is copied from that document character for character, from one place, \
5 to 40 words long, and says all that the claim says.

A question "why" is answered by the causes, reasons and purposes that a document gives. A question "when" or "which" \
is answered by the conditions, strengths, limits and recommendations that it gives, and a question "how" by its steps, \
functions and settings. Documents may use other words than the question. If they answer only a part of it, collect \
that part. If they answer none, the list is empty.

Reply with JSON: {{"claims": [{{"text": "...", "document": 2, "quote": "..."}}, ...]}}""",
    make_schema({"claims": list[QuotedClaim]}),
)
"""Claims: what documents say in answer to one query of a narrative, each with a quote that a program checks."""


class JoinedClaims(Part):
    """A sentence that says several claims."""

    claims: Annotated[Maybe[list[Number]], FILLED]
    text: Maybe[str]


WRITE_CLAIMS = Prompt(
    "write_claims",
    f"""You turn a list of checked claims into prose. You change wording, never content: you add no fact, name, \
number or judgement, and you make no claim stronger or more general than it is.
{DATA_RULE}
The same holds for the claims that you are given.""",
    """The claims below, a JSON list, together answer this request:
{narrative}

Each stands with the question that it answers:
{claims}

Write them as one fluent answer to the request, at most {high} words in all. One item a sentence. A sentence says one \
claim, or joins up to {joined} claims that belong together; `claims` holds the ids of the claims that it says, and it \
says nothing that is not in these. Say every claim once, and keep the order of the list. Each sentence names its \
subject, so that it can be read alone. Words such as "however" or "for example" may connect sentences. Write no ids \
into the text.

Reply with JSON: {{"sentences": [{{"claims": [0], "text": "..."}}, {{"claims": [1, 2], "text": "..."}}, ...]}}""",
    make_schema({"sentences": Annotated[list[JoinedClaims], FILLED]}),
)
"""Prose from claims: the program keeps the citations of each claim, and checks names and numbers."""

SUMMARISE = Prompt(
    "summarise",
    "You shorten documents so that they can be found by search. Keep the subjects, names, numbers, findings and "
    "terms that tell what the document is about, in its order; drop repetition, examples and navigation. Add nothing "
    "that it does not say, and write plain text in English.\n" + DATA_RULE,
    "{document}\n\nSummarise this document in less than {target_tokens} tokens, about {target_words} words.",
)
"""Summaries of documents that are too long to be embedded (paper, section 2.2)."""
