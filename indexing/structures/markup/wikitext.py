"""The blocks of wikitext: `== headings ==`, paragraphs, nested list items; tables, templates, comments are left out."""

import re

from keystone.indexing.structures.blocks import Block, content_blocks, lines, trim

DEEPEST_HEADING = 6

COMMENT, COMMENT_END = "<!--", "-->"

_CLOSES = {"{{": "}}", "{|": "|}"}
_TOKENS = re.compile(r"\{\{|\{\||\}\}|\|\}|<!--")
_ITEM = re.compile(r"[*#:;]+")


def read_wikitext(text: str) -> list[Block]:
    """The headings and the content of a wikitext: a block for each line, list items at the depth of their marks.

    A template or table that begins a line, and a comment that begins a line, are no content up to their end.
    """
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
