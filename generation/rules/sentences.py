"""Sentences of documents for extractive answers, with their subject, where only the text around them names it.

They are chosen by their likely worth, grouped by equal meaning, and rated for each query.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from keystone.generation.context.topic import PlacedSegments, Sources, TopicContext
from keystone.generation.rules.queries import split_into_questions
from keystone.generation.rules.stands_alone import can_be_read, continues, explains_entry, find_name, lacks_subject
from keystone.generation.rules.words import make_weigher
from keystone.indexing.corpora.segments import split_sentences
from keystone.indexing.embedder import Vectors, round_to_grid
from keystone.indexing.types import Document, Span
from keystone.indexing.vectors.embed import embed_queries
from keystone.indexing.vectors.of_segments import sentence_vectors
from keystone.indexing.words import find_stems
from keystone.retrieval.types import Query

MOST_TITLE_WORDS = 4
"""The most words of a title that is a name. Longer titles are headlines."""

OPENING_CHARACTERS = 500
"""A sentence that begins before this character opens its document."""
MOST_ENTRY_CHARACTERS = 400
"""The characters before a sentence in which the line that opens its entry is looked for, and those of a list's item."""

_THIS_DOCUMENT = re.compile(
    r"^This (?=(?:module|package|library|tool|program|software|application|product)\b)"
    r"|\bthis (?=(?:module|package|library)\b)"
)
_MARKS = re.compile(
    r"(?<![\w*])(\*{1,2})(?P<term>[^\W\d_](?:[^*]*\w)?)\1(?![\w*])"
    r"|(`{1,2})(?P<code>[^`\s][^`]*)\3"
    r"|(?<!\w)(?P<link>[^\W_]\w*?)__(?!\w)"  # a link of reStructuredText
    r"|^(?:[-*+\u2022]|[a-z\d]\))\s+"  # an item of a list
    r"|\s\((?:see|cf\.|described)\s[^()]*\)"
)
"""Stars and backticks around words, the mark of a list's item, and a pointer to another place in parentheses."""
_ANNOUNCES = re.compile(
    r"^To\s[^,]*:$|\b(?:(?:two|three|four|five|several)\b.*|(?:caveat|example|limitation|option|step|thing|way)s?.*"
    r"|(?:about|and|are|as|be|by|do|for|from|in|is|like|of|on|that|then|to|using|with))\s*:$"
)
"""Words of a sentence that says little without what follows its colon."""
_ENTRY = re.compile(
    r"(?:async\s+)?(?:def\s+|class\s+)?([^\W_][\w.]*)"
    r"\([^()]*(?:\([^()]*\)[^()]*)*\)(?:\s*->[^\n]*|\s+method\s+of\s[^\n]*)?:?[ \t]*$"
)
"""A line that opens an entry of a manual: a name with its arguments."""
_CALL = r"[^\W\d_][\w.]*[ ]?\([^()\n]*\)"
_LISTED = re.compile(
    rf"^[ \t]*(?:[-*+\u2022][ \t]+)?({_CALL}(?:,[ ]{_CALL})*|[A-Z][A-Z0-9]*_[A-Z0-9_]+)[ \t]+--?[ \t]+(?=[^\W\d_])"
    r"|^[ \t]*([a-z]\w*)(?:[ ]{2,}|\t+)(?=[A-Z].*\.$)",
    re.MULTILINE,
)
"""The names that open a line of a list, before their explanation."""


def read_sentence(document: Document, span: Span) -> str:
    """Read a sentence of a document on one line, with its subject. A colon before an example becomes a full stop."""
    text = _read_with_subject(document, span)
    return f"{text[:-1]}." if text.endswith(":") and not _ANNOUNCES.search(text) else text


