"""Reader of topics from JSONL, TSV and the markup of TREC, from folders of BEIR and from data sets of ir_datasets.

The beginning of a file's first line decides its format. The reader skips nothing: if a line is no topic, it raises
`UserError` with file and line.
"""

import re
import reprlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path

from keystone.indexing.errors import UserError
from keystone.indexing.io.json_values import digest
from keystone.indexing.io.reading import hash_file, read_json_lines, read_text_lines
from keystone.indexing.types import describe_id, has_lone_surrogate, is_id
from keystone.retrieval.types import Topic
from keystone.runs.trec.collections.beir import find_folder, find_queries, read_judged_ids
from keystone.runs.trec.collections.ir_datasets import is_data_set, read_queries
from keystone.runs.trec.marked_topics import RawTopic, read_marked_topics

ID_KEYS = ("id", "_id", "qid", "topic_id", "narrative_id", "request_id", "query_id", "topic")
NARRATIVE_KEYS = ("narrative", "problem_statement", "title", "text", "query")

TOPICS_LIMIT_BYTES = 2**30
"""The most bytes of a topics file after decompression. All topics are held in memory."""

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

    The file is read once, so it may be a pipe. Each topic of JSONL and TSV is yielded as soon as it is read. The topics
    of a folder of BEIR are those that its split judges. `UserError` if the split judges none of its queries.

    In JSONL, each object has one of `ID_KEYS` and one of `NARRATIVE_KEYS`; the first of them counts. In TSV, each
    line has an id, a tab and the narrative; a first line of such a key and a word is a header. The narrative of a
    `<top>` or `<topic>` joins its title, description and narrative by blank lines. `UserError` names file and line of
    a bad topic.
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
            raise UserError(f"{where}: {id_name}: expected {describe_id(topic_id)}, found {reprlib.repr(topic_id)}")
        if topic_id.startswith("#"):
            reason = "expected no # at its beginning, which opens a comment in run files"
            raise UserError(f"{where}: {id_name}: found {topic_id!r}; {reason}")
        if not isinstance(narrative, str) or not narrative.strip():
            raise UserError(f"{where}: {text_name}: expected a narrative, found {reprlib.repr(narrative)}")
        if has_lone_surrogate(narrative):
            raise UserError(f"{where}: {text_name}: found half of a surrogate pair, expected Unicode text")
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
            return lambda path, numbered: read_marked_topics(path, list(numbered))
    if "\t" in line:
        return _read_tsv_topics
    raise UserError(
        f"{path}:{number}: not a topic: expected a JSON object, <top>, <topic>, or an id, a tab and a narrative, "
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
    quoted = False
    for position, (number, columns) in enumerate(_split_rows(path, iter(numbered))):
        quoted = quoted if position else all(map(_is_quoted, columns))
        name, text = (_drop_quotes(value, quoted or _is_quoted(columns[0])) for value in columns)
        if position or not _is_header(name, text):
            yield number, name, text, "first column", "second column", {}


def _split_rows(path: Path, numbered: Iterator[tuple[int, str]]) -> Iterator[tuple[int, list[str]]]:
    """The two columns of each row. A text in the quotes of CSV may hold tabs, and go on in lines without a tab."""
    ahead: tuple[int, str] | None = None
    while entry := ahead or next(numbered, None):
        (number, row), ahead = entry, None
        lines = 1
        while _is_open(row) and (ahead := next(numbered, None)) and "\t" not in ahead[1]:
            row, lines, ahead = f"{row}\n{ahead[1]}", lines + 1, None
        if not row.strip():
            continue
        columns = row.split("\t", 1) if _is_quoted(row.partition("\t")[2]) else row.split("\t")
        if len(columns) != 2 or (lines > 1 and _is_open(row)):
            place, size = (number, len(columns)) if len(columns) != 2 else (number + 1, 1)
            raise UserError(f"{path}:{place}: expected 2 columns, an id and a narrative, found {size}")
        yield number, columns


def _is_open(row: str) -> bool:
    """Whether the second column begins with a quote of CSV that does not end in this row."""
    text = row.partition("\t")[2]
    return text.startswith('"') and text.count('"') % 2 == 1


def _is_quoted(value: str) -> bool:
    return len(value) > 1 and value[0] == value[-1] == '"' and '"' not in value[1:-1].replace('""', "")


def _drop_quotes(value: str, quoted: bool) -> str:
    """The text within the quotes of CSV. Quotes that CSV does not need belong to the text, unless `quoted`."""
    if _is_quoted(value) and (quoted or any(special in value[1:-1] for special in ('""', "\t", "\n"))):
        return value[1:-1].replace('""', '"')
    return value


def _is_header(name: str, text: str) -> bool:
    if re.sub(r"[\W_]", "", name.lower()) in _HEADER_IDS:
        return len(text.split()) == 1
    return text.lower() in NARRATIVE_KEYS and name.isalpha()


_HEADER_IDS = frozenset(key.replace("_", "") for key in ID_KEYS)
