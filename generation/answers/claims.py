"""Claims, and prose from them with locked citations.

For each query, the model quotes documents, and a program finds each quote in its document. Claims that say the same
become one, and a set is chosen that covers the queries. Then the model writes sentences by the ids of claims, and a
program checks them. A sentence cites the segments of its claims. If it holds a name or a number that its claims do not
have, the claims' own texts stand in its place. If it shares too few words with its claims, their texts stand there too.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from keystone.fusion.parasol import choose_covering, log_terms
from keystone.generation.answers.quotes import (
    find_names,
    find_naming_segments,
    find_quote,
    find_quoted_segments,
    split_words,
)
from keystone.generation.answers.sentences import (
    QueryTask,
    allow_tokens,
    count_words,
    group_by_first,
    list_as_json,
    make_sentences,
    read_place,
    read_places,
    read_text,
    show_passages,
    tidy,
)
from keystone.generation.context.texts import neutralise
from keystone.generation.llm.ask import ask_all
from keystone.generation.llm.model import Model
from keystone.generation.prompts import answers as prompts
from keystone.generation.replies import read_parts
from keystone.generation.rules.sentences import SAME_COSINE
from keystone.generation.types import MOST_CITATIONS, Answer, Citation, Failure, Fallback, Reply, Request, Sentence
from keystone.indexing.embedder import Vectors
from keystone.indexing.errors import Unusable
from keystone.indexing.types import Document, Segment, Span
from keystone.indexing.words import find_stems

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


def request_claims(task: QueryTask) -> Request:
    """Make a request for the claims that answer a query. The passages are numbered from 0."""
    return prompts.CLAIMS.request(
        allow_tokens(REPLY_WORDS),
        query=task.query,
        narrative=task.narrative,
        documents=show_passages(task.passages, task.notes),
        most=MOST_CLAIMS,
    )


def read_claims(
    reply: Reply, task: QueryTask, documents: Mapping[str, Document], place: int
) -> tuple[list[Claim], int]:
    """Read the claims of a reply that stand in their passages, and the number of those dropped: see `_read_claim`.

    `place` is the place of the query. `Unusable` if the reply holds no list of objects, or if every claim is dropped.
    """
    items = read_parts(reply, "claims", prompts.QuotedClaim)
    read = [claim for item in items if (claim := _read_claim(item, task, documents, reply))]
    if items and not read:
        raise Unusable(
            "no claim has a short text, the number of a document, and a quote that stands in it word by word"
        )
    found = [replace(claim, uses=((place, number),)) for number, claim in enumerate(read[:MOST_CLAIMS])]
    return found, len(items) - len(read)


def _read_claim(
    item: prompts.QuotedClaim, task: QueryTask, documents: Mapping[str, Document], reply: Reply
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


def find_missing_names(text: str, task: QueryTask, document: Document, segments: Sequence[Segment]) -> set[str]:
    """Find the names and numbers of a claim that neither these segments, their title nor the request have."""
    sources = (task.query, task.narrative, document.title, *map(document.segment_text, segments))
    return find_names(text).keys() - split_words(" ".join(sources))


def make_claims_of_notes(
    tasks: Sequence[QueryTask], notes: Sequence[tuple[int, str, Span]], documents: Mapping[str, Document]
) -> list[Claim]:
    """Make claims of a reader's notes: the place of each one's query, its text, and the stretch that it quotes.

    The claim is the quote itself if the note has names or numbers that the quoted segments lack. A note has no claim if
    the evidence of its query lacks one of these segments, since an answer cites its evidence alone.
    """
    claims, counts = list[Claim](), Counter[int]()
    for place, text, span in notes:
        shown = [one for one in tasks[place].spans if one.doc_id == span.doc_id]
        if not shown:
            continue
        document = documents[span.doc_id]
        segments = find_quoted_segments(document, span)[:MOST_CITATIONS]
        if not all(any(map(segment.span.overlaps, shown)) for segment in segments):
            continue
        quote = tidy(document.text[span.start : span.end])
        said = quote if find_missing_names(text, tasks[place], document, segments) else text
        uses = ((place, counts[place]),)
        claims += [Claim(said, (quote,), tuple(one.id for one in segments), uses)] if segments else []
        counts[place] += 1
    return claims


async def collect_claims(
    model: Model, tasks: Sequence[QueryTask], documents: Mapping[str, Document]
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


SAME_WORDS_SHARE = 0.8
"""The least share of the shorter claim's content words that two claims have in common if they say the same."""
NEAR_COSINE = 0.8
"""The least cosine of two claims that say the same in nearly the same words."""
BEST_UTILITY = 3.0
"""The utility of a query's first claim, as the highest grade. Its second has half of that, its third a third."""