def _read_with_subject(document: Document, span: Span) -> str:
    """Read a sentence of a document on one line, with its subject.

    The title replaces "This" before a word such as "module": of the page `timeit`, "This module measures time." becomes
    "The timeit module measures time." The first sentence below a line such as `run(task)` opens with
    "run() of timeit - ", and so does a line of a list such as `run() -- start a task`. Such a sentence, and a title
    with its explanation, end with a full stop.
    """
    title = document.title if len(document.title.split()) <= MOST_TITLE_WORDS else ""
    of_title = f" of {title}" if title else ""
    listed = _LISTED.match(document.text, span.start, span.end)
    if listed:
        names = re.sub(r" ?\(.*?\)", "()", listed[1] or listed[2])
        text = _read_plain(document.text[listed.end() : span.end])
        return f"{names}{of_title} - {_capitalise(text).rstrip('.;')}."
    entry, text = _find_entry(document.text, span)
    if entry:
        text = re.sub(rf"^{re.escape(entry)}\([^()]*\)(?::| --?) ", "", text)
        if text[-1:].isalnum() and document.text.startswith("\n\n", span.end):
            text += "."
        return f"{entry}(){of_title} - {_capitalise(text)}"
    if text.startswith(f"{document.title} - ") and text[-1].isalnum():
        return f"{text}."
    name = find_name(document.title)
    if name and not title and span.start < OPENING_CHARACTERS and lacks_subject(text):
        return f"{name} - {text}"
    return _THIS_DOCUMENT.sub(lambda found: f"{found[0][0]}he {title} ", text) if title else text


def include_subject(document: Document, span: Span) -> Span:
    """Return the span of a sentence from the line before it on, if that line names its subject."""
    entry = _match_line_before(document.text, span.start)
    return Span(span.doc_id, entry.start(), span.end) if entry else span


def find_listed(text: str) -> Iterator[tuple[int, int]]:
    """Find the lines of lists that explain a name: the start and the end of each in `text`.

    An explanation goes on below its line, up to a blank line, the next name or a full stop.
    """
    for found in _LISTED.finditer(text):
        end = _find_line_end(text, found.end())
        while end < found.end() + MOST_ENTRY_CHARACTERS and not text[found.end() : end].rstrip().endswith("."):
            line = text[end + 1 : _find_line_end(text, end + 1)]
            if not line.strip() or _LISTED.match(line):
                break
            end += 1 + len(line)
        yield found.start(), found.end() + len(text[found.end() : end].rstrip())


def _find_line_end(text: str, start: int) -> int:
    place = text.find("\n", start)
    return len(text) if place < 0 else place


def _find_entry(text: str, span: Span) -> tuple[str, str]:
    """Find the name that a sentence explains, empty if there is none, and the sentence on one line."""
    sentence = text[span.start : span.end]
    first, _, rest = sentence.partition("\n")
    entry = _ENTRY.match(first) if rest else None
    if entry:
        sentence = rest
    else:
        entry = _match_line_before(text, span.start)
    return entry[1] if entry else "", _read_plain(sentence)


def _capitalise(text: str) -> str:
    return text[:1].upper() + text[1:]


def _read_plain(text: str) -> str:
    """Read a text on one line, without the marks of a manual."""
    return _MARKS.sub(lambda found: found["term"] or found["code"] or found["link"] or "", " ".join(text.split()))


def _match_line_before(text: str, place: int) -> re.Match[str] | None:
    """Match the line before a place, if it opens an entry.

    A blank line may stand below the line of a class, and below any line if the place is indented.
    """
    first = max(0, place - MOST_ENTRY_CHARACTERS)
    end = first + len(text[first:place].rstrip())
    line_ends = text.count("\n", end, place)
    start = text.rfind("\n", first, end) + 1
    entry = _ENTRY.match(text, start, end) if line_ends and (start or not first) else None
    if entry is None:
        return None
    is_class = entry[1].rpartition(".")[2][:1].isupper()
    return entry if line_ends == 1 or is_class or text[place - 1] in " \t" else None


