"""Section trees: a document's title, its headings as inner nodes, its paragraphs as content (RDR2, section 3.1).

MS MARCO V2.1 gives a document's headings without levels or places, often twice, and the text may begin with a table of
contents. So the first line that equals a heading is often the wrong one.
"""

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from keystone.indexing.corpora.segments import split_sentences
from keystone.indexing.structures.blocks import Block, content_blocks, lines, paragraphs, trim
from keystone.indexing.structures.markup import read_html, read_markdown, read_wikitext
from keystone.indexing.structures.tree import Node, Tree
from keystone.indexing.types import Document

Span = tuple[int, int]

LONGEST_HEADING_WORDS = 15
SHORTEST_PROSE = 40
"""The fewest characters of a sentence that is prose and not an item of a list."""

FOUND_WEIGHT, PROSE_WEIGHT = 10, 6
"""The worth of a heading that is found, and the additional worth of prose right below it."""

MOST_PAIRS, MOST_PLACES, FEWEST_PLACES = 200_000, 32, 4
"""Bounds of the work: pairs of heading and place in a document, and places that one heading considers."""

LONGEST_HEADING = 300


def normal_form(heading: str) -> str:
    """The form in which a heading equals its line; empty for more than 15 words or 300 characters."""
    if len(heading) > LONGEST_HEADING:
        return ""
    words = unicodedata.normalize("NFKC", heading).casefold().split()
    return " ".join(words).removesuffix("[edit]").rstrip(" :.\u00b6") if len(words) <= LONGEST_HEADING_WORDS else ""


def place_headings(text: str, headings: Sequence[str]) -> list[Span | None]:
    """The place (start, end) of each heading in the text, None for one that is not found.

    The places rise. No such alignment has a larger sum of weights; among equals, the last places count. A heading
    equals a line, a sentence or the last sentence of a line. The function runs in O((n + m) log m) for n headings and m
    lines. It considers at most 32 places for a heading. If there are very many headings, it considers at most 4.
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
    counts, seen = Counter(forms), dict.fromkeys(places, 0)
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


LONGEST_RUN = 3
"""Headings one right after the other that are read as section, sub-section and so on; longer runs begin as a menu."""

BACK_MATTER = frozenset(
    ("see also", "references", "external links", "further reading", "notes", "sources", "bibliography", "footnotes")
)
"""Titles of sections without content of their own. A title must equal one: "Energy sources" is a section."""

CONTENTS = frozenset(("contents", "table of contents"))

_NUMBER = re.compile(r"(\d{1,3}(?:\.\d{1,3})*)\.?\s")


def read_plain(document: Document) -> list[Block]:
    """The blocks of a document that lists its headings one a line, as MS MARCO V2.1 does (see `place_headings`).

    The list has no levels. They come from numbers ("2.1" below "2"). A heading right above another heading is its
    parent. A heading with text on both sides is a sibling of the one before it. The function takes the lines of a table
    of contents or a longer menu as content, and not as headings. It does the same with a line without text below it,
    the title, and the titles of back matter.
    """
    text = document.text
    names = [name for name in document.headings.split("\n") if normal_form(name)]
    dropped = BACK_MATTER | CONTENTS | {normal_form(document.title)}
    names = [name for name in names if normal_form(name) not in dropped]
    spans = [span for span in place_headings(text, names) if span is not None]
    later = Counter(normal_form(text[start:end]) for start, end in spans)
    blocks = _blocks_between(text, 0, spans[0][0] if spans else len(text))
    run: list[tuple[int, int]] = []
    level, levels = 1, dict[str, int]()
    in_contents = False
    for span, following in pairwise([*spans, (len(text), len(text))]):
        below = _blocks_between(text, span[1], following[0])
        form = normal_form(text[slice(*span)])
        later[form] -= 1
        in_contents = later[form] > 0 and (in_contents or not below)
        if in_contents:
            blocks += [*_lines(text, [*run, span]), *below]
            run = []
            continue
        run.append(span)
        if below:
            blocks += _lines(text, run[:-LONGEST_RUN])
            headings = _leveled(text, run[-LONGEST_RUN:], level, levels)
            level = headings[-1].level
            blocks += [*headings, *below]
            run = []
    return blocks + _lines(text, run)


FORMATS: dict[str, Callable[[Document], list[Block]]] = {
    "headings": read_plain,
    "markdown": lambda document: _without_back_matter(read_markdown(document.text)),
    "html": lambda document: _without_back_matter(read_html(document.text)),
    "wikitext": lambda document: _without_back_matter(read_wikitext(document.text)),
}
"""How the headings of a document are given: listed beside plain text, or marked up in the text."""


def section_tree(document: Document, format: str = "headings") -> Tree:
    """The section tree of a document; its root is the title. `KeyError` for an unknown format.

    Each heading has content below it. Marked-up sections of back matter are left out with all below them.
    """
    root = Node(0, None, "heading", 0, 0, 0, document.title)
    nodes = [root]
    path: list[tuple[Node, int]] = []
    for block in _without_empty(FORMATS[format](document)):
        rank = block.level if block.kind == "heading" else _CONTENT_RANK + block.level
        while path and path[-1][1] >= rank:
            path.pop()
        parent = path[-1][0] if path else root
        node = Node(len(nodes), parent.id, block.kind, block.start, block.end, block.level, block.label)
        nodes.append(node)
        path.append((node, rank))
    return Tree(document.id, tuple(nodes))


_CONTENT_RANK = 1 << 20
"""Content goes below every heading, and below content of a smaller depth within lists."""


def _blocks_between(text: str, start: int, end: int) -> list[Block]:
    return [block for span in paragraphs(text, start, end) for block in content_blocks(text, *span)]


def _lines(text: str, spans: Sequence[tuple[int, int]]) -> list[Block]:
    return [block for start, end in spans for block in content_blocks(text, start, end)]


def _leveled(text: str, run: Sequence[tuple[int, int]], last: int, levels: dict[str, int]) -> list[Block]:
    """The headings of a run, each one level below the one before it; `levels` gets the levels of their numbers.

    The first has the level that its number gives: that of the number before it, or one below that of its section. If
    there is no such number, a heading alone has the level `last`, and a run begins at level 1.
    """
    found: list[Block] = []
    for start, end in run:
        label = " ".join(text[start:end].split())
        number = match[1] if (match := _NUMBER.match(label)) else ""
        section, dot, place = number.rpartition(".")
        if found:
            level = found[-1].level + 1
        elif number and (before := f"{section}{dot}{int(place) - 1}") in levels:
            level = levels[before]
        else:
            level = levels[section] + 1 if section in levels else last if len(run) == 1 else 1
        if number:
            levels[number] = level
        found.append(Block("heading", start, end, level, label))
    return found


def _without_back_matter(blocks: Sequence[Block]) -> list[Block]:
    kept: list[Block] = []
    left_out: int | None = None
    for block in blocks:
        if block.kind == "heading" and (left_out is None or block.level <= left_out):
            left_out = block.level if normal_form(block.label) in BACK_MATTER else None
        if left_out is None:
            kept.append(block)
    return kept


def _without_empty(blocks: Sequence[Block]) -> list[Block]:
    """The blocks without headings that have no content before the next heading of the same or a higher level."""
    kept: list[Block] = []
    waiting: list[Block] = []
    for block in blocks:
        if block.kind == "heading":
            while waiting and waiting[-1].level >= block.level:
                waiting.pop()
            waiting.append(block)
        else:
            kept += [*waiting, block]
            waiting = []
    return kept
