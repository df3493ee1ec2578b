"""The blocks of Markdown: ATX and setext headings, paragraphs, nested list items, fenced code (CommonMark 0.31)."""

import re
from dataclasses import dataclass, field

from keystone.indexing.structures.blocks import Block, content_blocks, lines, trim

DEEPEST_HEADING = 6
CODE_INDENT = 4
"""Columns of indentation from which a line is no heading, fence or separator."""

_FENCE = re.compile(r"(`{3,}(?=[^`]*\Z)|~{3,})")
_ITEM = re.compile(r"(?:[-*+]|\d{1,9}[.)])(?=[ \t]|\Z)")
_ATX = re.compile(r"#{1,6}(?=[ \t]|\Z)")


@dataclass(slots=True)
class _Reading:
    """The blocks so far, the open paragraph or item (its span and depth), and the indents of the open lists."""

    text: str
    blocks: list[Block] = field(default_factory=list)
    open: tuple[int, int] | None = None
    level: int = 0
    is_code: bool = False
    indents: list[int] = field(default_factory=list)

    def close(self) -> None:
        if self.open:
            self.blocks += content_blocks(self.text, *self.open, level=self.level)
        self.open, self.is_code = None, False

    def extend(self, start: int, end: int) -> None:
        self.open = (self.open[0] if self.open else start, end)


def read_markdown(text: str) -> list[Block]:
    """The headings and the content of a Markdown text. Fenced code and comments are content, whatever they hold."""
    reading = _Reading(text)
    until: re.Pattern[str] | None = None
    for first, last in lines(text):
        start, end = trim(text, first, last)
        line, indent = text[start:end], len(text[first:start].expandtabs(CODE_INDENT))
        if until:
            reading.extend(start, end)
            if until.search(line):
                reading.close()
                until = None
        elif not line:
            reading.close()
        elif until := _opening(line, indent):
            reading.close()
            reading.extend(start, end)
            until = None if line.startswith("<!--") and "-->" in line else until
        else:
            _read_line(reading, start, end, line, indent)
    reading.close()
    return reading.blocks


def _opening(line: str, indent: int) -> re.Pattern[str] | None:
    """If a line opens a fence or a comment, the form of the line that closes it."""
    if line.startswith("<!--"):
        return re.compile("-->")
    if indent < CODE_INDENT and (fence := _FENCE.match(line)):
        return re.compile(rf"\A{fence[1][0]}{{{min(len(fence[1]), 1000)},}}\Z")
    return None


def _read_line(reading: _Reading, start: int, end: int, line: str, indent: int) -> None:
    outside = indent < CODE_INDENT
    if outside and (marks := _ATX.match(line)):
        _add_heading(reading, len(marks[0]), *trim(reading.text, *_without_closing_marks(line, start, len(marks[0]))))
    elif outside and reading.open and not (reading.level or reading.is_code) and set(line) in ({"="}, {"-"}):
        opened, reading.open = reading.open, None
        _add_heading(reading, 1 if line[0] == "=" else 2, *opened)
    elif outside and _is_separator(line):
        reading.close()
        reading.indents.clear()
    elif (outside or reading.indents) and (item := _ITEM.match(line)):
        reading.close()
        while reading.indents and reading.indents[-1] > indent:
            reading.indents.pop()
        if not reading.indents or indent >= reading.indents[-1] + 2:
            reading.indents.append(indent)
        reading.level = len(reading.indents)
        reading.extend(*trim(reading.text, start + item.end(), end))
    else:
        if outside and reading.is_code:
            reading.close()
        if not reading.open:
            if not indent:
                reading.indents.clear()
            reading.level = len(reading.indents)
            reading.is_code = not outside and not reading.indents
        reading.extend(start, end)


def _add_heading(reading: _Reading, level: int, start: int, end: int) -> None:
    reading.close()
    reading.indents.clear()
    reading.level = 0
    if start < end:
        reading.blocks.append(Block("heading", start, end, level, " ".join(reading.text[start:end].split())))


def _without_closing_marks(line: str, start: int, marks: int) -> tuple[int, int]:
    """The stretch of an ATX heading after its marks and before its closing marks, which stand after a blank."""
    body = line[marks:]
    bare = body.rstrip("#")
    kept = bare if not bare or bare[-1] in " \t" else body
    return start + marks, start + marks + len(kept)


def _is_separator(line: str) -> bool:
    marks = "".join(line.split())
    return len(marks) >= 3 and set(marks) in ({"-"}, {"*"}, {"_"})
