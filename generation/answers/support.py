"""The check of an answer's sentences against the segments that they cite, by a model or by rules.

A sentence that its segments support in full stays. For any other, the topic's segments are searched for better ones. A
model then changes the words that report what no segment says. A sentence that no segment supports is dropped, unless
it tells what the sources leave open. Rules compare words, so a sentence that cites a segment in another language stays
as it is, unchecked.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from keystone.generation.answers.cite import TopicSegments, add_segments
from keystone.generation.answers.sentences import (
    allow_tokens,
    count_words,
    list_as_json,
    read_place,
    read_places,
    read_text,
)
from keystone.generation.context.texts import clip, delimit, neutralise, share_window
from keystone.generation.llm.ask import ask_all
from keystone.generation.llm.model import Model
from keystone.generation.prompts import answers as prompts
from keystone.generation.replies import read_parts
from keystone.generation.rules.support import denies_sources, find_added, rate_support, says_nothing, tells_gap
from keystone.generation.rules.words import find_numbers, find_terms, find_word_forms
from keystone.generation.types import (
    MOST_CITATIONS,
    Answer,
    Checked,
    Failure,
    Fallback,
    Reply,
    Request,
    Sentence,
    Support,
    SupportAction,
    SupportCheck,
)
from keystone.indexing.corpora.languages import differ_in_language
from keystone.indexing.embedder import Vectors
from keystone.indexing.errors import Unusable

SupportMethod = Literal["none", "rules", "model"]
"""Who checks each sentence against its segments: nobody, rules, or the model."""

LEVELS: tuple[Support, ...] = get_args(Support)
"""The levels of support by name, the best one first."""
GROUP_SENTENCES = 20
"""The most sentences of one request."""
MOST_SOURCES = 4
"""The most segments that are shown for one sentence, those that it cites included. Sentences share them."""
MOST_STRAY_TERMS = 3
"""How many terms a new text may have that stand in neither its sources nor the old text, whatever its length.

In scripts without spaces, terms are pairs of letters, and inflection changes them. Of 105 recorded texts, all in
English, none has more such terms than other ones.
"""
MOST_ADDED_WORDS = 10
"""How many words longer a new text may be than the sentence that it replaces, if the answer has room for it.

Of 23 new texts for 207 sentences, eight were longer by five to ten words. A limit of 4 refused these, and the sentences
stayed as they were, supported in part.
"""


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence of a draft with the places of the segments that it cites, and the rating of each segment for it."""

    sentence: Sentence
    cited: tuple[int, ...]
    ratings: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Verdict:
    """How far the cited segments support a sentence, the places of those to cite, and its new text, or the old one."""

    support: Checked
    cited: tuple[int, ...]
    text: str


async def check_by_model(
    model: Model,
    answer: Answer,
    vectors: Vectors,
    segments: TopicSegments,
    window: int,
    most_words: int = 0,
    gaps: bool = False,
) -> tuple[Answer, list[Fallback]]:
    """Check an answer that cites segments. `vectors` has those of its sentences, float32[sentences, d].

    The model sees each sentence with the segments that it cites, and with others of the topic that may say it. If the
    model gives no usable reply, rules check the sentences of the request, and a `Fallback` records that. New texts make
    the answer no longer than it is, or than `most_words`. With `gaps`, a sentence in which the model finds no fact that
    needs a source stays uncited, if it only denies that the sources tell something.
    """
    claims = make_claims(answer, vectors, segments)
    groups = [claims[start : start + GROUP_SENTENCES] for start in range(0, len(claims), GROUP_SENTENCES)]
    shown = [find_sources(group, segments) for group in groups]
    requests = [
        (
            request_check(group, sources, segments, window),
            partial(read_verdicts, claims=group, sources=sources, segments=segments),
        )
        for group, sources in zip(groups, shown, strict=True)
    ]
    verdicts, fallbacks = list[Verdict](), list[Fallback]()
    for group, found in zip(groups, await ask_all(model, requests), strict=True):
        if isinstance(found, Failure):
            fallbacks.append(Fallback(answer.topic_id, "support", f"{found.reason}: rules checked the sentences"))
            found = [judge_by_rules(claim, segments) for claim in group]
        verdicts += found
    room = max(0, most_words - count_words(answer.sentences))
    return apply_verdicts(answer, claims, limit_growth(claims, verdicts, room, gaps), segments, gaps), fallbacks


def check_by_rules(answer: Answer, vectors: Vectors, segments: TopicSegments, quoted: bool = False) -> Answer:
    """Check an answer that cites segments, without a model. `vectors` are as in `check_by_model`.

    If quotes have named the segments, `quoted`, the citations stay, whatever support the words of the segments show.
    """
    claims = make_claims(answer, vectors, segments)
    return apply_verdicts(answer, claims, [judge_by_rules(claim, segments, quoted) for claim in claims], segments)


