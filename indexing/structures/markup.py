"""The headings and the content of a source, as blocks: of HTML, of Markdown (CommonMark 0.31), and of wikitext.

Offsets are those of the source with its markup. Tables, templates and comments of wikitext are left out. The format of
a document's headings is guessed from its text: a markup counts only where it is plain.
"""

import re
from dataclasses import dataclass, field
from html import unescape

from keystone.indexing.corpora.markup import BLOCK_ELEMENTS, HEADING_ELEMENTS, HIDDEN_ELEMENTS
from keystone.indexing.corpora.tags import CDATA, CDATA_END, RAW_ELEMENTS, find_tags
from keystone.indexing.corpora.text import find_front_matter_end, read_headings
from keystone.indexing.structures.blocks import Block, content_blocks, lines, trim
from keystone.indexing.types import Document

DEEPEST_HEADING = 6

COMMENT, COMMENT_END = "<!--", "-->"
_COMMENT_ENDS = (COMMENT_END, "--!>")

_CLOSES = {"{{": "}}", "{|": "|}"}
_TOKENS = re.compile(r"\{\{|\{\||\}\}|\|\}|<!--")
_ITEM = re.compile(r"[*#:;]+")


def read_wikitext(text: str) -> list[Block]:
    """The blocks of a wikitext, one a line, list items at their depth; no templates, tables and comments."""
    blocks: list[Block] = []
    markup = _markup_ends(text)
    kept_from = 0
    for first, last in lines(text):
        start, end = trim(text, max(first, kept_from), last)
        while start in markup and start < end:
            kept_from = markup[start]
            start, end = trim(text, kept_from, last)
        if heading := _heading(text, start, end):
            blocks.append(heading)
        elif item := _ITEM.match(text, start, end):
            blocks += content_blocks(text, item.end(), end, len(item[0]))
        else:
            blocks += content_blocks(text, start, end)
    return blocks


def _heading(text: str, start: int, end: int) -> Block | None:
    line = text[start:end]
    level = min(len(line) - len(line.lstrip("=")), len(line) - len(line.rstrip("=")), DEEPEST_HEADING)
    first, last = trim(text, start + level, end - level)
    if not level or first >= last or not line.strip("="):
        return None
    return Block("heading", first, last, level, " ".join(text[first:last].split()))


def _markup_ends(text: str) -> dict[int, int]:
    """For the start of each template, table and comment that is closed, its end."""
    ends: dict[int, int] = {}
    open_tokens: list[tuple[str, int]] = []
    waited_for = dict.fromkeys(_CLOSES.values(), 0)
    at, last_comment_end = 0, text.rfind(COMMENT_END)
    while token := _TOKENS.search(text, at):
        at = token.end()
        if token[0] == COMMENT:
            if at <= last_comment_end:
                at = ends[token.start()] = text.index(COMMENT_END, at) + len(COMMENT_END)
        elif closing := _CLOSES.get(token[0]):
            open_tokens.append((closing, token.start()))
            waited_for[closing] += 1
        elif waited_for[token[0]]:
            found = False
            while not found:
                closing, start = open_tokens.pop()
                waited_for[closing] -= 1
                found = closing == token[0]
            ends[start] = at
    return ends


LONGEST_HEADING = 300
"""The most characters of source; a longer heading was never closed and is content."""

_SPACE = re.compile(r"(?:\s|&nbsp;)*")
_PAGE = re.compile(r"\A\s*<(?:!doctype html|html)[\s>]", re.IGNORECASE)
_UNSEEN = HIDDEN_ELEMENTS | {"title"}
_LISTS = frozenset(("ul", "ol", "dl"))
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
        space = _SPACE.match(self.source, start, end)
        if (first := space.end() if space else start) < end:
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
    """The headings and the visible content of an HTML source; a broken source is read as far as its tags go.

    A comment or a hidden element without an end hides the rest of a page, as in a browser. In a text that does not
    begin as a page it is content: prose about HTML names such tags.
    """
    reading = _Reading(source)
    lowered = source.lower()
    last_ends = {name: lowered.rfind(f"</{name}") for name in _UNSEEN}
    at, unseen = 0, ""
    is_page = bool(_PAGE.match(source))
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
            unseen = tag.name if last_ends[tag.name] >= at or (is_page and tag.name in RAW_ELEMENTS) else ""
        elif tag.name:
            _read_tag(reading, tag.name, tag.closes)
        elif not is_page and source.startswith(COMMENT, tag.start) and not source.endswith(_COMMENT_ENDS, 0, at):
            reading.see(tag.start, at)
    if not unseen:
        reading.see(at, len(source))
    reading.close()
    return reading.blocks


