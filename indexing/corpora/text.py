"""Text, Markdown and HTML files: each is one document, and its file name is the id."""

import codecs
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import unquote

from keystone.indexing.errors import BadRecord, Report, stop
from keystone.indexing.io.reading import LONGEST_LINE_BYTES, read_byte_lines
from keystone.indexing.types import Document

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

PAGES = (".html", ".htm", ".xhtml")
SUFFIXES = (".txt", ".md", ".markdown", *PAGES)

LONGEST_PARSED = 1000
"""The characters of a heading whose emphasis, links and code are read; a longer one stays as it is."""

_FRONT_MATTER = re.compile(r"---[ \t]*\r?\n(?=[ \t]*\S).*?^(?:---|\.\.\.)[ \t]*\r?$", re.DOTALL | re.MULTILINE)
"""Settings before the text, as generators of sites have them; CommonMark would read them as a heading.

A rule before a blank line does not begin such settings.
"""


def read(file: Path, name: str, report: Report = stop, main: bool = True) -> Iterator[Document]:
    """The document of a file. Its id is `name`; title and headings come from the Markdown or HTML.

    If `main`, the text of HTML is that of its main part, and a page that only leads to another one is reported. The
    function also reports a file that cannot be read, or is longer than `LONGEST_LINE_BYTES`. It does the same with one
    that is not UTF-8, unless it is a page in an encoding that it declares.
    """
    try:
        raw = b"".join(line for _, line in read_byte_lines(file, limit=LONGEST_LINE_BYTES))
        yield _make_document(raw, file, name, main)
    except BadRecord as error:
        report(error)


def _make_document(raw: bytes, file: Path, name: str, main: bool) -> Document:
    bare = PurePosixPath(unquote(name))
    suffix, encoding = bare.suffix.lower(), "utf-8"
    if suffix in PAGES:
        from keystone.indexing.corpora.markup import find_encoding, read_html  # its parser takes long to import

        encoding = find_encoding(raw)
    try:
        text = raw.removeprefix(codecs.BOM_UTF8).decode(encoding)
    except UnicodeDecodeError as error:
        message = f"{file}: not {error.encoding.upper()}: {error.reason} at byte {error.start}"
        raise BadRecord(message, "not UTF-8") from error
    title, headings = "", []
    if suffix in PAGES:
        page = read_html(text, main)
        if page.is_stub:
            raise BadRecord(f"{file}: a page that only leads to another one", "redirect")
        title, headings, text = page.title, page.headings, page.text
    elif suffix in (".md", ".markdown"):
        headings = read_headings(text)
        title = headings[0] if headings else ""
    return Document(name, text, title or bare.stem, headings="\n".join(headings), place=str(file))


def read_headings(text: str) -> list[str]:
    """The headings of a Markdown text, by a parser of CommonMark, as plain text; empty ones are left out."""
    tokens = _parser(inline=False).parse(text[find_front_matter_end(text) :])
    found = (tokens[at + 1].content for at, token in enumerate(tokens) if token.type == "heading_open")
    return [heading for heading in map(_read_inline, found) if heading]


def find_front_matter_end(text: str) -> int:
    """The end of the settings before a Markdown text; 0 if there are none."""
    settings = _FRONT_MATTER.match(text)
    return settings.end() if settings else 0


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
