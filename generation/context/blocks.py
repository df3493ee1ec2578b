"""The blocks of a document: paragraphs, lists, tables and pieces of code, with the headings that they stand under.

A block that is too long for its room is cut into its items, rows or paragraphs, and code at its blank lines. What is
still too long is cut at lines of code or at sentences. Only a sentence that is too long alone is cut at its blanks.
"""

import math
import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from keystone.generation.context.texts import count_tokens
from keystone.indexing.corpora.segments import split_sentences
from keystone.indexing.structures.blocks import lines, sentence_spans
from keystone.indexing.structures.markup import detect_format
from keystone.indexing.structures.sections import section_tree
from keystone.indexing.types import Document

GAP_MARK = "\n[...]\n"
"""The text between two stretches of a document."""
LONGEST_GAP = 100
"""The characters between two stretches that are shown as one, such as tags of HTML."""
HEAD_SHARE = 8
"""The head of a table is repeated if it has at most 1 / `HEAD_SHARE` of the room."""

_PART = re.compile(r"[ \t]*(?:([-*+\u2022\u00b7]\s|\(?(?:\d{1,3}|[a-z])[.)]\s|[|+])|>>>|\.\.\.|\$ )|(?: {4}|\t)\s*\S")
"""The beginning of an item of a list or a row of a table, whose mark is the group, or of a line of code."""
_ROWS, _CODE = ("|", "+"), " "
"""The marks of rows of a table, and what stands for a line of code."""
_ITEM_MARK = re.compile(r"[ \t]*(?:[-*+]|\d{1,9}[.)]|[*#:;]+)[ \t]*")
"""What stands before the text of an item in Markdown and in wikitext."""
_TABLE_HEAD = re.compile(r"(?:[ \t]*\+[-+]+\+[ \t]*\n)?(?:[ \t]*\|.*\n){1,4}?[ \t]*[|+](?=.*[-=])[-=:+| \t]+(?=\r?\n)")
"""The first rows of a table up to the line that parts them from the others, in Markdown or as a grid."""
_FENCE = re.compile(r"^[ \t]*(`{3,}(?=[^`\n]*$)|~{3,})(.*)$", re.MULTILINE)
_BLANK_LINE = re.compile(r"\n[ \t\r]*\n")


class Stretch(NamedTuple):
    """A stretch of a document's text, `text[start:end]`, and the headings above it, outermost first."""

    start: int
    end: int
    heading: str = ""
    head: str | None = None
    """For a piece of a block, the head of its table, or an empty text if there is none. `None` for a whole block."""

    @property
    def above(self) -> str:
        """What is shown above the stretch."""
        return "\n".join(filter(None, (self.heading, self.head)))


def count_stretch(text: str, stretch: Stretch) -> int:
    """Count the tokens of a stretch as it is shown, with what stands above it."""
    return count_tokens(f"{stretch.above}\n{text[stretch.start : stretch.end]}{GAP_MARK}")


def touches(first: Stretch, second: Stretch) -> bool:
    """Whether two stretches are shown as one: under the same heading, with little or nothing between them."""
    return first.heading == second.heading and second.start - first.end <= LONGEST_GAP


def list_blocks(document: Document, tokens: float = math.inf) -> list[Stretch]:
    """List the blocks of a document in order: paragraphs, and lists, tables and code as a whole.

    Lines without a blank line between them are one block. So are items, rows or lines of code that follow each other,
    and all that a fence holds. A block goes on after a colon. A block of more than `tokens` tokens is cut into pieces.
    """
    text = document.text
    tree, fences = section_tree(document, detect_format(document)), _Fences(text)
    blocks: list[list[Stretch]] = []  # each by its lines and paragraphs
    headings: dict[int | None, str] = {None: ""}
    for node in tree.nodes:
        heading = headings[node.parent]
        headings[node.id] = heading if node.parent is None else " > ".join(filter(None, (heading, node.label)))
        if node.kind != "content":
            continue
        part = Stretch(_include_mark(text, node.start), node.end, heading)
        goes_on = blocks and heading == blocks[-1][0].heading
        if goes_on and (fences.hold(part.start) or _belongs(text, _join(blocks[-1]), part.start)):
            blocks[-1].append(part)
        else:
            blocks.append([part])
    listed: list[Stretch] = []
    for parts in blocks:
        block = _join(parts)
        listed += [block] if count_stretch(text, block) <= tokens else _cut_block(text, parts, fences, tokens)
    return listed


