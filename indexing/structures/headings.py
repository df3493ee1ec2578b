"""Places a flat list of headings in a text: the monotone alignment of most headings, those above prose first.

MS MARCO V2.1 gives a document's headings without levels or places, often twice, and the text may begin with a table of
contents. So the first line that equals a heading is often the wrong one.
"""

import unicodedata
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence

from keystone.indexing.corpora.segments import split_sentences
from keystone.indexing.structures.blocks import lines, trim

Span = tuple[int, int]

LONGEST_HEADING_WORDS = 15
SHORTEST_PROSE = 40
"""Characters of a sentence that is prose and no item of a list."""

FOUND_WEIGHT, PROSE_WEIGHT = 10, 6
"""The worth of a heading that is found, and the additional worth of prose right below it."""

MOST_PAIRS, MOST_PLACES, FEWEST_PLACES = 200_000, 32, 4
"""Bounds of the work: pairs of heading and place over a document, and places that one heading considers."""

LONGEST_HEADING = 300
"""Characters."""


def normal_form(heading: str) -> str:
    """The form in which a heading equals its line: no difference of case, width, space or final colon.

    It is empty for text that is too long for a heading: over 15 words or 300 characters.
    """
    if len(heading) > LONGEST_HEADING:
        return ""
    words = unicodedata.normalize("NFKC", heading).casefold().split()
    return " ".join(words).removesuffix("[edit]").rstrip(" :.\u00b6") if len(words) <= LONGEST_HEADING_WORDS else ""


def place_headings(text: str, headings: Sequence[str]) -> list[Span | None]:
    """The place (start, end) of each heading in the text, None for one that is not found.

    The places rise. Of all such alignments, this one has the largest sum of weights; of equal ones, the last places.
    A heading equals a line, a sentence or the last sentence of a line. The function runs in O((n + m) log m) for n
    headings and m lines. It considers at most 32 places for a heading. If there are very many headings, it considers at
    most 4.
    """
    forms = [normal_form(heading) for heading in headings]
    sentence_spans = split_sentences(text)
    if not any(forms) or not sentence_spans:
        return [None] * len(forms)
    places = _possible_places(text, sentence_spans, frozenset(forms) - {""})
    spans = sorted({span for found in places.values() for span in found})
    weights = _weights(text, sentence_spans, spans, frozenset(forms) - {""})
    return _align(forms, {form: sorted(found) for form, found in places.items()}, spans, weights)


def _possible_places(text: str, sentence_spans: Sequence[Span], forms: frozenset[str]) -> Mapping[str, set[Span]]:
    """The places that equal a heading: lines, sentences, and the end of a line from its last sentence on.

    In segments of MS MARCO V2.1, the line break before a heading is a blank if a sentence ends there.
    """
    starts = [start for start, _ in sentence_spans]
    found: dict[str, set[Span]] = defaultdict(set)
    for first, last in lines(text):
        start, end = trim(text, first, last)
        last_sentence = starts[max(0, bisect_left(starts, end) - 1)]
        for span in {(start, end), (max(start, last_sentence), end)}:
            if (form := normal_form(text[slice(*span)])) in forms:
                found[form].add(span)
    for start, end in sentence_spans:
        if (form := normal_form(text[start:end])) in forms:
            found[form].add((start, end))
    return found


def _weights(
    text: str, sentence_spans: Sequence[Span], spans: Sequence[Span], forms: frozenset[str]
) -> dict[Span, int]:
    starts = [start for start, _ in sentence_spans]
    weights = {}
    for span in spans:
        at = bisect_left(starts, span[1])
        start, end = sentence_spans[at] if at < len(sentence_spans) else (0, 0)
        prose = end - start >= SHORTEST_PROSE and normal_form(text[start:end]) not in forms
        weights[span] = FOUND_WEIGHT + PROSE_WEIGHT * prose
    return weights


def _align(
    forms: Sequence[str], places: Mapping[str, list[Span]], spans: Sequence[Span], weights: Mapping[Span, int]
) -> list[Span | None]:
    """The heaviest chain of (heading, place), both rising: a Fenwick tree over ends holds the best chain so far."""
    ends = sorted({end for _, end in spans})
    order = {span: at for at, span in enumerate(spans)}
    unit = (len(spans) + 1) * (len(forms) + 1)
    best: list[tuple[int, int]] = [(0, -1)] * (len(ends) + 1)
    chain: list[tuple[int, Span, int]] = []
    most = max(FEWEST_PLACES, min(MOST_PLACES, MOST_PAIRS // max(1, len(forms))))
    counts, seen = _counts(forms), dict.fromkeys(places, 0)
    for heading, form in enumerate(forms):
        if form not in places:
            continue
        steps = []
        for span in _considered(places[form], seen[form], counts[form], most):
            score, before = _best_until(best, bisect_right(ends, span[0]))
            steps.append((bisect_left(ends, span[1]) + 1, score + weights[span] * unit + order[span], len(chain)))
            chain.append((heading, span, before))
        seen[form] += 1
        for at, score, link in steps:
            _raise(best, at, (score, link))
    found: list[Span | None] = [None] * len(forms)
    _, link = _best_until(best, len(ends))
    while link >= 0:
        heading, span, link = chain[link]
        found[heading] = span
    return found


def _counts(forms: Sequence[str]) -> dict[str, int]:
    counts: dict[str, int] = defaultdict(int)
    for form in forms:
        counts[form] += 1
    return counts


def _considered(places: list[Span], number: int, count: int, most: int) -> list[Span]:
    """The places for heading `number` of `count` equal ones: all if they are few, else the ends of its range."""
    if len(places) <= most:
        return places
    spare = len(places) - count
    first, last = max(0, min(number, number + spare)), min(len(places) - 1, max(number, number + spare))
    if last - first < most:
        return places[first : last + 1]
    return places[first : first + most // 2] + places[last + 1 - most // 2 : last + 1]


def _best_until(best: list[tuple[int, int]], at: int) -> tuple[int, int]:
    found = (0, -1)
    while at:
        found = max(found, best[at])
        at &= at - 1
    return found


def _raise(best: list[tuple[int, int]], at: int, value: tuple[int, int]) -> None:
    while at < len(best):
        best[at] = max(best[at], value)
        at += at & -at
