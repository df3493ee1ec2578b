"""What a narrative asks for, by rules: its questions, its topic and the words that expand it, without a model.

They replace the model's steps of Keystone-Docs RAG, section 2.1. An answer by rules takes the questions without the
sentences that only tell of their writer.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Literal
from unicodedata import normalize

from keystone.generation.context.topic import Sources
from keystone.generation.types import Understanding
from keystone.indexing.corpora.segments import split_sentences
from keystone.indexing.words import STOP_WORDS, WORD, find_content_words, find_stems, find_words
from keystone.retrieval.backends import open_sparse
from keystone.retrieval.types import Query, Topic

Frequencies = Callable[[Sequence[str]], Sequence[int]]
"""The number of documents of the corpus that hold each word."""

Facets = Literal["sentences", "clauses"]
"""The parts of a narrative that become its questions."""

INTERROGATIVES = ("how", "what", "what's", "when", "where", "whether", "which", "who", "whom", "whose", "why")
"""Words that open a question."""

LEAD_IN = re.compile(
    r"""^(?:
      (?:(?:finally|specifically|additionally|moreover|furthermore|in\ addition|at\ the\ same\ time),?\s+)
    | (?:i|we|i'm|i\u2019m|i'd|i\u2019d|we're|we'd)\s+
        (?:(?:am|are|would|also|really|just|further|even|especially|particularly|specifically|keen|curious|eager|
           looking|trying|hoping|exploring|puzzled|interested|wondering|seeking|like|love|want|need|wish|hope|plan|know|wonder|have|
           understand|learning|about|in|on)\s+)+
    | (?:please|can\ you|could\ you|would\ you|tell\ me|show\ me|help\ me)\s+(?:please\s+|also\s+|about\s+)*
    | (?:to\s+)?(?:(?:deeply|better|fully|also|really|thoroughly)\s+)*
        (?:know|learn|learning|understand|understanding|see|find\ out|hear|explore|discover|explain|describe|discuss|
           compare|outline)(?:\s+(?:more|about|both))*\s+
    | (?:to\s+)?(?:(?:get|gain|have)\s+)?an?\s+(?:\w+\s+)?(?:understanding|overview|explanation|idea|picture)\s+of\s+
    )""",
    re.IGNORECASE | re.VERBOSE,
)
"""Phrases before the content of a sentence, such as "I want to know"."""

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
    narrative has no content word, the phrase is empty. Accents are composed (NFC). By default, nothing is known of the
    corpus.
    """
    narrative = normalize("NFC", narrative)
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
    runs, end = [list[str]()], 0
    for found in WORD.finditer(text):
        word = found[0]
        is_empty = word.lower() in STOP_WORDS or len(word) < 2
        if is_empty or re.search(r"[^\w\s'\u2019-]", text[end : found.start()]):
            runs.append([])
        if not is_empty:
            runs[-1].append(word)
        end = found.end()
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

    The topic is the narrative's first sentence (`lead`), a `phrase` extracted from it, or nothing (None). A narrative
    of two sentences is one question without a lead: each of them finds less than both.
    """

    facets: Facets = "sentences"
    topic: TopicBy | None = "lead"
    variants: int = 0
    questions: int = 30
    """The most questions of a narrative. Neighbours are joined if there would be more."""

    def keep_whole(self, narrative: str) -> bool:
        """Whether a narrative is one question because it has two sentences."""
        return self.facets == "sentences" and len(split_sentences(narrative)) == 2


def understand_by_rules(topics: Sequence[Topic], sources: Sources, rules: UnderstandingRules) -> list[Understanding]:
    """Find the questions, the topic and its variants for every narrative.

    The first 10 documents of BM25 for topic and narrative together are the feedback for the expansion. BM25 is opened
    only if a rule counts words.
    """
    store = sources.store
    open_searcher = cache(lambda: open_sparse(sources.index, store))

    def frequencies(words: Sequence[str]) -> Sequence[int]:
        return open_searcher().document_frequencies(words)

    whole = [rules.keep_whole(topic.narrative) for topic in topics]
    phrases = [
        "" if one and rules.topic == "lead" else TOPIC_RULES[rules.topic](topic.narrative, frequencies, len(store))
        for topic, one in zip(topics, whole, strict=True)
    ]
    texts = [f"{phrase} {topic.narrative}".strip() for phrase, topic in zip(phrases, topics, strict=True)]
    variants: list[tuple[str, ...]] = [() for _ in topics]
    if rules.variants:
        ids = [topic.id for topic in topics]
        found = open_searcher().search(ids, texts, FEEDBACK_DOCUMENTS, sources.threads)
        for i, text in enumerate(texts):
            feedback = [document.contents for document in store.get(found.of(i))]
            variants[i] = expand_topic(text, feedback, frequencies, len(store), rules.variants)
    return [
        Understanding(
            topic_id=topic.id,
            questions=(topic.narrative.strip(),)
            if whole[i]
            else join_neighbours(decompose(topic.narrative, rules.facets), rules.questions),
            topic=phrases[i],
            variants=variants[i],
        )
        for i, topic in enumerate(topics)
    ]


LEAST_OPENING_WORDS, MOST_OPENING_WORDS = 5, 14
"""The fewest and the most words to which the line that opens the sentences for a question is cut."""
MOST_WHOLE_WORDS = 16
"""The most words of a line that is not cut."""

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
    "a about after all also among an and any are as at be because been before being between both but by can could did "
    "do does each either even every for from had has have her his if in into is its may might more most must my no not "
    "of on only or our over shall should so some such than that the their these this those through to under very was "
    "were what when where which while who whose will with within without would your".split()
)
"""Words without which a line ends better: they want a word after them."""
_WANTS_OBJECT = re.compile(
    r"(?:argued?|asks?|believes?|brings?|claims?|ensures?|feels?|finds?|gets?|gives?|goes|holds?|keeps?|knows?|lets?"
    r"|makes?|means?|needs?|puts?|says?|sees?|sets?|shows?|suggests?|takes?|thinks?|tries|try|uses?|wants?"
    r"|able|going|kind|lack|likely|number|part|rest|sort|used)$",
    re.I,
)
"""A last word that says little without what comes after it, mostly a verb."""
_BARE_ADJECTIVE = re.compile(r"\b(?:an?|the|more|most|very) \w+(?:able|al|ed|ful|ible|ic|ing|ive|less|ous)$", re.I)
_OPENERS = {"(": ")", "[": "]", "\u201c": "\u201d", "\u00ab": "\u00bb"}
MOST_QUESTIONS = 200
"""The most questions into which the queries of a narrative are split."""
_JOINT = re.compile(
    r"^(?:[,;:(\u2013-]|(?:after|and|as|because|before|but|by|for|from|if|in|into|of|on|or|so|that|to|when|where|which"
    r"|while|who|with|without)$)",
    re.I,
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
    texts = [one.question for one in sentences]
    if not any(map(_PERSON.search, texts[:FIRST_SENTENCES])) and not any(map(_WISH.search, texts)):
        thesis, asking = _find_thesis(sentences), [one for one in sentences if _ASKS.search(one.question)]
    asked = _ask_each(asking or ([] if thesis else sentences), lambda text: decompose(_drop_background(text)))
    return _join_loose([*thesis, *asked])


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
    whole = len(words) <= MOST_WHOLE_WORDS
    line = " ".join(words) if whole else _cut_line(words)
    asks = whole and bool(_QUESTION.match(question))
    return f"{line[:1].upper()}{line[1:].rstrip(',;:')}{'?' if asks else ':'}"


def _cut_line(words: Sequence[str]) -> str:
    """Cut words before the last joint at which they do not end as a stub, and if there is none, after the most."""
    joints = [place for place in range(MOST_OPENING_WORDS, LEAST_OPENING_WORDS - 1, -1) if _JOINT.match(words[place])]
    lines = [_end_well(words[:place]) for place in (*joints, MOST_OPENING_WORDS)]
    fitting = (line for line in lines if len(line.split()) >= LEAST_OPENING_WORDS)
    return next(
        (line for line in fitting if not _WANTS_OBJECT.match(line.split()[-1]) and not _BARE_ADJECTIVE.search(line)),
        lines[-1],
    )


def _end_well(words: Sequence[str]) -> str:
    """End a line before a bracket or quotation that it does not close, and before words that want others after them."""
    kept = list(words)
    for place, word in enumerate(words):
        closing = _OPENERS.get(word[0])
        if closing and closing not in " ".join(words[place:]):
            kept = kept[:place] if place >= LEAST_OPENING_WORDS else [*words[:place], word[1:], *words[place + 1 :]]
            break
    while len(kept) > 1 and kept[-1].lower().strip(",;:") in _LOOSE_ENDS:
        kept.pop()
    return " ".join(kept)


def _ask_each(queries: Sequence[Query], split: Callable[[str], Sequence[str]]) -> list[Query]:
    """Split each query. Beyond `MOST_QUESTIONS` in all, the queries stay as they are: each question is embedded."""
    asked: dict[str, Query] = {}
    for query in queries:
        for text in split(query.question):
            asked.setdefault(text.lower(), replace(query, question=text, dense_text=text))
    return list(asked.values()) if len(asked) <= MOST_QUESTIONS else list(queries)
