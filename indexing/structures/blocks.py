"""Blocks: headings and stretches of text in the order of a document, from which section trees are built."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from keystone.indexing.corpora.segments import SHORT_LINE_CHARACTERS, split_sentences

LONGEST_PARAGRAPH = 1500
"""The most characters of a node of content; longer paragraphs are split at sentences, so no node is half a document."""

LONGEST_SENTENCE = 1000
"""The most characters of a sentence; longer stretches without an end of sentence are split at a blank."""

_LINE = re.compile(r"[^\n]*\n?")
_STOPS = (".", "!", "?", ":", ";", '"', "\u201d", ")", "]")


@dataclass(frozen=True, slots=True)
class Block:
    """A heading, or a stretch of text: `text[start:end]`.

    `level` is the level of a heading from 1 on, or the depth of text within lists: 0 outside. `label` is the text of a
    heading without its markup.
    """

    kind: Literal["heading", "content"]
    start: int
    end: int
    level: int = 0
    label: str = ""


def lines(text: str) -> Iterator[tuple[int, int]]:
    """The lines of a text as (start, end), without their line breaks."""
    for match in _LINE.finditer(text):
        if match.end() > match.start():
            yield match.start(), match.end() - text.endswith("\n", match.start(), match.end())


def trim(text: str, start: int, end: int) -> tuple[int, int]:
    """The stretch without the space around it; empty at `start` if it holds nothing else."""
    piece = text[start:end]
    stripped = piece.strip()
    begin = start + len(piece) - len(piece.lstrip()) if stripped else start
    return begin, begin + len(stripped)


def paragraphs(text: str, start: int = 0, end: int | None = None) -> list[tuple[int, int]]:
    """The paragraphs of a stretch of plain text, trimmed, as (start, end) offsets into `text`.

    A paragraph ends at a blank line, and at each line break unless the line seems to be wrapped. A wrapped line ends
    with a comma; or it is long, and it ends no sentence or the next line begins with a small letter.
    """
    end = len(text) if end is None else end
    found: list[tuple[int, int]] = []
    length = 0
    for first, last in lines(text[start:end]):
        begin, stop = trim(text, start + first, start + last)
        if begin == stop:
            length = 0
            continue
        if length and _is_wrapped(text, found[-1][1], length, begin):
            found[-1] = (found[-1][0], stop)
        else:
            found.append((begin, stop))
        length = stop - begin
    return found


def _is_wrapped(text: str, end: int, length: int, following: int) -> bool:
    last = text[end - 1]
    if last == ",":
        return True
    return length > SHORT_LINE_CHARACTERS and (text[following].islower() or last not in _STOPS)


def sentence_spans(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """The sentences of a stretch of text, as (start, end) offsets into `text`, trimmed and of bounded length."""
    return [
        piece
        for first, last in split_sentences(text[start:end])
        for piece in _cut_at_blanks(text, start + first, start + last)
    ]


def content_blocks(text: str, start: int, end: int, level: int = 0) -> list[Block]:
    """One paragraph as blocks of at most `LONGEST_PARAGRAPH` characters."""
    start, end = trim(text, start, end)
    if end - start <= LONGEST_PARAGRAPH:
        return [Block("content", start, end, level)] if end > start else []
    spans: list[tuple[int, int]] = []
    for first, last in sentence_spans(text, start, end):
        if spans and last - spans[-1][0] <= LONGEST_PARAGRAPH:
            spans[-1] = (spans[-1][0], last)
        else:
            spans.append((first, last))
    return [Block("content", first, last, level) for first, last in spans]


def _cut_at_blanks(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    while end - start > LONGEST_SENTENCE:
        blank = text.rfind(" ", start + 1, start + LONGEST_SENTENCE)
        stop = blank if blank > 0 else start + LONGEST_SENTENCE
        begin, last = trim(text, start, stop)
        if last > begin:
            yield begin, last
        start = stop
    begin, last = trim(text, start, end)
    if last > begin:
        yield begin, last
