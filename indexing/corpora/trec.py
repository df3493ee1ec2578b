"""TREC SGML: files of `<DOC>` records, the form of TREC's newswire and web collections.

A record has its id in `<DOCNO>` or as `<DOC id="...">`. It has its title in `<HEADLINE>`, `<TITLE>`, `<HEAD>`, `<HL>`,
`<TTL>` or `<TI>`, and its text in `<TEXT>`, `<LP>` or `<LEADPARA>`. Each element can repeat, or be empty. If a record
has none of the elements for text, its text is all but headers and scripts. Tags may be in upper or lower case; they are
removed, and entities are replaced. If a record is a page of the web, which follows `<DOCHDR>` or begins with `<html>`,
it is read as HTML. A record is read as UTF-8, or else in the encoding that its page declares. If that does not fit, it
is read as Latin-1, which most of these collections use.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from keystone.indexing.errors import BadRecord, Report, stop
from keystone.indexing.io.reading import LONGEST_LINE_BYTES, read_byte_lines
from keystone.indexing.types import Document

ELEMENT_ROLES = {
    **dict.fromkeys(("docno",), "id"),
    **dict.fromkeys(("headline", "title", "head", "hl", "ttl", "ti"), "title"),
    **dict.fromkeys(("text", "lp", "leadpara"), "text"),
    **dict.fromkeys(("docid", "docoldno", "dochdr", "date", "script", "style"), "hidden"),
}
"""The use of the text within an element; the innermost of these elements decides."""

_DOC = re.compile(rb"<(/?)doc(\s[^<>]*+)?>", re.IGNORECASE)
_BEGINNING = re.compile(r"<(text|lp|leadpara)[\s>]|(<html[\s>]|<!doctype\s+html)|</dochdr\s*>", re.IGNORECASE)
"""Where a record shows whether it is a page: at an element for text, at the beginning of HTML, or after its header."""
_PAGE = re.compile(rb"</dochdr\s*>|(?=<html[\s>])", re.IGNORECASE)
"""The place before a page, which may declare its encoding."""
_ID = re.compile(r"""\sid\s*=\s*["']?([^\s"'>]+)""", re.IGNORECASE)


def read(file: Path, _name: str = "", report: Report = stop) -> Iterator[Document]:
    """The documents of a file, one for each `<DOC>`. A record without an end or an id is reported and skipped."""
    for number, raw in _read_records(file, report):
        document = _make_document(raw, f"{file}:{number}")
        if document.id:
            yield document
        else:
            report(BadRecord(f"{file}:{number}: expected an id in <DOCNO>, found none", "no id"))


def _read_records(file: Path, report: Report) -> Iterator[tuple[int, bytes]]:
    """Each `<DOC>` up to its end tag, with the number of the line in which it begins."""
    start, parts, size, found = 0, [b""], 0, False
    for number, line in read_byte_lines(file, report):
        at = 0
        for tag in _DOC.finditer(line):
            found = True
            if start and tag[1]:
                yield start, b"".join([*parts, line[at : tag.start()]])
            elif start or tag[1]:
                report(_unpaired_error(f"{file}:{start or number}", "</DOC>" if start else "<DOC>"))
            start, parts, size = (0, [], 0) if tag[1] else (number, [tag[0]], 0)
            at = tag.end()
        if start:
            parts.append(line[at:])
            size += len(line)
            if size > LONGEST_LINE_BYTES:
                report(BadRecord(f"{file}:{start}: expected a <DOC> of at most {LONGEST_LINE_BYTES} bytes", "too long"))
                start = 0
    if start:
        report(_unpaired_error(f"{file}:{start}", "</DOC>"))
    if not found:
        report(BadRecord(f"{file}: expected TREC documents, found no <DOC>", "no <DOC>"))


def _unpaired_error(where: str, missing: str) -> BadRecord:
    return BadRecord(f"{where}: found no {missing} to this one", "unpaired <DOC>")


def _make_document(raw: bytes, where: str) -> Document:
    from keystone.indexing.corpora.markup import find_encoding, read_html, tidy_lines  # which take long to import

    before = _PAGE.search(raw)
    try:
        record = raw.decode(find_encoding(raw, before.end()) if before else "utf-8")
    except UnicodeDecodeError:
        record = raw.decode("latin-1")
    opening, _, record = record.partition(">")
    beginning = _BEGINNING.search(record)
    is_page = beginning is not None and not beginning[1]
    found = _read_elements(record[: beginning.end()] if beginning and is_page else record)
    attribute = _ID.search(opening)
    name = " ".join("".join(found["id"]).split()) or (attribute[1] if attribute else "")
    if beginning and is_page:
        page = read_html(record[beginning.start() :] if beginning[2] else record[beginning.end() :])
        return Document(name, page.text, page.title, headings="\n".join(page.headings), place=where)
    text = tidy_lines("".join(found["text"] or found["rest"]))
    return Document(name, text, " ".join("".join(found["title"]).split()), place=where)


def _read_elements(record: str) -> dict[str, list[str]]:
    from keystone.indexing.corpora.markup import BLOCK_ELEMENTS, split_markup

    found: dict[str, list[str]] = {role: [] for role in ("id", "title", "text", "hidden", "rest")}
    inside: list[str] = []
    for text, tag in split_markup(record):
        parts = found[ELEMENT_ROLES[inside[-1]] if inside else "rest"]
        name = tag.removeprefix("/")
        parts += [text, "\n" if name in BLOCK_ELEMENTS else " "]
        if name not in ELEMENT_ROLES:
            continue
        if name in inside:
            del inside[inside.index(name) :]
        if tag == name:
            inside.append(name)
    return found
