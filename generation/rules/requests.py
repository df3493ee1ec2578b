"""What a narrative asks for: its questions by rules, without the sentences that only tell of its writer."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from keystone.generation.rules.queries import decompose
from keystone.generation.rules.words import INTERROGATIVES
from keystone.indexing.corpora.segments import split_sentences
from keystone.retrieval.types import Query

LEAST_OPENING_WORDS, MOST_OPENING_WORDS = 4, 10
"""The fewest and the most words to which the line that opens the sentences for a question is cut."""

_REQUEST = re.compile(
    r"\?|\b(?:should|must|ha(?:s|ve|d)\s+to|needs?|want(?:s|ed)?|wish|hope|hoping|would\s+(?:like|love)|'d\s+like|please"
    r"|looking\s+for|interested|curious|wonder(?:ing)?|understand(?:ing)?|learn|know|help)\b"
    r"|^(?:"
    + "|".join(INTERROGATIVES)
    + r"|compare|describe|discuss|explain|explore|find|give|list|name|outline|show|tell)\b",
    re.IGNORECASE,
)
"""Words by which a sentence asks for something."""
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
    only the wish stays.
    """
    sentences = _ask_each(queries, lambda text: [text[start:end] for start, end in split_sentences(text)])
    asking = [one for one in sentences if _REQUEST.search(one.question)]
    return _ask_each(asking or sentences, lambda text: decompose(_drop_background(text)))


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