SAME_COSINE = 0.95
"""The least cosine of two sentences that say the same."""
RELATED_COSINE = 0.25
"""The cosine of a sentence and a query from which on the sentence has a utility."""
MOST_CANDIDATE_SENTENCES = 96
"""The most sentences that are embedded for a topic. Embedding is most of the work of an answer."""
SHARED_WORTH, HELD_WORTH = 0.09, 0.05
"""The worth of a query's word for each unit of its weight, if the sentence shares it, and if the document holds it."""
LEAST_SHARED = 2
"""The fewest words that a sentence shares with a query that it fits, if only words can tell."""
MOST_SHARED_STEMS = 8
"""The content words of a query by which shared words count in full. In a longer one, each counts less."""
MOST_STRETCH_SENTENCES, MOST_STRETCH_WORDS = 3, 70
"""The most sentences, and the most words, of a sentence with those that go on from it."""
MOST_KEPT_DOCUMENTS, LONGEST_KEPT_CHARACTERS = 1024, 50_000
"""The documents whose readable sentences are kept, and the longest of them. Narratives and runs share documents."""
FEEDBACK_SEGMENTS = 3
"""The segments closest to a query whose mean tells how the documents put it."""
NAMING_CHARACTERS = 200
"""The characters of a document, after its title, that are compared with the questions. They name its subject."""
NARRATIVE_SHARE = 0.3
"""The share of the narrative in the vector of each of its questions."""
_GERUND_ITEM = re.compile(r"[-*+\u2022]\s+\w+ing\b")
"""An item of a list that names an action, as a part of the sentence above the list."""


def ask_each_clause(context: TopicContext, sources: Sources) -> TopicContext:
    """Return the context with its queries split into questions. Their embeddings are made anew."""
    questions = split_into_questions(context.queries)
    return replace(
        context,
        queries=questions,
        query_vectors=embed_questions(sources, questions, context.query_vectors),
        openings=embed_openings(sources, list(context.documents.values())),
    )


def embed_openings(sources: Sources, documents: Sequence[Document]) -> Vectors:
    """Embed the title and the first characters of documents, which name their subjects: float32[documents, d]."""
    openings = [f"{document.title} {' '.join(document.text[:NAMING_CHARACTERS].split())}" for document in documents]
    return sentence_vectors(sources.index, openings, sources.threads)


def embed_questions(sources: Sources, questions: Sequence[Query], queries: Vectors) -> Vectors:
    """Embed the questions of one narrative: float32[questions, d].

    A question such as "How to fetch it?" is clear only beside the others. So each vector is moved towards the mean of
    the topic's `queries` (float32[queries, d]), of which the whole narrative is one.
    """
    vectors = embed_queries(sources.embedding, [question.dense_text for question in questions], sources.threads)
    mean = round_to_grid(queries.mean(axis=0, dtype=np.float64, keepdims=True))
    return round_to_grid((1 - NARRATIVE_SHARE) * vectors + NARRATIVE_SHARE * mean)


def find_sentences(context: TopicContext) -> list[Span]:
    """Find the sentences of the documents that can be read alone, in the order of the documents.

    Sentences that go on from such a sentence, as with "It" or "this", are found together with it too, as one stretch.
    If the context is not `whole`, a segment holds each.
    """
    return [
        span
        for document in context.documents.values()
        for placed in [PlacedSegments(document)]
        for span in (_find_readable if len(document.text) <= LONGEST_KEPT_CHARACTERS else _read_through)(document)
        if context.whole or placed.find_holding(span.start, span.end)
    ]


@lru_cache(MOST_KEPT_DOCUMENTS)
def _find_readable(document: Document) -> tuple[Span, ...]:
    return tuple(_read_through(document))


