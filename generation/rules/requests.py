"""What a narrative asks for: its questions by rules, without the sentences that only tell of its writer."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from keystone.generation.rules.queries import decompose
from keystone.generation.rules.words import INTERROGATIVES
from keystone.indexing.corpora.segments import split_sentences
from keystone.indexing.words import find_stems
from keystone.retrieval.types import Query

LEAST_OPENING_WORDS, MOST_OPENING_WORDS = 4, 14
"""The fewest and the most words to which the line that opens the sentences for a question is cut."""

_ASKING_WORDS = (
    *INTERROGATIVES, "compare", "describe", "discuss", "explain", "explore", "find", "give", "list", "name", "outline",
    "show", "tell",
)  # fmt: skip
_ASKS = re.compile(rf"\?['\")\u2019\u201d]*$|^(?:{'|'.join(_ASKING_WORDS)})\b", re.IGNORECASE)
"""What asks, whoever writes: a question mark, or the first word of a question or an order."""
_PERSON = re.compile(r"\b(?:I|[Ww]e|[Mm]y|[Oo]ur)\b")
_WISH = re.compile(r"\b(?:I|[Ww]e)(?:['\u2019](?:d|m|re)\b|\s+(?:\w+\s+)?(?:hope|must|need|want|wish|would|wonder)\b)")
FIRST_SENTENCES = 2
"""The first sentences of a narrative, in which its writer speaks of himself if he does so at all."""
_REQUEST = re.compile(
    r"\?|\b(?:should|must|ha(?:s|ve|d)\s+to|needs?|want(?:s|ed)?|wish|hope|hoping|would\s+(?:like|love)|'d\s+like|please"
    r"|looking\s+for|interested|curious|wonder(?:ing)?|understand(?:ing)?|learn|know|help)\b|" + _ASKS.pattern,
    re.IGNORECASE,
)
"""Words by which a sentence asks for something, in a narrative that tells what its writer wants."""
_CLAUSE_BORDER = re.compile(r",\s+(?:and|but|so)\s+|;\s+")
_ASKING = re.compile(r"^(?:what about|how to)\s+", re.IGNORECASE)
_QUESTION = re.compile(
    r"^(?:how\s+(?!to\b)|what\s+(?!about\b)|(?:"
    + "|".join(one for one in INTERROGATIVES if one not in ("how", "what"))
    + r")\b"
    r"|(?:is|are|was|were|do|does|did|can|could|should|would|will|has|have)\b)",
    re.IGNORECASE,
)
"""The beginning of a question in the words of its narrative."""
LEAST_THESIS_STEMS = 4
"""The fewest content words of the sentences that state what a narrative without a writer is about."""
LEAST_QUESTION_STEMS = 2
"""The fewest content words of a question with a pronoun that is a question of its own."""
_POINTING = re.compile(r"\b(?:it|they|them|this|that|these|those)\b", re.IGNORECASE)
_LOOSE_ENDS = frozenset(
    "a among an and as at but by each even for from in into my of on or our that the their to which".split()
)
MOST_QUESTIONS = 200
"""The most questions into which the queries of a narrative are split."""
_JOINT = re.compile(
    r"^(?:[,;:(\u2013-]|(?:and|as|but|by|for|from|if|in|into|of|on|or|so|that|to|when|which|with|without)$)", re.I
)


def split_into_questions(queries: Sequence[Query]) -> list[Query]:
    """Split queries into questions of one facet, each once, in order, under the ids of the queries.

    If some part asks for something, the parts that ask for nothing are left out. Of "I keep bees, and I want honey",
    only the wish stays. A narrative in which nobody says "I" or "we" states its subject first, as a motion for a debate
    does. It asks by its first sentence and by its questions, and "must" or "need" in it are no wishes.

    A question such as "How is it kept?" says little without the one before it. So both are one question.
    """
    sentences = _ask_each(queries, lambda text: [text[start:end] for start, end in split_sentences(text)])
    thesis, asking = list[Query](), [one for one in sentences if _REQUEST.search(one.question)]
    if not _has_writer([one.question for one in sentences]):
        thesis, asking = _find_thesis(sentences), [one for one in sentences if _ASKS.search(one.question)]
    asked = _ask_each(asking or ([] if thesis else sentences), lambda text: decompose(_drop_background(text)))
    return _join_loose([*thesis, *asked])


def _has_writer(sentences: Sequence[str]) -> bool:
    """Tell whether somebody writes of himself: in the first sentences, or by a wish in any."""
    return any(map(_PERSON.search, sentences[:FIRST_SENTENCES])) or any(map(_WISH.search, sentences))


def _find_thesis(sentences: Sequence[Query]) -> list[Query]:
    """Find the statement of the subject: the first sentences that have enough content words, as one question.

    There is none if the narrative asks before it has stated its subject.
    """
    told = ""
    for one in sentences:
        if _ASKS.search(one.question):
            return []
        told = f"{told} {one.question}".strip()
        if len(find_stems(told)) >= LEAST_THESIS_STEMS:
            return [replace(one, question=told, dense_text=told)]
    return []


def _join_loose(questions: Sequence[Query]) -> list[Query]:
    """Join each question with a pronoun and a single content word, as "How is it kept?", to the one before it."""
    joined: list[Query] = []
    for one in questions:
        if joined and _POINTING.search(one.question) and len(find_stems(one.question)) < LEAST_QUESTION_STEMS:
            joined[-1] = replace(joined[-1], dense_text=f"{joined[-1].dense_text} {one.dense_text}")
        else:
            joined.append(one)
    return joined


def _drop_background(sentence: str) -> str:
    """Drop the clauses of a sentence before the first one that asks for something."""
    request = _REQUEST.search(sentence)
    borders = [found.end() for found in _CLAUSE_BORDER.finditer(sentence, 0, request.start() if request else 0)]
    return sentence[borders[-1] :] if borders else sentence


def open_question(question: str) -> str:
    """Make the line that opens the sentences for a question, from its own first words."""
    words = _ASKING.sub("", question).rstrip("?.!:; ").split()
    whole = len(words) <= MOST_OPENING_WORDS
    if not whole:
        words = words[:MOST_OPENING_WORDS]
        joints = [place for place, word in enumerate(words) if place > LEAST_OPENING_WORDS and _JOINT.match(word)]
        words = words[: joints[0]] if joints else words
        while len(words) > 1 and words[-1].lower().strip(",;:") in _LOOSE_ENDS:
            words.pop()
    line = " ".join(words).rstrip(",;:")
    asks = whole and bool(_QUESTION.match(question))
    return f"{line[:1].upper()}{line[1:]}{'?' if asks else ':'}"


def _ask_each(queries: Sequence[Query], split: Callable[[str], Sequence[str]]) -> list[Query]:
    """Split each query. Beyond `MOST_QUESTIONS` in all, the queries stay as they are: each question is embedded."""
    asked: dict[str, Query] = {}
    for query in queries:
        for text in split(query.question):
            asked.setdefault(text.lower(), replace(query, question=text, dense_text=text))
    return list(asked.values()) if len(asked) <= MOST_QUESTIONS else list(queries)
