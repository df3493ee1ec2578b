"""TREC SGML: files of `<DOC>` records, as newswire and web collections of TREC are published.

A record has an id in `<DOCNO>` (or as `<DOC id="...">`), its title in `<HEADLINE>`, `<TITLE>`, `<HEAD>`, `<HL>`,
`<TTL>` or `<TI>`, and its text in `<TEXT>`, `<LP>` or `<LEADPARA>`, each as often as it likes; a record without
these has all its text but headers and scripts. Tags are left out, entities replaced; upper and lower case are one.
A record is read as UTF-8, and as Latin-1 where it is not UTF-8: most of these collections have no other.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from indexing.corpora.markup import BLOCKS, markup, tidy
from indexing.errors import BadRecord, Report, stop
from indexing.io.reading import LONGEST_LINE_BYTES, read_byte_lines
from indexing.types import Document

ROLES = {
    **dict.fromkeys(("docno",), "id"),
    **dict.fromkeys(("headline", "title", "head", "hl", "ttl", "ti"), "title"),
    **dict.fromkeys(("text", "lp", "leadpara"), "text"),
    **dict.fromkeys(("docid", "docoldno", "dochdr", "date", "script", "style"), "hidden"),
}
"""What becomes of an element's text; the innermost of these elements decides."""

_DOC = re.compile(rb"<(/?)doc(\s[^<>]*+)?>", re.IGNORECASE)
_ID = re.compile(r"""\sid\s*=\s*["']?([^\s"'>]+)""", re.IGNORECASE)


def read(file: Path, _name: str = "", report: Report = stop) -> Iterator[Document]:
    """One document a `<DOC>`; a record without an end or without an id is reported."""
    for number, raw in _records(file, report):
        document = _document(raw, f"{file}:{number}")
        if document.id:
            yield document
        else:
            report(BadRecord(f"{file}:{number}: expected an id in <DOCNO>, found none", "no id"))


def _records(file: Path, report: Report) -> Iterator[tuple[int, bytes]]:
    """Each `<DOC>` up to its end tag, with the number of the line in which it begins."""
    start, parts, size, found = 0, [b""], 0, False
    for number, line in read_byte_lines(file, report):
        at = 0
        for tag in _DOC.finditer(line):
            found = True
            if start and tag[1]:
                yield start, b"".join([*parts, line[at : tag.start()]])
            elif start or tag[1]:
                report(_unpaired(f"{file}:{start or number}", "</DOC>" if start else "<DOC>"))
            start, parts, size = (0, [], 0) if tag[1] else (number, [tag[0]], 0)
            at = tag.end()
        if start:
            parts.append(line[at:])
            size += len(line)
            if size > LONGEST_LINE_BYTES:
                report(BadRecord(f"{file}:{start}: expected a <DOC> of at most {LONGEST_LINE_BYTES} bytes", "too long"))
                start = 0
    if start:
        report(_unpaired(f"{file}:{start}", "</DOC>"))
    if not found:
        report(BadRecord(f"{file}: expected TREC documents, found no <DOC>", "no <DOC>"))


def _unpaired(where: str, missing: str) -> BadRecord:
    return BadRecord(f"{where}: found no {missing} to this one", "unpaired <DOC>")


def _document(raw: bytes, where: str) -> Document:
    try:
        record = raw.decode("utf-8")
    except UnicodeDecodeError:
        record = raw.decode("latin-1")
    opening, _, record = record.partition(">")
    found: dict[str, list[str]] = {role: [] for role in ("id", "title", "text", "hidden", "rest")}
    inside: list[str] = []
    for text, tag in markup(record):
        parts = found[ROLES[inside[-1]] if inside else "rest"]
        name = tag.removeprefix("/")
        parts += [text, "\n" if name in BLOCKS else " "]
        if name not in ROLES:
            continue
        if name in inside:
            del inside[inside.index(name) :]
        if tag == name:
            inside.append(name)
    attribute = _ID.search(opening)
    name = " ".join("".join(found["id"]).split()) or (attribute[1] if attribute else "")
    text = tidy("".join(found["text"])) or tidy("".join(found["rest"]))
    return Document(name, text, " ".join("".join(found["title"]).split()), place=where)
