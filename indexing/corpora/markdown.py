"""The headings of Markdown, by a parser of CommonMark."""

import re
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

LONGEST_PARSED = 1000
"""The characters of a heading whose emphasis, links and code are read; a longer one stays as it is."""

_FRONT_MATTER = re.compile(r"---[ \t]*\r?\n.*?^(?:---|\.\.\.)[ \t]*$", re.DOTALL | re.MULTILINE)
"""Settings before the text, as generators of sites have them; CommonMark would read them as a heading."""


def read_headings(text: str) -> list[str]:
    """The headings of a Markdown text as plain text, without those that are empty."""
    if settings := _FRONT_MATTER.match(text):
        text = text[settings.end() :]
    tokens = _parser(inline=False).parse(text)
    found = (tokens[at + 1].content for at, token in enumerate(tokens) if token.type == "heading_open")
    return [heading for heading in map(_read_inline, found) if heading]


def _read_inline(source: str) -> str:
    if len(source) > LONGEST_PARSED:
        return " ".join(source.split())
    inline = _parser(inline=True).parseInline(source)[0].children or []
    return " ".join("".join(map(_show, inline)).split())


def _show(token: "Token") -> str:
    return " " if token.type in ("softbreak", "hardbreak") else "" if token.type == "html_inline" else token.content


@cache
def _parser(inline: bool) -> "MarkdownIt":
    """A parser; unless `inline`, it leaves the text of each block as it is, which is quick."""
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark")
    return parser if inline else parser.disable(["inline", "text_join"])