def merge_claims(claims: Sequence[Claim], vectors: Vectors) -> list[Claim]:
    """Merge the claims that say the same, by words and embedding: `vectors` is float32[claims, d], unit vectors.

    Two say the same if their cosine is at least `SAME_COSINE`. They also do if it is at least `NEAR_COSINE` and they
    share `SAME_WORDS_SHARE` of the content words of the shorter one. A claim joins the first claim that says the same;
    that one keeps its text, and has the quotes, citations and queries of both.
    """
    stems = [find_stems(claim.text) for claim in claims]

    def say_same(place: int, head: int) -> bool:
        cosine, one, other = float(vectors[head] @ vectors[place]), stems[head], stems[place]
        alike = len(one & other) >= SAME_WORDS_SHARE * max(1, min(len(one), len(other)))
        return cosine >= SAME_COSINE or (cosine >= NEAR_COSINE and alike)

    return [_join([claims[number] for number in group]) for group in group_by_first(len(claims), say_same)]


def _join(claims: Sequence[Claim]) -> Claim:
    """Join claims that say the same: the text of the first, and for each query the best place."""
    uses = dict(sorted((use for claim in claims for use in claim.uses), key=lambda use: -use[1]))
    quotes = dict.fromkeys(quote for claim in claims for quote in claim.quotes)
    return Claim(claims[0].text, tuple(quotes), join_citations(claims), tuple(sorted(uses.items())))


def join_citations(claims: Sequence[Claim]) -> tuple[Citation, ...]:
    """Join the citations of claims, at most `MOST_CITATIONS`: the best of each claim, then the second of each."""
    in_turn = (citation for rank in zip_longest(*(claim.citations for claim in claims)) for citation in rank)
    return tuple(dict.fromkeys(citation for citation in in_turn if citation))[:MOST_CITATIONS]


def compute_claim_utilities(claims: Sequence[Claim], queries: int) -> NDArray[np.float64]:
    """Compute the utility of each claim for each query: float64[queries, claims], 0 to 3 as UMBRELA grades.

    A claim has a utility only for the queries that it was collected for, by the order in which the model named it.
    """
    utility = np.zeros((queries, len(claims)))
    for number, claim in enumerate(claims):
        for query, place in claim.uses:
            utility[query, number] = BEST_UTILITY / (1 + place)
    return utility


def choose_claims(claims: Sequence[Claim], queries: int, words: int) -> list[Claim]:
    """Choose claims that cover the queries within `words` words, in the order of their queries.

    It is the better of two greedy sets: by gain, and by gain a word. So its coverage is at least (1 - 1/e) / 2 of the
    optimum. Source: Leskovec et al., *Cost-effective outbreak detection in networks*, KDD 2007, section 3.2.
    """
    utility = compute_claim_utilities(claims, queries)
    costs = [len(claim.text.split()) for claim in claims]
    sets = [choose_covering(utility, costs, words, per_cost=per_cost) for per_cost in (False, True)]
    best = max(sets, key=lambda chosen: float(log_terms(utility[:, chosen].sum(axis=1)).sum()))
    return sorted((claims[number] for number in best), key=lambda claim: claim.uses[0])


MOST_JOINED = 3
"""The most claims that one sentence may say."""
LEAST_SHARED_WORDS = 0.5
"""The least share of a sentence's content words that stand in its claims or their quotes."""


@dataclass(frozen=True, slots=True)
class ProseTask:
    """A topic's narrative, its queries, the chosen claims in order, and the most words of their prose."""

    topic_id: str
    narrative: str
    queries: tuple[str, ...]
    claims: tuple[Claim, ...]
    words: int


def request_prose(task: ProseTask) -> Request:
    """Make a request for the claims as prose. It shows their ids, questions and texts, and no citation."""
    claims = list_as_json(
        {"id": place, "question": neutralise(task.queries[claim.uses[0][0]]), "text": neutralise(claim.text)}
        for place, claim in enumerate(task.claims)
    )
    tokens, high = allow_tokens(task.words), task.words
    return prompts.WRITE_CLAIMS.request(tokens, narrative=task.narrative, claims=claims, high=high, joined=MOST_JOINED)


