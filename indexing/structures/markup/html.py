"""The blocks of HTML: `h1` to `h6`, paragraphs, nested list items; offsets are those of the source with its tags."""

import re
from dataclasses import dataclass, field
from html import unescape

from keystone.indexing.corpora.markup import BLOCK_ELEMENTS, HIDDEN_ELEMENTS
from keystone.indexing.corpora.tags import CDATA, CDATA_END, RAW_ELEMENTS, find_tags
from keystone.indexing.structures.blocks import Block, content_blocks

LONGEST_HEADING = 300
"""Characters of source; a longer heading was never closed and is content."""

_SPACE = re.compile(r"(?:\s|&nbsp;)*")
_UNSEEN = HIDDEN_ELEMENTS | {"title"}
_LISTS = frozenset(("ul", "ol", "dl"))
_HEADINGS = frozenset(("h1", "h2", "h3", "h4", "h5", "h6"))
_ENDS_HEADING = frozenset(("p", "li", "table", "section", "article", "pre", "blockquote")) | _LISTS


@dataclass(slots=True)
class _Reading:
    """The blocks so far; the open stretch of visible text; the open heading (level, visible parts); depth of lists."""

    source: str
    blocks: list[Block] = field(default_factory=list)
    parts: list[tuple[int, int]] = field(default_factory=list)
    heading: int = 0
    depth: int = 0

    def see(self, start: int, end: int) -> None:
        """Take in the text between two tags."""
        first = _end_of_space(self.source, start, end)
        if first < end:
            self.parts.append((first, first + len(self.source[first:end].rstrip())))

    def close(self) -> None:
        """End the open stretch: a heading, or content."""
        if self.parts:
            start, end = self.parts[0][0], self.parts[-1][1]
            if self.heading and end - start <= LONGEST_HEADING:
                words = unescape(" ".join(self.source[first:last] for first, last in self.parts))
                self.blocks.append(Block("heading", start, end, self.heading, " ".join(words.split())))
            else:
                self.blocks += content_blocks(self.source, start, end, self.depth)
        self.parts.clear()
        self.heading = 0


def read_html(source: str) -> list[Block]:
    """The headings and the visible content of an HTML source; a broken source is read as far as its tags go."""
    reading = _Reading(source)
    lowered = source.lower()
    last_ends = {name: lowered.rfind(f"</{name}") for name in _UNSEEN}
    at, unseen = 0, ""
    for tag in find_tags(source):
        if unseen:
            if tag.name == unseen and tag.closes:
                at, unseen = tag.end, ""
            continue
        reading.see(at, tag.start)
        at = tag.end
        if tag.name == "CDATA":
            reading.see(tag.start + len(CDATA), tag.end - len(CDATA_END))
        elif tag.name in _UNSEEN and not tag.closes:
            unseen = tag.name if last_ends[tag.name] >= at or tag.name in RAW_ELEMENTS else ""
        elif tag.name:
            _read_tag(reading, tag.name, tag.closes)
    if not unseen:
        reading.see(at, len(source))
    reading.close()
    return reading.blocks


def _read_tag(reading: _Reading, name: str, closes: bool) -> None:
    if name in _HEADINGS:
        reading.close()
        reading.heading = 0 if closes else int(name[1])
    elif name in _LISTS:
        reading.close()
        reading.depth = max(0, reading.depth - 1) if closes else reading.depth + 1
    elif name in BLOCK_ELEMENTS and (not reading.heading or (name in _ENDS_HEADING and not closes)):
        reading.close()


def _end_of_space(source: str, start: int, end: int) -> int:
    match = _SPACE.match(source, start, end)
    return match.end() if match else start
