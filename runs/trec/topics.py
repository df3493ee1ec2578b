"""Reader of topics from JSONL, TSV and TREC's `<top>` files, from folders of BEIR and from data sets of ir_datasets.

The beginning of a file's first line decides its format. The reader skips nothing: if a line is no topic, it raises
`UserError` with file and line.
"""

import re
import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from keystone.indexing.corpora.markup import split_markup
from keystone.indexing.errors import UserError
from keystone.indexing.io.json_values import digest
from keystone.indexing.io.reading import hash_file, read_json_lines, read_text_lines
from keystone.indexing.types import is_id
from keystone.retrieval.types import Topic
from keystone.runs.trec.collections.beir import find_folder, find_queries, read_judged_ids
from keystone.runs.trec.collections.ir_datasets import is_data_set, read_queries

ID_KEYS = ("id", "_id", "qid", "topic_id", "narrative_id", "request_id")
NARRATIVE_KEYS = ("narrative", "problem_statement", "title", "text", "query")

FIELD_LABELS = {"num": "Number", "title": "Topic", "desc": "Description", "narr": "Narrative"}
"""The fields of a `<top>` that the reader takes, in the order of the narrative, and the label of each."""

TOPICS_LIMIT_BYTES = 2**30
"""The most bytes of a topics file after decompression. All topics are held in memory."""

SKIPPED_FIELDS = ("head", "dom", "smry", "con", "fac", "nat", "def", "time")
"""Other fields of a `<top>`, which the reader skips. Of any other tag it skips the tag but keeps the text."""

RawTopic = tuple[int, Any, Any, str, str, Mapping[str, Any]]
"""An unchecked topic: line number, id, narrative, the names of these two in the file, and the JSON object."""

NumberedLines = Iterable[tuple[int, str]]
"""The lines of a file with their numbers, from 1."""


def read_topics(path: Path) -> list[Topic]:
    """Read all topics of a file, a folder of BEIR or a data set, as `stream_topics` does."""
    return list(stream_topics(path))


def names_collection(path: Path) -> bool:
    """Whether a path names a folder of BEIR or a data set of ir_datasets, and no file of topics."""
    return is_data_set(path) or find_folder(path) is not None


def hash_topics(path: Path, topics: Iterable[Topic]) -> str:
    """The SHA-256 of a file of topics. For a collection it is that of the ids and narratives read from it."""
    return digest([[topic.id, topic.narrative] for topic in topics]) if names_collection(path) else hash_file(path)


def stream_topics(path: Path) -> Iterator[Topic]:
    """Yield the topics of a file (.gz and .zst, too) in its order. An id that is a JSON integer becomes text.

    The file is read once, and each topic is yielded as soon as it is read. So the file may be a pipe. The topics of a
    folder of BEIR are those that its split judges. `UserError` if the split judges none of its queries.

    In JSONL, each object has one of `ID_KEYS` and one of `NARRATIVE_KEYS`; the first of them counts. In TSV, each
    line has an id, a tab and the narrative; a first line of two such keys is a header. The narrative of a `<top>`
    joins its title, description and narrative by blank lines. `UserError` names file and line of a bad topic.
    """
    if folder := find_folder(path):
        judged, queries = read_judged_ids(*folder), find_queries(folder[0])
        found = [topic for topic in stream_topics(queries) if judged is None or topic.id in judged]
        if not found:
            raise UserError(f"{path}: none of the queries of {queries} is judged")
        yield from found
        return
    yield from check_topics(str(path), _read_raw_topics(path))


def check_topics(name: str, raw: Iterable[RawTopic]) -> Iterator[Topic]:
    """Check raw topics, each with its line in the file of this name. `UserError` names the line of a bad topic."""
    known = set[str]()
    for number, topic_id, narrative, id_name, text_name, record in raw:
        where = f"{name}: query {number}" if is_data_set(Path(name)) else f"{name}:{number}"
        topic_id = str(topic_id) if type(topic_id) is int else topic_id
        if not isinstance(topic_id, str) or not is_id(topic_id):
            raise UserError(f"{where}: {id_name}: expected an id without space, found {reprlib.repr(topic_id)}")
        if topic_id.startswith("#"):
            reason = "expected no # at its beginning, which opens a comment in run files"
            raise UserError(f"{where}: {id_name}: found {topic_id!r}; {reason}")
        if not isinstance(narrative, str) or not narrative.strip():
            raise UserError(f"{where}: {text_name}: expected a narrative, found {reprlib.repr(narrative)}")
        if topic_id in known:
            raise UserError(f"{where}: topic {topic_id!r} occurs more than once")
        known.add(topic_id)
        yield Topic(topic_id, narrative, where, record)
    if not known:
        raise UserError(f"{name}: holds no topic")