def list_unchecked(answer: Answer, segments: TopicSegments) -> Answer:
    """Record each sentence of an answer that nobody checks, since it cites a segment in another language."""
    place_of = {segment_id: place for place, segment_id in enumerate(segments.ids)}
    found = (
        SupportCheck(sentence.text, "unchecked", "kept")
        for sentence in answer.sentences
        if _differ(sentence.text, [place_of[segment_id] for segment_id in sentence.citations], segments)
    )
    return replace(answer, checks=(*answer.checks, *found))


def drop_fillers(answer: Answer) -> Answer:
    """Drop the sentences that say no more than that the sources lack something, and record each."""
    fillers = [one for one in answer.sentences if says_nothing(one.text) or tells_gap(one.text)]
    return replace(
        answer,
        sentences=tuple(sentence for sentence in answer.sentences if sentence not in fillers),
        checks=(*answer.checks, *(SupportCheck(sentence.text, "none", "dropped") for sentence in fillers)),
    )


def make_claims(answer: Answer, vectors: Vectors, segments: TopicSegments) -> list[Claim]:
    """Make a claim of each sentence of an answer that cites segments."""
    place_of = {segment_id: place for place, segment_id in enumerate(segments.ids)}
    return [
        Claim(sentence, tuple(map(place_of.__getitem__, sentence.citations)), segments.rate(terms, vector))
        for sentence, vector in zip(answer.sentences, vectors, strict=True)
        for terms in [find_terms(sentence.text)]
    ]


def find_sources(claims: Sequence[Claim], segments: TopicSegments) -> list[int]:
    """Find the places of the segments that are shown for these claims: those cited, then those that rate best."""
    found = dict[int, None]()
    for claim in claims:
        best = np.argsort(-claim.ratings, kind="stable").tolist()
        anew = add_segments(segments, find_terms(claim.sentence.text), claim.ratings, claim.cited, best)
        found |= dict.fromkeys(list(dict.fromkeys([*anew, *best]))[: max(MOST_SOURCES, len(claim.cited))])
    return sorted(found)


def request_check(claims: Sequence[Claim], sources: Sequence[int], segments: TopicSegments, window: int) -> Request:
    """Make a request to check claims. The sources and the sentences are numbered from 0; together they fit `window`."""
    limit = share_window(window, len(sources))
    documents = "\n\n".join(delimit(number, clip(segments.show(place), limit)) for number, place in enumerate(sources))
    listed = list_as_json(
        {"id": n, "text": neutralise(one.sentence.text), "citations": [sources.index(place) for place in one.cited]}
        for n, one in enumerate(claims)
    )
    tokens = allow_tokens(count_words([claim.sentence for claim in claims])) + 64 * len(claims)
    return prompts.CHECK_SUPPORT.request(tokens, documents=documents, sentences=listed, most=MOST_CITATIONS)


def read_verdicts(
    reply: Reply, claims: Sequence[Claim], sources: Sequence[int], segments: TopicSegments
) -> list[Verdict]:
    """Read the verdict on each claim. Numbers without a source are dropped.

    `Unusable` unless the reply has one item for each sentence, with its support and its text. A new text is refused if
    it is more than `MOST_ADDED_WORDS` longer than the old one, if it has a number that its sources lack, if it has a
    name that neither they nor the old text have, or if these lack most of its terms, unless their language differs. The
    old text then stays, unless its support is none. A sentence with full support, without a source and without a new
    text tells no fact, and keeps its citations.
    """
    found = dict[int, Verdict]()
    for item in read_parts(reply, "sentences", prompts.CheckedText):
        place, support = read_place(item.id, len(claims)), item.support
        if place is None or place in found:
            raise Unusable("each item needs the id of one of the sentences, none of them twice")
        if support is None or item.citations is None or item.text is None:
            raise Unusable(f"sentence {place} needs support (full, partial or none), citations and a text")
        cited = tuple(dict.fromkeys(sources[n] for n in read_places(item.citations, len(sources))))[:MOST_CITATIONS]
        old = claims[place].sentence.text
        new = read_text(item.text, reply)
        added = find_added(new, _join(cited, segments)) - (find_word_forms(old) - find_numbers(old))
        if support == "full" and not item.citations and not new:
            cited = claims[place].cited
        terms, known = find_terms(new), find_terms(f"{old}\n{_join(cited, segments)}")
        strays = len(terms - known) > max(MOST_STRAY_TERMS, len(terms) / 2) and not _differ(new, cited, segments)
        if added or strays or len(new.split()) > len(old.split()) + MOST_ADDED_WORDS:
            new, cited = old, () if support == "none" else cited
        found[place] = Verdict(support, cited, new or old)
    if len(found) < len(claims):
        raise Unusable(f"{len(claims) - len(found)} of {len(claims)} sentences are missing")
    return [found[place] for place in range(len(claims))]


