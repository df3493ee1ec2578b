"""Topics in the markup of TREC, CLEF and other campaigns: XML by a parser of XML, and TREC's old `<top>` files.

Old files are not XML: they have no end tags, and several `<top>` side by side. Any other file must be XML, but may
have a bare `&` and the entities of HTML.
"""

import html
import re
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any
from xml.parsers import expat

from keystone.indexing.corpora.markup import split_markup
from keystone.indexing.corpora.tags import CDATA
from keystone.indexing.errors import UserError

RawTopic = tuple[int | str, Any, Any, str, str, Mapping[str, Any]]
"""An unchecked topic: line or other place, id, narrative, the names of these two in the file, and the JSON object."""

FIELD_LABELS = {"num": "Number", "title": "Topic", "desc": "Description", "narr": "Narrative"}
"""The fields of a topic that the readers take, in the order of the narrative, and the label of each."""

_FIELDS = {
    name: field
    for field, names in {
        "num": "num number identifier id qid",
        "title": "title query content",
        "desc": "desc description question",
        "narr": "narr narrative",
    }.items()
    for name in names.split()
}
"""The fields by the names of their elements."""
_ID_NAMES = frozenset(name for name, field in _FIELDS.items() if field == "num")
_SKIPPED = frozenset(
    "head dom smry con conc fac nat def time docid url querytime querytweettime orignum subtopics".split()
)
"""Other elements of a topic. Of any other tag in a `<top>` file, the reader skips the tag but keeps the text."""
_TOPICS = ("top", "topic", "query")
_ID_ATTRIBUTES = ("number", "num", "id", "qid")
_LANGUAGE = re.compile(r"[a-z]{2}-(?=title|desc|narr)")
_TOP = re.compile(r"<top[\s>]", re.IGNORECASE)
_TOPIC = re.compile(r"\s*<(?:topic|query)[\s>]", re.IGNORECASE)
_SEVERAL_ROOTS = expat.errors.codes[expat.errors.XML_ERROR_JUNK_AFTER_DOC_ELEMENT]
_REFERENCE = re.compile(r"&(?!(?:amp|lt|gt|quot|apos|#[0-9]{1,7}|#x[0-9a-f]{1,6});)([a-z0-9]{1,40};)?", re.IGNORECASE)


def read_marked_topics(path: Path, numbered: Sequence[tuple[int, str]]) -> Iterator[RawTopic]:
    """Yield the topics of a file that begins with a tag, from its lines. `UserError` with place for a bad one."""
    text = "\n".join(line.replace("\r", " ") for _, line in numbered)  # which the parser would count as an end of line
    try:
        yield from _parse_xml(path, numbered, text)
    except expat.ExpatError as error:
        if not _TOP.search(text):
            line = numbered[0][0] + error.lineno - 1
            raise UserError(f"{path}:{line}: expected topics in XML, found {expat.ErrorString(error.code)}") from error
        yield from _read_tops(path, numbered)


def _parse_xml(path: Path, numbered: Sequence[tuple[int, str]], text: str) -> list[RawTopic]:
    """Parse the topics of a file of XML, which may have several roots. `ExpatError` if it is not XML."""
    try:
        return _XmlTopics(path, numbered).read(text)
    except expat.ExpatError as error:
        bare = text.removeprefix("\ufeff")
        if error.code == _SEVERAL_ROOTS and _TOPIC.match(bare):
            return _parse_xml(path, numbered, f"<topics>{bare}</topics>")
        if CDATA in text or "<!ENTITY" in text:
            raise
        return _XmlTopics(path, numbered).read(_REFERENCE.sub(_resolve, text))


def _resolve(reference: re.Match[str]) -> str:
    """Turn an entity of HTML into a character, and an `&` that opens no entity into an entity of XML."""
    found = html.unescape(reference[0])
    return found if found != reference[0] else f"&amp;{reference[1] or ''}"


