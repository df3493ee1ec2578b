"""Text, Markdown and HTML files: each is one document, and its file name is the id."""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

from keystone.indexing.corpora.markdown import read_headings
from keystone.indexing.corpora.markup import read_html
from keystone.indexing.errors import BadRecord, Report, stop
from keystone.indexing.io.reading import LONGEST_LINE_BYTES, read_byte_lines
from keystone.indexing.types import Document

SUFFIXES = (".txt", ".md", ".markdown", ".html", ".htm", ".xhtml")


def read(file: Path, name: str, report: Report = stop, main: bool = True) -> Iterator[Document]:
    """The document of a UTF-8 file. Its id is `name`; title and headings come from the Markdown or HTML.

    If `main`, the text of HTML is that of its main part, and a page that only leads to another one is reported. The
    function also reports a file that is not UTF-8, cannot be read, or is longer than `LONGEST_LINE_BYTES`.
    """
    try:
        raw = b"".join(line for _, line in read_byte_lines(file, limit=LONGEST_LINE_BYTES))
        yield _make_document(raw, file, name, main)
    except BadRecord as error:
        report(error)


def _make_document(raw: bytes, file: Path, name: str, main: bool) -> Document:
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadRecord(f"{file}: not UTF-8: {error.reason} at byte {error.start}", "not UTF-8") from error
    bare = PurePosixPath(unquote(name))
    match bare.suffix.lower():
        case ".html" | ".htm" | ".xhtml":
            page = read_html(text, main)
            if page.is_stub:
                raise BadRecord(f"{file}: a page that only leads to another one", "redirect")
            title, headings, text = page.title, page.headings, page.text
        case ".md" | ".markdown":
            headings = read_headings(text)
            title = headings[0] if headings else ""
        case _:
            title, headings = "", []
    return Document(name, text, title or bare.stem, headings="\n".join(headings), place=str(file))
