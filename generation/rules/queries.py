"""Decomposition, topic extraction and topic expansion of a narrative by rules, without a model.

They replace the model's steps of Keystone-Docs RAG, section 2.1.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from keystone.generation.context.topic import Sources
from keystone.generation.rules.words import INTERROGATIVES, LEAD_IN
from keystone.generation.types import Understanding
from keystone.indexing.corpora.segments import split_sentences
from keystone.indexing.words import STOP_WORDS, find_content_words, find_words
from keystone.retrieval.backends import open_sparse
from keystone.retrieval.types import Topic

Frequencies = Callable[[Sequence[str]], Sequence[int]]
"""The number of documents of the corpus that hold each word."""

Facets = Literal["sentences", "clauses"]
"""The parts of a narrative that become its questions."""

_QUESTION_WORDS = "|".join(INTERROGATIVES)
_BORDER = re.compile(
    rf"\s*[;\u2014:]\s+|\s+--?\s+|,?\s+(?:and|or|but)\s+(?:also\s+)?(?=(?:{_QUESTION_WORDS})\b)|,['\"\u2019\u201d]?\s*(?=(?:{_QUESTION_WORDS})\b)"
    r"|,?\s+(?:as\s+well\s+as|along\s+with)\s+|,\s*(?:and|but|or|plus)\s+|,\s*(?=including\b|especially\b)",
    re.IGNORECASE,
)
_COMMA = re.compile(r",\s+(?:(?:and|or|but|plus)\s+)?")
_LEADING = re.compile(r"^(?:and|or|but|also|including|especially|particularly|plus|then|so)[\s,]+", re.I)
_AUXILIARY = re.compile(r"(?:is|are|was|were|do|does|did|can|could|should|would|will|has|have)\b", re.IGNORECASE)

LEAST_CLAUSE_WORDS = 3
"""The fewest words of a clause that is a question of its own. One of them must carry content."""

LONG_CLAUSE_WORDS = 16
"""A clause of more words counts as an enumeration, and is cut at its commas."""


def decompose(narrative: str, facets: Facets = "clauses") -> tuple[str, ...]:
    """Decompose a narrative into its facets, in their order. There is at least one, and none comes twice in any case.

    `sentences` are the narrative's own. `clauses` are questions of one facet: sentences are cut at semicolons, question
    words and coordinations, and long clauses at commas. Phrases like "I want to know" are dropped. A clause of fewer
    than three words stays with the clause before it.
    """
    found = [narrative[start:end] for start, end in split_sentences(narrative)]
    if facets == "clauses":
        found = [question for sentence in found for question in _split_into_questions(sentence)]
    distinct: dict[str, str] = {}
    for text in filter(find_content_words, found):
        distinct.setdefault(" ".join(text.lower().split()), text)
    return tuple(distinct.values()) or (narrative.strip(),)


def join_neighbours(questions: Sequence[str], most: int) -> tuple[str, ...]:
    """Join neighbouring questions into at most `most`, of about as many each. So no part of a narrative is lost."""
    count = min(most, len(questions))
    borders = [number * len(questions) // count for number in range(count + 1)] if count else [0]
    return tuple(" ".join(questions[start:end]) for start, end in pairwise(borders))


def _split_into_questions(sentence: str) -> Iterator[str]:
    for clause in _split_clauses(sentence, _BORDER):
        for part in _split_clauses(clause, _COMMA) if len(clause.split()) > LONG_CLAUSE_WORDS else [clause]:
            bare = _strip_lead_in(part)
            if find_content_words(bare):
                yield _make_question(bare)


def _split_clauses(text: str, border: re.Pattern[str]) -> list[str]:
    pieces: list[tuple[int, int]] = []
    start = 0
    for end, after in [match.span() for match in border.finditer(text)] + [(len(text), len(text))]:
        if pieces and _is_scrap(text[start:end]):
            pieces[-1] = (pieces[-1][0], end)
        else:
            pieces.append((start, end))
        start = after
    if len(pieces) > 1 and _is_scrap(text[slice(*pieces[0])]):
        pieces[:2] = [(pieces[0][0], pieces[1][1])]
    return [text[start:end] for start, end in pieces]


def _is_scrap(text: str) -> bool:
    return len(find_words(text)) < LEAST_CLAUSE_WORDS or not find_content_words(text)


def _strip_lead_in(clause: str) -> str:
    bare, before = " ".join(clause.split()).strip(" ,;:.!?"), None
    while bare != before:
        before = bare
        bare = LEAD_IN.sub("", _LEADING.sub("", bare), count=1)
    return bare


def _make_question(bare: str) -> str:
    first = bare.split(" ", 1)[0].lower()
    if first in INTERROGATIVES or _AUXILIARY.match(bare):
        return f"{bare[0].upper()}{bare[1:]}?"
    return f"How {bare}?" if first == "to" else f"What about {bare}?"


def extract_topic(narrative: str, frequencies: Frequencies = lambda words: [1] * len(words), documents: int = 1) -> str:
    """Extract the phrase of one to three adjacent content words of the narrative that weighs most.

    A word weighs its idf among the corpus's `documents` times the square of its count in the narrative. A phrase
    weighs the sum of its words, divided by the square root of their number. Ties go to the earlier phrase. If the
    narrative has no content word, the phrase is empty. By default, nothing is known of the corpus.
    """
    counts = Counter(find_content_words(narrative))
    weights = {
        word: counts[word] ** 2 * math.log((documents + 1) / (frequency + 0.5)) if frequency else 0.0
        for word, frequency in zip(counts, frequencies(list(counts)), strict=True)
    }
    best, best_worth = "", -1.0
    for run in _find_content_runs(narrative):
        for start in range(len(run)):
            for end in range(start + 1, min(start + 3, len(run)) + 1):
                phrase = run[start:end]
                value = sum(weights[word.lower()] for word in phrase) / math.sqrt(len(phrase))
                if value > best_worth + 1e-9:
                    best, best_worth = " ".join(phrase), value
    return best


def _find_content_runs(text: str) -> list[list[str]]:
    runs: list[list[str]] = []
    for piece in re.split(r"[^\w\s'\u2019-]+", text):
        run: list[str] = []
        for word in find_words(piece):
            if word.lower() in STOP_WORDS or len(word) < 2:
                runs.append(run)
                run = []
            else:
                run.append(word)
        runs.append(run)
    return [run for run in runs if run]


def expand_topic(
    known_text: str, feedback: Sequence[str], frequencies: Frequencies, documents: int, variants: int
) -> tuple[str, ...]:
    """Choose the `variants` words that best distinguish the feedback documents (texts, best first) from the corpus.

    This is positive feedback after Rocchio (1971): the mean of (1 + ln tf) idf over the feedback documents.

    Words of `known_text` (topic and narrative), stop words and short words are left out. The function also leaves out
    words that share their first six letters with an earlier one. It leaves out the corpus's boilerplate too: words of
    more than a tenth of its documents.
    """
    known = {word[:6] for word in find_content_words(known_text)}
    common = max(documents // 10, len(feedback))
    weights: dict[str, float] = defaultdict(float)
    for text in feedback:
        for word, count in Counter(find_content_words(text)).items():
            if word.isalpha() and len(word) > 2 and word[:6] not in known:
                weights[word] += 1 + math.log(count)
    likely = sorted(weights, key=lambda word: (-weights[word], word))[: 50 * variants]
    frequency = dict(zip(likely, frequencies(likely), strict=True))
    worth = {word: weights[word] * math.log((documents + 1) / (frequency[word] + 0.5)) for word in likely}
    chosen: list[str] = []
    for word in sorted(likely, key=lambda word: (-worth[word], word)):
        if len(chosen) < variants and word[:6] not in known and frequency[word] <= common:
            chosen.append(word)
            known.add(word[:6])
    return tuple(chosen)


FEEDBACK_DOCUMENTS = 10
"""The number of documents whose words may become variants of a topic."""

TopicBy = Literal["lead", "phrase"]
"""The rules that choose a topic."""

TOPIC_RULES: Mapping[TopicBy | None, Callable[[str, Frequencies, int], str]] = {
    "phrase": extract_topic,
    "lead": lambda narrative, _frequencies, _documents: decompose(narrative, "sentences")[0],
    None: lambda _narrative, _frequencies, _documents: "",
}
"""The rules by name. Each takes a narrative, the frequencies of words, and the number of documents."""


@dataclass(frozen=True, slots=True)
class UnderstandingRules:
    """The rules: `facets` become questions, `topic` is chosen, and `variants` words expand it.

    The topic is the narrative's first sentence (`lead`), a `phrase` extracted from it, or nothing (None).
    """

    facets: Facets = "sentences"
    topic: TopicBy | None = "lead"
    variants: int = 0
    questions: int = 30
    """The most questions of a narrative. Neighbours are joined if there would be more."""


def understand_by_rules(topics: Sequence[Topic], sources: Sources, rules: UnderstandingRules) -> list[Understanding]:
    """Find the questions, the topic and its variants for every narrative.

    The first 10 documents of BM25 for topic and narrative together are the feedback for the expansion.
    """
    store = sources.store
    searcher = open_sparse(sources.index, store)
    frequencies = searcher.document_frequencies
    phrases = [TOPIC_RULES[rules.topic](topic.narrative, frequencies, len(store)) for topic in topics]
    texts = [f"{phrase} {topic.narrative}".strip() for phrase, topic in zip(phrases, topics, strict=True)]
    feedback: list[list[str]] = [[] for _ in topics]
    if rules.variants:
        found = searcher.search([topic.id for topic in topics], texts, FEEDBACK_DOCUMENTS, sources.threads)
        feedback = [[document.contents for document in store.get(found.of(i))] for i in range(len(topics))]
    return [
        Understanding(
            topic_id=topic.id,
            questions=join_neighbours(decompose(topic.narrative, rules.facets), rules.questions),
            topic=phrases[i],
            variants=expand_topic(texts[i], feedback[i], frequencies, len(store), rules.variants),
        )
        for i, topic in enumerate(topics)
    ]