def _read_raw_topics(path: Path) -> Iterator[RawTopic]:
    if is_data_set(path):
        for place, topic_id, narrative, fields in read_queries(path):
            yield place, topic_id, narrative, "query_id", "text", fields
        return
    numbered = read_text_lines(path, limit=TOPICS_LIMIT_BYTES)
    for number, line in numbered:
        if line.strip():
            yield from _choose_reader(path, number, line)(path, chain([(number, line)], numbered))


def _choose_reader(path: Path, number: int, line: str) -> Callable[[Path, NumberedLines], Iterator[RawTopic]]:
    match line.strip()[:1]:
        case "{" | "[":
            return _read_json_topics
        case "<":
            return _read_trec_topics
    if "\t" in line:
        return _read_tsv_topics
    raise UserError(
        f"{path}:{number}: not a topic: expected a JSON object, <top>, or an id, a tab and a narrative, "
        f"found {reprlib.repr(line)}"
    )


def _read_json_topics(path: Path, numbered: NumberedLines) -> Iterator[RawTopic]:
    for number, record in read_json_lines(path, numbered=numbered):
        id_key = next((key for key in ID_KEYS if key in record), None)
        text_key = next((key for key in NARRATIVE_KEYS if key in record), None)
        if id_key is None or text_key is None:
            raise UserError(
                f"{path}:{number}: expected an id ({', '.join(ID_KEYS)}) and a narrative "
                f"({', '.join(NARRATIVE_KEYS)}), found the keys {', '.join(record) or 'none'}"
            )
        yield number, record[id_key], record[text_key], id_key, text_key, record


def _read_tsv_topics(path: Path, numbered: NumberedLines) -> Iterator[RawTopic]:
    filled = ((number, line.split("\t")) for number, line in numbered if line.strip())
    for position, (number, columns) in enumerate(filled):
        if len(columns) != 2:
            raise UserError(f"{path}:{number}: expected 2 columns, an id and a narrative, found {len(columns)}")
        if position or columns[0] not in ID_KEYS or columns[1] not in NARRATIVE_KEYS:
            yield number, columns[0], columns[1], "first column", "second column", {}


def _read_trec_topics(path: Path, numbered: NumberedLines) -> Iterator[RawTopic]:
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
            if name == "top":
                if start:
                    yield _join_fields(path, start, fields)
                elif tag != name:
                    raise _report_misplaced_text(path, number, line)
                start, field, fields = (number if tag == name else 0), "", {}
            elif name in (*FIELD_LABELS, *SKIPPED_FIELDS):
                if not start:
                    raise _report_misplaced_text(path, number, line)
                field = name if tag == name else ""
                if field in fields:
                    raise UserError(f"{path}:{number}: <{field}> occurs more than once in the topic of line {start}")
                fields |= {field: ""} if field else {}


def _report_misplaced_text(path: Path, number: int, line: str) -> UserError:
    return UserError(f"{path}:{number}: expected <top> and its fields, found {reprlib.repr(line)}")


def _join_fields(path: Path, start: int, fields: dict[str, str]) -> RawTopic:
    if "num" not in fields:
        raise UserError(f"{path}:{start}: expected <num> in <top>, found {', '.join(fields) or 'nothing'}")
    texts = {field: _drop_label(label, fields.get(field, "")) for field, label in FIELD_LABELS.items()}
    topic_id = texts.pop("num")
    return start, topic_id, "\n\n".join(filter(None, texts.values())), "<num>", "<title>, <desc>, <narr>", {}


def _drop_label(label: str, text: str) -> str:
    return " ".join(re.sub(rf"\A\s*{label}\s*:", "", text, flags=re.IGNORECASE).split())