def _join(parts: Sequence[Stretch]) -> Stretch:
    return parts[0]._replace(end=parts[-1].end)


class _Fences:
    """The pieces of code between lines of backticks or tildes."""

    def __init__(self, text: str) -> None:
        self._starts, self._ends, opened = list[int](), list[int](), None
        for line in _FENCE.finditer(text):
            if opened is None:
                opened = line
            elif line[1].startswith(opened[1]) and not line[2].strip():
                self._starts.append(opened.start(1))
                self._ends.append(line.end())
                opened = None

    def hold(self, place: int) -> bool:
        """Whether a place is within such a piece, and not at its beginning."""
        last = bisect_left(self._starts, place) - 1
        return last >= 0 and place < self._ends[last]


def _include_mark(text: str, start: int) -> int:
    """Find where an item begins whose text begins at `start`: at the line of its mark."""
    line = text.rfind("\n", 0, start) + 1
    return line if _ITEM_MARK.fullmatch(text, line, start) else start


def _match_part(text: str, start: int) -> re.Match[str] | None:
    """Match the beginning of an item, a row or a line of code at the beginning of the line of `start`."""
    return _PART.match(text, text.rfind("\n", 0, start) + 1, start + 8)


def _belongs(text: str, before: Stretch, start: int) -> bool:
    """Whether a line that begins at `start` goes on with the block before it."""
    last = max(text.rfind("\n", 0, before.end) + 1, before.start)
    both_parts = _match_part(text, start) and _PART.match(text, last, before.end)
    return bool(not _BLANK_LINE.search(text[before.end : start]) or both_parts or text[before.end - 1] == ":")


def _cut_block(text: str, parts: Sequence[Stretch], fences: _Fences, tokens: float) -> list[Stretch]:
    """Cut a block into pieces, of at most `tokens` tokens if its sentences allow it. A piece of a table has its head.

    `parts` are the lines and paragraphs of the block.
    """
    first, last = parts[0].start, parts[-1].end
    stops = {first + stop for _, stop in split_sentences(text[first:last])}
    found: list[Stretch] = []
    mark, is_grid, head, head_end = "", False, "", 0
    for part in parts:
        for start, end in _list_lines(text, part):
            begin = _match_part(text, start)
            before, mark = mark, (begin[1] or _CODE) if begin else ""
            if mark in _ROWS and before not in _ROWS:
                top = _TABLE_HEAD.match(text, text.rfind("\n", 0, start) + 1)
                head, head_end = (top[0], top.end() + len("\r\n")) if top else ("", 0)
                is_grid = mark == "+"
            gap = text[found[-1].end : start] if found else ""
            if not found or gap.strip() or _BLANK_LINE.search(gap):
                may_cut = True
            elif start <= head_end or fences.hold(start):
                may_cut = False
            elif mark in _ROWS:
                may_cut = "\n" in gap and mark == "|" and not (is_grid and before == "|")
            elif "\n" not in gap:
                may_cut = found[-1].end in stops
            else:
                may_cut = mark != _CODE if mark else start == part.start
            if may_cut:
                repeats = mark in _ROWS and start > head_end and count_tokens(head) * HEAD_SHARE <= tokens
                found.append(Stretch(start, end, part.heading, head if repeats else ""))
            else:
                found[-1] = found[-1]._replace(end=end)
    return [
        one
        for piece in found
        for one in ([piece] if count_stretch(text, piece) <= tokens else _cut_piece(text, piece, fences, tokens))
    ]


def _list_lines(text: str, stretch: Stretch) -> Iterator[tuple[int, int]]:
    """List the lines of a stretch that are not blank, as (start, end)."""
    for first, last in lines(text[stretch.start : stretch.end]):
        if line := text[stretch.start + first : stretch.start + last].rstrip():
            yield stretch.start + first, stretch.start + first + len(line)


def _cut_piece(text: str, piece: Stretch, fences: _Fences, tokens: float) -> Iterator[Stretch]:
    """Cut a piece of a block that is too long: code at its lines, all else at its sentences."""
    begin = _match_part(text, piece.start)
    is_code = fences.hold(piece.start + 1) or (begin is not None and begin[1] is None)
    sentences = ((piece.start + a, piece.start + b) for a, b in split_sentences(text[piece.start : piece.end]))
    for start, end in _list_lines(text, piece) if is_code else sentences:
        one = piece._replace(start=start, end=end)
        fits = count_stretch(text, one) <= tokens
        yield from [one] if fits else (one._replace(start=a, end=b) for a, b in sentence_spans(text, start, end))