def _read_tag(reading: _Reading, name: str, closes: bool) -> None:
    if name in HEADING_ELEMENTS:
        reading.close()
        reading.heading = 0 if closes else int(name[1])
    elif name in _LISTS:
        reading.close()
        reading.depth = max(0, reading.depth - 1) if closes else reading.depth + 1
    elif name in BLOCK_ELEMENTS and (not reading.heading or (name in _ENDS_HEADING and not closes)):
        reading.close()


_WIKITEXT = re.compile(rf"^(={{2,{DEEPEST_HEADING}}})[ \t]*[^=\s][^\n]*\1[ \t]*$", re.MULTILINE)
_MARKDOWN = re.compile(r"\A\s*#{1,6}[ \t]+\S|^#{2,6}[ \t]+\S", re.MULTILINE)
_ATX_LINE = re.compile(r"^ {0,3}#{1,6}[ \t]+\S", re.MULTILINE)
_HTML = re.compile(rf"{_PAGE.pattern}|</(?:h[1-6]|p)>", re.IGNORECASE)


def detect_format(document: Document) -> str:
    """Find the format of a document, a name in `keystone.indexing.structures.sections.FORMATS`.

    A document that lists headings has the format `headings`, unless its text marks one of them as Markdown does. A text
    without plain markup has the format `headings`, too. Wikitext has a line such as `== History ==`. Markdown begins
    with a heading, or has one of level 2 to 6. HTML begins with its declaration, or closes a heading or a paragraph.
    """
    if document.headings.strip():
        return "markdown" if _marks_headings(document) else "headings"
    for format, sign in (("wikitext", _WIKITEXT), ("markdown", _MARKDOWN), ("html", _HTML)):
        if sign.search(document.text):
            return format
    return "headings"


def _marks_headings(document: Document) -> bool:
    """Whether a heading that the document lists is one of its text by a parser of Markdown, as in Markdown files."""
    text, listed = document.text, document.headings.split("\n")
    return bool(_ATX_LINE.search(text)) and not set(listed).isdisjoint(read_headings(text))


CODE_INDENT = 4
"""From this many columns of indentation on, a line is not a heading, fence or separator."""

_FENCE = re.compile(r"(`{3,}(?=[^`]*\Z)|~{3,})")
_MARKDOWN_ITEM = re.compile(r"(?:[-*+]|\d{1,9}[.)])(?=[ \t]|\Z)")
_ATX = re.compile(r"#{1,6}(?=[ \t]|\Z)")


@dataclass(slots=True)
class _MarkdownReading:
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
    """The headings and the content of a Markdown text. Settings before it, fenced code and comments are content."""
    begin = find_front_matter_end(text)
    reading = _MarkdownReading(text, content_blocks(text, 0, begin))
    until: re.Pattern[str] | None = None
    for first, last in lines(text):
        if first < begin:
            continue
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
            _read_markdown_line(reading, start, end, line, indent)
    reading.close()
    return reading.blocks


def _opening(line: str, indent: int) -> re.Pattern[str] | None:
    """If a line opens a fence or a comment, the form of the line that closes it."""
    if line.startswith("<!--"):
        return re.compile("-->")
    if indent < CODE_INDENT and (fence := _FENCE.match(line)):
        return re.compile(rf"\A{fence[1][0]}{{{min(len(fence[1]), 1000)},}}\Z")
    return None


def _read_markdown_line(reading: _MarkdownReading, start: int, end: int, line: str, indent: int) -> None:
    outside = indent < CODE_INDENT
    if outside and (marks := _ATX.match(line)):
        _add_markdown_heading(
            reading, len(marks[0]), *trim(reading.text, *_without_closing_marks(line, start, len(marks[0])))
        )
    elif outside and reading.open and not (reading.level or reading.is_code) and set(line) in ({"="}, {"-"}):
        opened, reading.open = reading.open, None
        _add_markdown_heading(reading, 1 if line[0] == "=" else 2, *opened)
    elif outside and _is_separator(line):
        reading.close()
        reading.indents.clear()
    elif (outside or reading.indents) and (item := _MARKDOWN_ITEM.match(line)):
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


def _add_markdown_heading(reading: _MarkdownReading, level: int, start: int, end: int) -> None:
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