class _XmlTopics:
    """The topics of XML, whose fields are the children of a `<topic>`, a `<top>` or a `<query>`.

    The parser reads no other file, whatever the declarations name.
    """

    def __init__(self, path: Path, numbered: Sequence[tuple[int, str]]) -> None:
        self._path, self._lines, self._first = path, [line for _, line in numbered], numbered[0][0]
        self._parser = expat.ParserCreate("utf-8")
        self._parser.StartElementHandler = self._open
        self._parser.EndElementHandler = self._close
        self._parser.CharacterDataHandler = self._add
        self._parser.SkippedEntityHandler = self._add_entity
        self._found: list[RawTopic] = []
        self._inside: list[str] | None = None
        """The elements that are open, from the topic on; None outside of topics."""

    def read(self, text: str) -> list[RawTopic]:
        self._parser.Parse(text.removeprefix("\ufeff").lstrip(), True)
        return self._found

    def _open(self, tag: str, attributes: dict[str, str]) -> None:
        name = tag.lower()
        if self._inside is None:
            if name in _TOPICS:
                self._inside, self._start = [name], self._line()
                own = {key.lower(): value for key, value in attributes.items()}
                self._id = next((own[key] for key in _ID_ATTRIBUTES if key in own), None)
                self._fields: dict[str, str] = {}
                self._others: list[str] = []
                self._stray = 0
            return
        self._inside.append(name)
        if len(self._inside) == 2:
            field = _name_field(name)
            if field in self._fields:
                raise _report_repeated(self._path, self._line(), name, self._start)
            if field:
                self._fields[field] = ""

    def _close(self, _tag: str) -> None:
        if self._inside is None:
            return
        self._inside.pop()
        self._others.append(" ")
        if not self._inside:
            self._inside = None
            self._found.append(self._make())

    def _add(self, text: str) -> None:
        if self._inside is None:
            if text.strip():
                raise self._report_misplaced(self._line())
            return
        name = self._inside[1] if len(self._inside) > 1 else ""
        if field := _name_field(name):
            self._fields[field] += text
        elif name not in _SKIPPED:
            self._others.append(text)
            self._stray = self._stray or (0 if name or not text.strip() else self._line())

    def _add_entity(self, name: str, is_parameter: bool) -> None:
        """Add an entity that the parser skips, because a file that it does not read may declare it."""
        if not is_parameter:
            self._add(html.unescape(f"&{name};"))

    def _make(self) -> RawTopic:
        """Make the topic. If it has none of the fields of a narrative, all its texts are the narrative."""
        if self._id is not None:
            self._fields.setdefault("num", self._id)
        if self._fields.keys() <= _ID_NAMES:
            self._fields |= {"narr": text} if (text := "".join(self._others)).strip() else {}
        elif self._stray:
            raise self._report_misplaced(self._stray)
        return _join_fields(self._path, self._start, self._fields)

    def _report_misplaced(self, number: int) -> UserError:
        return _report_misplaced_text(self._path, number, self._lines[number - self._first])

    def _line(self) -> int:
        return self._first + self._parser.CurrentLineNumber - 1


def _name_field(name: str) -> str:
    """Return the name of a field, without a language before it (`EN-title`); empty for any other element."""
    bare = _LANGUAGE.sub("", name)
    return bare if bare in _FIELDS else ""


def _read_tops(path: Path, numbered: Sequence[tuple[int, str]]) -> Iterator[RawTopic]:
    """Read the topics of a `<top>` file. The next tag ends a field, and the next `<top>` ends a topic."""
    start, field = 0, ""
    fields: dict[str, str] = {}
    for number, line in chain(numbered, [(0, "<top>")]):
        for text, tag in split_markup(line + "\n"):
            if field:
                fields[field] += text
            elif text.strip():
                raise _report_misplaced_text(path, number, line)
            name = tag.removeprefix("/")
            known = _name_field(name) or (name if name in _SKIPPED else "")
            if name == "top":
                if start:
                    yield _join_fields(path, start, fields)
                elif tag != name:
                    raise _report_misplaced_text(path, number, line)
                start, field, fields = (number if tag == name else 0), "", {}
            elif known:
                if not start:
                    raise _report_misplaced_text(path, number, line)
                field = known if tag == name else ""
                if field in fields:
                    raise _report_repeated(path, number, name, start)
                fields |= {field: ""} if field else {}


def _report_misplaced_text(path: Path, number: int, line: str) -> UserError:
    return UserError(f"{path}:{number}: expected <top> or <topic> and its fields, found {reprlib.repr(line)}")


def _report_repeated(path: Path, number: int, name: str, start: int) -> UserError:
    return UserError(f"{path}:{number}: <{name}> occurs more than once in the topic of line {start}")


def _join_fields(path: Path, start: int, fields: Mapping[str, str]) -> RawTopic:
    parts: dict[str, list[str]] = {field: [] for field in FIELD_LABELS}
    for name, text in fields.items():
        if field := _FIELDS.get(name):
            unlabelled = re.sub(rf"\A\s*{FIELD_LABELS[field]}\s*:", "", text, flags=re.IGNORECASE)
            parts[field].append(" ".join(unlabelled.split()))
    if not parts["num"]:
        raise UserError(f"{path}:{start}: expected <num> in <top>, found {', '.join(fields) or 'nothing'}")
    topic_id = parts.pop("num")[0]
    narrative = "\n\n".join(filter(None, chain.from_iterable(parts.values())))
    return start, topic_id, narrative, "<num>", "<title>, <desc>, <narr>", {}
