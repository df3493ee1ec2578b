"""Reading topics: JSONL, TSV and TREC's `<top>` files, told apart by what the first line begins with.

Nothing is left out: a line that is no topic is a `UserError` with file and line.
"""

import re
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from indexing.corpora.markup import markup
from indexing.errors import UserError
from indexing.io.files import json_lines, lines
from indexing.types import is_id
from retrieval.types import Topic

ID_KEYS = ("id", "_id", "qid", "topic_id", "narrative_id")
NARRATIVE_KEYS = ("narrative", "title", "text", "query")

LABELS = {"num": "Number", "title": "Topic", "desc": "Description", "narr": "Narrative"}
"""The fields of a `<top>` that are read, in the order of the narrative, and the words that may stand before them."""

TOPICS_LIMIT_BYTES = 2**30
"""Bytes of a file of topics, which are all held in memory, when it is no longer compressed."""

UNREAD = ("head", "dom", "smry", "con", "fac", "nat", "def", "time")
"""The other fields that a `<top>` of TREC has had; any other tag is left out, its text is not."""

Found = tuple[int, Any, Any, str, str, Mapping[str, Any]]
"""A topic as it is read: line number, id, narrative, the names of these two in the file, and its object."""

Numbered = Iterable[tuple[int, str]]
"""The lines of a file with their numbers."""


def read_topics(path: Path) -> list[Topic]:
    """All topics of a file: see `arriving_topics`."""
    return list(arriving_topics(path))


def arriving_topics(path: Path) -> Iterator[Topic]:
    """The topics of a file (.gz, .zst too) in its order; ids are text, whatever JSON type they have.

    The file is read once, and each topic is given as soon as it has been read, so it may be a pipe.

    JSONL has one of `ID_KEYS` and one of `NARRATIVE_KEYS` in each object, the first of them counts. TSV has an id, a
    tab and the narrative; a first line of two such keys is a header. Of a `<top>`, the narrative is its title,
    description and narrative, those that there are, parted by blank lines.
    """
    known = set[str]()
    for number, topic_id, narrative, id_name, text_name, record in _found(path):
        where = f"{path}:{number}"
        topic_id = str(topic_id) if type(topic_id) is int else topic_id
        if not isinstance(topic_id, str) or not is_id(topic_id):
            raise UserError(f"{where}: {id_name}: expected an id without space, found {reprlib.repr(topic_id)}")
        if topic_id.startswith("#"):
            raise UserError(f"{where}: {id_name}: found {topic_id!r}; what begins with # is a comment in run files")
        if not isinstance(narrative, str) or not narrative.strip():
            raise UserError(f"{where}: {text_name}: expected a narrative, found {reprlib.repr(narrative)}")
        if topic_id in known:
            raise UserError(f"{where}: topic {topic_id!r} occurs more than once")
        known.add(topic_id)
        yield Topic(topic_id, narrative, where, record)
    if not known:
        raise UserError(f"{path}: holds no topic")


def _found(path: Path) -> Iterator[Found]:
    numbered = lines(path, limit=TOPICS_LIMIT_BYTES)
    for number, line in numbered:
        if line.strip():
            yield from _reader(path, number, line)(path, chain([(number, line)], numbered))


def _reader(path: Path, number: int, line: str) -> Callable[[Path, Numbered], Iterator[Found]]:
    match line.strip()[:1]:
        case "{" | "[":
            return _json_topics
        case "<":
            return _trec_topics
    if "\t" in line:
        return _tsv_topics
    raise UserError(
        f"{path}:{number}: not a topic: expected a JSON object, <top>, or an id, a tab and a narrative, "
        f"found {reprlib.repr(line)}"
    )


def _json_topics(path: Path, numbered: Numbered) -> Iterator[Found]:
    for number, record in json_lines(path, numbered=numbered):
        id_key = next((key for key in ID_KEYS if key in record), None)
        text_key = next((key for key in NARRATIVE_KEYS if key in record), None)
        if id_key is None or text_key is None:
            raise UserError(
                f"{path}:{number}: expected an id ({', '.join(ID_KEYS)}) and a narrative "
                f"({', '.join(NARRATIVE_KEYS)}), found the keys {', '.join(record) or 'none'}"
            )
        yield number, record[id_key], record[text_key], id_key, text_key, record


def _tsv_topics(path: Path, numbered: Numbered) -> Iterator[Found]:
    filled = ((number, line.split("\t")) for number, line in numbered if line.strip())
    for position, (number, columns) in enumerate(filled):
        if len(columns) != 2:
            raise UserError(f"{path}:{number}: expected 2 columns, an id and a narrative, found {len(columns)}")
        if position or columns[0] not in ID_KEYS or columns[1] not in NARRATIVE_KEYS:
            yield number, columns[0], columns[1], "first column", "second column", {}


def _trec_topics(path: Path, numbered: Numbered) -> Iterator[Found]:
    """The topics of a `<top>` file: a field ends at its end tag or at the next tag, a topic at the next `<top>`."""
    start, field = 0, ""
    fields: dict[str, str] = {}
    for number, line in chain(numbered, [(0, "<top>")]):
        for text, tag in markup(line + "\n"):
            if field:
                fields[field] += text
            elif text.strip():
                raise _misplaced(path, number, line)
            name = tag.removeprefix("/")
            if name == "top":
                if start:
                    yield _topic(path, start, fields)
                elif tag != name:
                    raise _misplaced(path, number, line)
                start, field, fields = (number if tag == name else 0), "", {}
            elif name in (*LABELS, *UNREAD):
                if not start:
                    raise _misplaced(path, number, line)
                field = name if tag == name else ""
                if field in fields:
                    raise UserError(f"{path}:{number}: <{field}> occurs more than once in the topic of line {start}")
                fields |= {field: ""} if field else {}


def _misplaced(path: Path, number: int, line: str) -> UserError:
    return UserError(f"{path}:{number}: expected <top> and its fields, found {reprlib.repr(line)}")


def _topic(path: Path, start: int, fields: dict[str, str]) -> Found:
    if "num" not in fields:
        raise UserError(f"{path}:{start}: expected <num> in <top>, found {', '.join(fields) or 'nothing'}")
    texts = {field: _without(label, fields.get(field, "")) for field, label in LABELS.items()}
    topic_id = texts.pop("num")
    return start, topic_id, "\n\n".join(filter(None, texts.values())), "<num>", "<title>, <desc>, <narr>", {}


def _without(label: str, text: str) -> str:
    return " ".join(re.sub(rf"\A\s*{label}\s*:", "", text, flags=re.IGNORECASE).split())
