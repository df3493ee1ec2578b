"""Prose from claims with locked citations: the model writes sentences by the ids of claims, and a program checks them.

A sentence cites the segments of its claims. If it holds a name or a number that its claims do not have, the claims' own
texts stand in its place. If it shares too few words with its claims, their texts stand in its place too.

Before that, claims that say the same become one, and a set is chosen that covers the queries.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from keystone.fusion.coverage import choose
from keystone.fusion.parasol import log_terms
from keystone.generation.answers.claims.collect import Claim, ClaimTask, collect_claims, make_claims_of_notes
from keystone.generation.answers.claims.quotes import MOST_CITATIONS, find_names, split_words
from keystone.generation.answers.sentences import (
    allow_tokens,
    count_words,
    make_messages,
    make_sentences,
    read_places,
    read_text,
)
from keystone.generation.ask import ask_all
from keystone.generation.context.delimit import neutralise
from keystone.generation.llm.model import Model
from keystone.generation.prompts.answers import write_claims as prompt
from keystone.generation.reply_types import read_parts
from keystone.generation.rules.sentences import SAME_COSINE
from keystone.generation.types import Answer, Citation, Failure, Fallback, Reply, Request, Sentence
from keystone.indexing.errors import Unusable
from keystone.indexing.types import Document, Span
from keystone.indexing.vectors.types import Vectors
from keystone.indexing.words import find_stems

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
    groups: list[list[int]] = []
    for number in range(len(claims)):
        for group in groups:
            cosine = float(vectors[group[0]] @ vectors[number])
            one, other = stems[group[0]], stems[number]
            alike = len(one & other) >= SAME_WORDS_SHARE * max(1, min(len(one), len(other)))
            if cosine >= SAME_COSINE or (cosine >= NEAR_COSINE and alike):
                group.append(number)
                break
        else:
            groups.append([number])
    return [_join([claims[number] for number in group]) for group in groups]


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
    sets = [choose(utility, costs, words, per_cost=per_cost) for per_cost in (False, True)]
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
    lines = (
        json.dumps(
            {"id": place, "question": neutralise(task.queries[claim.uses[0][0]]), "text": neutralise(claim.text)},
            ensure_ascii=False,
        )
        for place, claim in enumerate(task.claims)
    )
    claims = "[" + ",\n ".join(lines) + "]"
    user = prompt.USER.format(narrative=task.narrative, claims=claims, high=task.words, joined=MOST_JOINED)
    return Request("write_claims", make_messages(prompt.SYSTEM, user), allow_tokens(task.words), prompt.SCHEMA)


def read_prose(reply: Reply, task: ProseTask) -> tuple[tuple[Sentence, ...], list[str]]:
    """Read the sentences of a reply with the citations of their claims, and the reasons why others were refused.

    They stand in the order of their first claims. A claim that no accepted sentence says stands with its own text.
    `Unusable` if a sentence has no claims, an unknown one, or one of another sentence. `Unusable` also if the text has
    more words than allowed.
    """
    said, refused, used = dict[int, Sentence](), list[str](), set[int]()
    left = set(range(len(task.claims)))
    for item in read_parts(reply, "sentences", prompt.JoinedClaims):
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
    tasks: Sequence[ClaimTask],
    documents: Mapping[str, Document],
    embed: Callable[[Sequence[str]], Vectors],
    words: int,
    noted: Sequence[tuple[int, str, Span]] = (),
) -> tuple[Answer | None, list[Fallback]]:
    """Answer a topic in at most `words` words. `tasks` are its queries, in order; None if there is no claim.

    If a reader has `noted` claims, as `make_claims_of_notes` takes them, no others are asked for.

    `documents` are those of the passages, by id. `embed` embeds texts as float32[texts, d], unit vectors. The answer
    cites segments.
    """
    claims, fallbacks = make_claims_of_notes(tasks, noted, documents), list[Fallback]()
    if not noted:
        claims, fallbacks = await collect_claims(model, tasks, documents)
    vectors = await asyncio.to_thread(embed, [claim.text for claim in claims])
    chosen = choose_claims(merge_claims(claims, vectors), len(tasks), words)
    if not chosen:
        return None, fallbacks
    queries = tuple(task.query for task in tasks)
    answer, missed = await write_prose(
        model, ProseTask(tasks[0].topic_id, tasks[0].narrative, queries, tuple(chosen), words)
    )
    return answer, [*fallbacks, *missed]
