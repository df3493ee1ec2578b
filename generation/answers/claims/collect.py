"""Claims for each query: the model quotes the query's documents, and a program finds each quote in its document."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from keystone.generation.answers.claims.quotes import (
    MOST_CITATIONS,
    find_names,
    find_naming_segments,
    find_quote,
    find_quoted_segments,
    split_words,
)
from keystone.generation.answers.sentences import (
    Passage,
    allow_tokens,
    make_messages,
    read_place,
    read_text,
    show_passages,
    tidy,
)
from keystone.generation.ask import ask_all
from keystone.generation.llm.model import Model
from keystone.generation.prompts.answers import claims as prompt
from keystone.generation.reply_types import read_parts
from keystone.generation.types import Citation, Failure, Fallback, Reply, Request
from keystone.indexing.errors import Unusable
from keystone.indexing.types import Document, Segment, Span

MOST_CLAIMS = 6
"""The most claims for one query. A reply's further claims are left out."""
MOST_CLAIM_WORDS = 60
"""The most words of one claim. The prompt asks for about 25."""
REPLY_WORDS = 600
"""The words that a reply may have: claims and quotes."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement, the quotes behind it, and the segments that hold these, best support first.

    `uses` are the queries that it answers: the place of each query, and the claim's place among that query's claims.
    """

    text: str
    quotes: tuple[str, ...]
    citations: tuple[Citation, ...]
    uses: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class ClaimTask:
    """One query of a topic, the passages of its documents, best first, and the stretches that the passages show."""

    topic_id: str
    narrative: str
    query: str
    passages: tuple[Passage, ...]
    notes: str
    """The notes that the reader of the documents took. They guide the choice, and cannot be quoted."""
    spans: tuple[Span, ...]


def request_claims(task: ClaimTask) -> Request:
    """Make a request for the claims that answer a query. The passages are numbered from 0."""
    user = prompt.USER.format(
        query=task.query,
        narrative=task.narrative,
        documents=show_passages(task.passages, task.notes),
        most=MOST_CLAIMS,
    )
    return Request("claims", make_messages(prompt.SYSTEM, user), allow_tokens(REPLY_WORDS), prompt.SCHEMA)


def read_claims(
    reply: Reply, task: ClaimTask, documents: Mapping[str, Document], place: int
) -> tuple[list[Claim], int]:
    """Read the claims of a reply that stand in their passages, and the number of those dropped: see `_read_claim`.

    `place` is the place of the query. `Unusable` if the reply holds no list of objects, or if every claim is dropped.
    """
    items = read_parts(reply, "claims", prompt.QuotedClaim)
    read = [claim for item in items if (claim := _read_claim(item, task, documents, reply))]
    if items and not read:
        raise Unusable(
            "no claim has a short text, the number of a document, and a quote that stands in it word by word"
        )
    found = [replace(claim, uses=((place, number),)) for number, claim in enumerate(read[:MOST_CLAIMS])]
    return found, len(items) - len(read)


def _read_claim(
    item: prompt.QuotedClaim, task: ClaimTask, documents: Mapping[str, Document], reply: Reply
) -> Claim | None:
    """Read a claim, without its queries; None unless its text is short and its quote stands in its passage.

    If the segments of the quote lack names or numbers of the claim, others of the passage are cited too. None if those
    do not hold them either.
    """
    number = read_place(item.document, len(task.passages))
    if item.text is None or item.quote is None or number is None:
        return None
    text = read_text(item.text, reply)
    document = documents[task.passages[number].doc_id]
    span = find_quote(document, task.spans, item.quote)
    if span is None or not 0 < len(text.split()) <= MOST_CLAIM_WORDS:
        return None
    quoted = find_quoted_segments(document, span)
    names = find_missing_names(text, task, document, quoted)
    naming = find_naming_segments(document, span, task.spans, names)
    segments = [*quoted, *naming][:MOST_CITATIONS]
    if not segments or find_missing_names(text, task, document, segments):
        return None
    return Claim(text, (tidy(item.quote),), tuple(segment.id for segment in segments), ())


def find_missing_names(text: str, task: ClaimTask, document: Document, segments: Sequence[Segment]) -> set[str]:
    """Find the names and numbers of a claim that neither these segments, their title nor the request have."""
    sources = (task.query, task.narrative, document.title, *map(document.segment_text, segments))
    return find_names(text).keys() - split_words(" ".join(sources))


def make_claims_of_notes(
    tasks: Sequence[ClaimTask], notes: Sequence[tuple[int, str, Span]], documents: Mapping[str, Document]
) -> list[Claim]:
    """Make claims of a reader's notes: the place of each one's query, its text, and the stretch that it quotes.

    The claim is the quote itself if the note has names or numbers that the quoted segments lack.
    """
    claims, counts = list[Claim](), Counter[int]()
    for place, text, span in notes:
        document = documents[span.doc_id]
        segments = find_quoted_segments(document, span)[:MOST_CITATIONS]
        quote = tidy(document.text[span.start : span.end])
        said = quote if find_missing_names(text, tasks[place], document, segments) else text
        uses = ((place, counts[place]),)
        claims += [Claim(said, (quote,), tuple(one.id for one in segments), uses)] if segments else []
        counts[place] += 1
    return claims


async def collect_claims(
    model: Model, tasks: Sequence[ClaimTask], documents: Mapping[str, Document]
) -> tuple[list[Claim], list[Fallback]]:
    """Collect the claims for each query, in the order of the queries. `documents` are those of the passages, by id.

    A query without documents is not asked. Fallbacks record queries without a usable reply, and dropped claims.
    """
    asked = [place for place, task in enumerate(tasks) if task.passages]
    requests = [
        (request_claims(tasks[place]), partial(read_claims, task=tasks[place], documents=documents, place=place))
        for place in asked
    ]
    claims, fallbacks = list[Claim](), list[Fallback]()
    for place, reply in zip(asked, await ask_all(model, requests), strict=True):
        topic_id = tasks[place].topic_id
        if isinstance(reply, Failure):
            fallbacks.append(Fallback(topic_id, "claims", f"query {place + 1} has no claims: {reply.reason}"))
            continue
        found, dropped = reply
        claims += found
        if dropped:
            of = f"{dropped} of {dropped + len(found)} claims"
            reason = f"query {place + 1}: {of} are dropped, because their document does not say them"
            fallbacks.append(Fallback(topic_id, "claims", reason))
    return claims, fallbacks
