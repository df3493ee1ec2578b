"""Text, Markdown and HTML files: each is one document, and its file name is the id."""

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

from keystone.indexing.corpora.markup import read_html
from keystone.indexing.errors import BadRecord, Report, stop
from keystone.indexing.io.reading import LONGEST_LINE_BYTES, read_byte_lines
from keystone.indexing.types import Document

SUFFIXES = (".txt", ".md", ".markdown", ".html", ".htm")

_MARKDOWN_HEADING = re.compile(r"^#{1,6} +(\S.*)$", re.MULTILINE)
_CLOSING_HASHES = re.compile(r"\s#+\s*$")


def read(file: Path, name: str, report: Report = stop) -> Iterator[Document]:
    """The document of a UTF-8 file. Its id is `name`; title and headings come from the Markdown or HTML.

    The function reports a file that is not UTF-8, cannot be read, or is longer than `LONGEST_LINE_BYTES`.
    """
    try:
        yield _make_document(b"".join(line for _, line in read_byte_lines(file, limit=LONGEST_LINE_BYTES)), file, name)
    except BadRecord as error:
        report(error)


def _make_document(raw: bytes, file: Path, name: str) -> Document:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadRecord(f"{file}: not UTF-8: {error.reason} at byte {error.start}", "not UTF-8") from error
    bare = PurePosixPath(unquote(name))
    match bare.suffix.lower():
        case ".html" | ".htm":
            title, headings, text = read_html(text)
        case ".md" | ".markdown":
            headings = [_CLOSING_HASHES.sub("", found).strip() for found in _MARKDOWN_HEADING.findall(text)]
            title = headings[0] if headings else ""
        case _:
            title, headings = "", []
    return Document(name, text, title or bare.stem, headings="\n".join(headings), place=str(file))