def _read_through(document: Document) -> Iterator[Span]:
    listed = list(find_listed(document.text))
    for start, end in listed:
        span = Span(document.id, start, end)
        if explains_entry(read_sentence(document, span)):
            yield span
    listed_ends = [end for _, end in listed]
    listed_headings = map(str.strip, document.headings.split("\n"))
    headings = {one for heading in listed_headings for one in (heading, heading.lstrip("0123456789.) \t"))}
    stretch: list[Span] = []
    for start, end in split_sentences(document.text):
        line, line_end, rest = document.text[start:end].partition("\n")
        if line_end and line.strip() in headings:
            start, stretch = end - len(rest.lstrip()), []
        place = bisect_right(listed_ends, start)
        if place < len(listed) and listed[place][0] < end:
            stretch = []
            continue
        span = Span(document.id, start, end)
        text = "" if _GERUND_ITEM.match(document.text, start) else read_sentence(document, span)
        if stretch and _goes_on(document.text, stretch, text, span):
            stretch.append(span)
            yield Span(document.id, stretch[0].start, end)
        else:
            stretch = [span] if can_be_read(text, document.title) else []
            yield from stretch


def _goes_on(text: str, stretch: Sequence[Span], sentence: str, span: Span) -> bool:
    """Tell whether a sentence of `text` goes on from a stretch of its paragraph that has room for it."""
    return (
        len(stretch) < MOST_STRETCH_SENTENCES
        and len(text[stretch[0].start : span.end].split()) <= MOST_STRETCH_WORDS
        and "\n\n" not in text[stretch[-1].end : span.start]
        and all("." in text[one.end - 2 : one.end] for one in (stretch[-1], span))
        and continues(sentence)
    )


def choose_likely(context: TopicContext, spans: Sequence[Span], most: int = MOST_CANDIDATE_SENTENCES) -> list[Span]:
    """Choose the `most` sentences that are likely to be close to a query, in their order, before any is embedded.

    The queries take turns: each chooses the best sentence that is left, as `rate_chances` rates them.
    """
    if len(spans) <= most:
        return list(spans)
    chances = rate_chances(context, spans)
    turn = np.argsort(np.argsort(-chances, axis=1, kind="stable"), axis=1, kind="stable").min(axis=0)
    chosen = np.lexsort((-chances.max(axis=0), turn))[:most]
    return [spans[place] for place in sorted(chosen.tolist())]


def rate_chances(context: TopicContext, spans: Sequence[Span]) -> NDArray[np.float64]:
    """Rate the chance of each sentence to answer each query, before it is embedded: float64[queries, spans].

    It has three parts: the worth of its document, the highest cosine of the segments that hold it, and the rare words
    that it shares with the query.
    """
    own = context.by_id
    of_documents = dict(zip(own, rate_documents(context).T, strict=True))
    placed = {doc_id: PlacedSegments(document) for doc_id, (document, _) in own.items()}
    chances = SHARED_WORTH * weigh_shared_words(context, spans)
    for place, span in enumerate(spans):
        vectors = own[span.doc_id][1]
        held = placed[span.doc_id].find_holding(span.start, span.end)
        near = context.query_vectors @ (vectors[held] if held else vectors).T
        chances[:, place] += of_documents[span.doc_id] + near.max(axis=1)
    return chances


def rate_documents(context: TopicContext) -> NDArray[np.float64]:
    """Rate the worth of each document for each query: float64[queries, documents].

    It has two parts: the words of the query that the document holds, and the highest cosine of its segments. If
    openings are embedded, the second part is the mean of that and of the cosine of its title and opening.
    """
    cosines = [(context.query_vectors @ own.T).max(axis=1, initial=-1) for own in context.segments.values()]
    near = np.array(cosines, np.float64).reshape(len(cosines), len(context.queries)).T
    if context.openings is not None:
        near = (near + (context.query_vectors @ context.openings.T).astype(np.float64)) / 2
    texts = [f"{document.title} {document.text}" for document in context.documents.values()]
    return near + HELD_WORTH * _weigh_shared(context.queries, texts)


def weigh_shared_words(context: TopicContext, spans: Sequence[Span]) -> NDArray[np.float64]:
    """Weigh the words that each sentence shares with each query: float64[queries, spans]. Rare words weigh more."""
    documents = {document.id: document for document in context.documents.values()}
    return _weigh_shared(context.queries, [read_sentence(documents[span.doc_id], span) for span in spans])