def limit_growth(claims: Sequence[Claim], verdicts: Sequence[Verdict], room: int, gaps: bool = False) -> list[Verdict]:
    """Refuse the new texts that grow most, until all sentences together have at most `room` words more than before.

    The old text then stays, unless no source supports any of it.
    """
    now = list(verdicts)
    growth = [
        0 if _tells_gap(claim.sentence.text, verdict, gaps) else _count_growth(claim.sentence.text, verdict)
        for claim, verdict in zip(claims, verdicts, strict=True)
    ]
    for place in sorted(range(len(now)), key=lambda place: -growth[place]):
        if sum(growth) <= room or growth[place] <= 0:
            break
        old, support = claims[place].sentence.text, now[place].support
        now[place] = Verdict(support, () if support == "none" else now[place].cited, old)
        growth[place] = 0
    return now


def _tells_gap(text: str, verdict: Verdict, gaps: bool) -> bool:
    """Return whether a sentence stays as it is, since it tells a gap. With `gaps`, it need not be a single clause."""
    return tells_gap(text) or (gaps and verdict.support == "full" and not verdict.cited and denies_sources(text))


def _count_growth(old: str, verdict: Verdict) -> int:
    return len(verdict.text.split()) - len(old.split()) if verdict.cited else -len(verdict.text.split())


def complete_citations(text: str, verdict: Verdict, claim: Claim, segments: TopicSegments) -> tuple[int, ...]:
    """Cite further segments of the documents named, while one has a name or number of the text that is not cited yet.

    The one with most of them comes first; then the higher rating wins. There are at most `MOST_CITATIONS`.
    """
    cited = list(verdict.cited)
    among = segments.find_of(segments.doc_ids[place] for place in (*cited, *claim.cited))
    added = {place: find_added(text, segments.show(place)) for place in (*cited, *among)}
    missing = set.intersection(*(added[place] for place in cited)) if cited else set()
    while missing and len(cited) < MOST_CITATIONS:
        gains = [(len(missing - added[place]), place) for place in among]
        gain, best = max(gains, key=lambda one: (one[0], claim.ratings[one[1]]), default=(0, 0))
        if not gain:
            break
        cited.append(best)
        missing &= added[best]
    return tuple(cited)


def judge_by_rules(claim: Claim, segments: TopicSegments, quoted: bool = False) -> Verdict:
    """Judge a claim by `rate_support`. If the support is not full, better segments are cited, unless it is `quoted`.

    It is the one segment of the topic that rates best, or else further segments of the cited documents. A claim stays
    unchecked if it cites a segment in another language, whose words cannot be compared.
    """
    text, terms = claim.sentence.text, find_terms(claim.sentence.text)
    if _differ(text, claim.cited, segments):
        return Verdict("unchecked", claim.cited, text)

    def rate(places: Sequence[int]) -> Support:
        return rate_support(text, _join(places, segments), segments.weigh)

    support = rate(claim.cited)
    if quoted or support == "full":
        return Verdict(support, claim.cited, text)
    among = segments.find_of(segments.doc_ids[place] for place in claim.cited)
    added = add_segments(segments, terms, claim.ratings, claim.cited, among)
    best = [int(np.argmax(claim.ratings))] if len(claim.ratings) else []
    choices = [(rate(places), tuple(places)) for places in (claim.cited, best, added)]
    level, cited = min(choices, key=lambda choice: LEVELS.index(choice[0]))
    return Verdict(support, () if level == "none" else cited, text)


def _differ(sentence: str, places: Sequence[int], segments: TopicSegments) -> bool:
    return any(differ_in_language(sentence, segments.texts[place], segments.find_language(place)) for place in places)


def _join(places: Sequence[int], segments: TopicSegments) -> str:
    return "\n".join(map(segments.show, places))


def apply_verdicts(
    answer: Answer, claims: Sequence[Claim], verdicts: Sequence[Verdict], segments: TopicSegments, gaps: bool = False
) -> Answer:
    """Apply the verdicts on an answer's sentences, and record each. A sentence without a segment to cite is dropped.

    A sentence that tells a gap stays as it is. It is recorded if the model's verdict decided that.
    """
    now, checks = list[Sentence](), list[SupportCheck]()
    for claim, judged in zip(claims, verdicts, strict=True):
        if _tells_gap(claim.sentence.text, judged, gaps):
            now.append(claim.sentence)
            if not tells_gap(claim.sentence.text):
                checks.append(SupportCheck(claim.sentence.text, "full", "kept"))
            continue
        verdict = replace(judged, cited=complete_citations(judged.text, judged, claim, segments))
        old = claim.sentence.text
        if verdict.cited:
            cited = tuple(segments.ids[place] for place in verdict.cited)
            now.append(replace(claim.sentence, text=verdict.text, citations=cited))
        checks.append(SupportCheck(old, verdict.support, _name_action(claim, verdict)))
    return replace(answer, sentences=tuple(now), checks=(*answer.checks, *checks))


def _name_action(claim: Claim, verdict: Verdict) -> SupportAction:
    if not verdict.cited:
        return "dropped"
    if verdict.text != claim.sentence.text:
        return "rewritten"
    return "kept" if verdict.cited == claim.cited else "cited anew"