def read_prose(reply: Reply, task: ProseTask) -> tuple[tuple[Sentence, ...], list[str]]:
    """Read the sentences of a reply with the citations of their claims, and the reasons why others were refused.

    They stand in the order of their first claims. A claim that no accepted sentence says stands with its own text.
    `Unusable` if a sentence has no claims, an unknown one, or one of another sentence. `Unusable` also if the text has
    more words than allowed.
    """
    said, refused, used = dict[int, Sentence](), list[str](), set[int]()
    left = set(range(len(task.claims)))
    for item in read_parts(reply, "sentences", prompts.JoinedClaims):
        ids = item.claims or []
        known = read_places(ids, len(task.claims))
        if not 0 < len(known) <= MOST_JOINED or len(set(known) - used) < len(ids):
            raise Unusable(f"each item needs the ids of 1 to {MOST_JOINED} claims, none of them twice, and a text")
        used |= set(known)
        own = [task.claims[id] for id in sorted(known)]
        if not (text := read_text(item.text or "", reply)):
            raise Unusable("the text of a sentence is empty or not a string")
        if why := find_objection(text, own):
            refused.append(f"claims {', '.join(map(str, sorted(known)))}: {why}")
            continue
        left -= set(known)
        said[min(known)] = Sentence(text, join_citations(own))
    said |= {place: Sentence(task.claims[place].text, task.claims[place].citations) for place in left}
    sentences = make_sentences(((said[place].text, said[place].citations) for place in sorted(said)), reply)
    if count_words(sentences) > task.words:
        raise Unusable(f"it has {count_words(sentences)} words, at most {task.words} are wanted")
    unsaid = [f"claim {place}: no sentence says it" for place in sorted(left - used)]
    return sentences, refused + unsaid


def find_objection(text: str, claims: Sequence[Claim]) -> str:
    """Find the reason why a sentence may say more than its claims; empty if there is none."""
    sources = " ".join(part for claim in claims for part in (claim.text, *claim.quotes))
    names = find_names(text)
    if unknown := names.keys() - split_words(sources):
        return f"{names[min(unknown)][:40]!r} is in no claim of the sentence"
    stems = find_stems(text)
    if len(stems & find_stems(sources)) < LEAST_SHARED_WORDS * len(stems):
        return "it shares too few words with its claims"
    return ""


async def write_prose(model: Model, task: ProseTask) -> tuple[Answer, list[Fallback]]:
    """Write claims as prose. If the model gives no usable reply, their own texts are the answer.

    Fallbacks record that, and each refused sentence. The answer cites segments.
    """
    (found,) = await ask_all(model, [(request_prose(task), partial(read_prose, task=task))])
    if isinstance(found, Failure):
        texts = tuple(Sentence(claim.text, claim.citations) for claim in task.claims)
        reason = f"the claims stand as they are: {found.reason}"
        return Answer(task.topic_id, texts), [Fallback(task.topic_id, "write_claims", reason)]
    sentences, refused = found
    reasons = [Fallback(task.topic_id, "write_claims", f"{why}: the claims' own texts stand") for why in refused]
    return Answer(task.topic_id, sentences), reasons


async def answer_from_claims(
    model: Model,
    tasks: Sequence[QueryTask],
    documents: Mapping[str, Document],
    embed: Callable[[Sequence[str]], Vectors],
    words: int,
    noted: Sequence[tuple[int, str, Span]] = (),
) -> tuple[Answer | None, list[Fallback]]:
    """Answer a topic in at most `words` words. `tasks` are its queries, in order; None if there is no claim.

    If a reader has `noted` claims, as `make_claims_of_notes` takes them, their queries are not asked for others.

    `documents` are those of the passages, by id. `embed` embeds texts as float32[texts, d], unit vectors. The answer
    cites segments.
    """
    own = make_claims_of_notes(tasks, noted, documents)
    known = {place for claim in own for place, _ in claim.uses}
    asked = [replace(task, passages=()) if place in known else task for place, task in enumerate(tasks)]
    collected, fallbacks = await collect_claims(model, asked, documents)
    claims = [*own, *collected]
    vectors = await asyncio.to_thread(embed, [claim.text for claim in claims])
    chosen = choose_claims(merge_claims(claims, vectors), len(tasks), words)
    if not chosen:
        return None, fallbacks
    queries = tuple(task.query for task in tasks)
    answer, missed = await write_prose(
        model, ProseTask(tasks[0].topic_id, tasks[0].narrative, queries, tuple(chosen), words)
    )
    return answer, [*fallbacks, *missed]