def _weigh_shared(queries: Sequence[Query], texts: Sequence[str]) -> NDArray[np.float64]:
    """Weigh the words that each text shares with each query: float64[queries, texts].

    In a query of more than `MOST_SHARED_STEMS` words each counts less, since a long text shares words with everything.
    """
    said = list(map(find_stems, texts))
    weigh = make_weigher(said)
    asked = [find_stems(query.dense_text) for query in queries]
    weights = [[weigh(own & other) * min(1.0, MOST_SHARED_STEMS / max(1, len(own))) for other in said] for own in asked]
    return np.array(weights).reshape(len(asked), len(said))


def share_words(context: TopicContext, spans: Sequence[Span]) -> NDArray[np.bool_]:
    """Tell whether each sentence, with its title, shares two words with each query: bool[queries, spans].

    For a query of one word, one is enough.
    """
    documents = {document.id: document for document in context.documents.values()}
    read = (f"{documents[span.doc_id].title} {read_sentence(documents[span.doc_id], span)}" for span in spans)
    said = list(map(find_stems, read))
    asked = [find_stems(query.dense_text) for query in context.queries]
    shared = [[len(own & other) >= min(len(own), LEAST_SHARED) for other in said] for own in asked]
    return np.array(shared, np.bool_).reshape(len(asked), len(said))


def find_holding_segments(document: Document, *spans: Span) -> list[int]:
    """Find the numbers of the segments that hold the first of the spans that any holds; all numbers if none is held."""
    placed = PlacedSegments(document)
    held = (placed.find_holding(span.start, span.end) for span in spans)
    return next(filter(None, held), list(range(len(document.segments))))


def group_same_sentences(vectors: Vectors) -> list[list[int]]:
    """Group sentences that say the same: their cosine with the group's first is at least 0.95.

    `vectors` is float32[sentences, d]. Returns the places of each group's sentences, in order.
    """
    groups: list[list[int]] = []
    for number in range(len(vectors)):
        heads = vectors[[group[0] for group in groups]]
        same = np.flatnonzero(heads @ vectors[number] >= SAME_COSINE) if groups else np.empty(0, np.int64)
        if same.size:
            groups[int(same[0])].append(number)
        else:
            groups.append([number])
    return groups


def compute_worth(context: TopicContext, spans: Sequence[Span], vectors: Vectors) -> NDArray[np.float64]:
    """Compute the worth of each sentence for each query: float64[queries, spans].

    It has four parts: the sentence's cosine with the query, its cosine with the mean of the query's closest segments,
    which has the words of the documents, the worth of its document, and the rare words that it shares with the query.
    """
    if not spans:
        return np.zeros((len(context.queries), 0))
    segments = np.concatenate(list(context.segments.values()))
    closest = np.argsort(-(context.query_vectors @ segments.T), axis=1, kind="stable")[:, :FEEDBACK_SEGMENTS]
    feedback = segments[closest].mean(axis=1, dtype=np.float64)
    feedback /= np.maximum(np.linalg.norm(feedback, axis=1, keepdims=True), 1e-9)
    places = {doc_id: place for place, doc_id in enumerate(context.by_id)}
    of_documents = rate_documents(context)[:, [places[span.doc_id] for span in spans]]
    near = ((context.query_vectors + round_to_grid(feedback)) @ vectors.T).astype(np.float64)
    return near + of_documents + SHARED_WORTH * weigh_shared_words(context, spans)


def compute_utilities(queries: Vectors, candidates: Vectors) -> NDArray[np.float64]:
    """Compute the utility of each candidate for each query: float64[queries, candidates], 0 to 3 as UMBRELA grades.

    A cosine of 0.25 gives 0, a cosine of 1 gives 3, and values between are linear. `queries` is float32[queries, d],
    and `candidates` float32[candidates, d].
    """
    cosines = (queries @ candidates.T).astype(np.float64)
    return np.clip((cosines - RELATED_COSINE) / (1 - RELATED_COSINE), 0, 1) * 3
