"""Reader of topics from JSON, TSV, CSV, Parquet and the markup of TREC, from folders of BEIR and from ir_datasets.

The name of a table and the first line of any other file decide its format. The reader skips nothing: if a line is no
topic, it raises `UserError` with file and line.
"""

import reprlib
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path

from keystone.indexing.corpora.folders import strip_compression
from keystone.indexing.corpora.tables import find_form, read_rows
from keystone.indexing.errors import UserError
from keystone.indexing.io.columns import Layout, choose_delimiter, name_columns, read_columns
from keystone.indexing.io.json_values import digest, read_whole_number
from keystone.indexing.io.reading import hash_file, read_text_lines
from keystone.indexing.types import describe_id, has_lone_surrogate, is_id
from keystone.retrieval.types import Topic
from keystone.runs.trec.collections import find_folder, find_queries, is_data_set, read_judged_ids, read_queries
from keystone.runs.trec.json_topics import ID_KEYS, NARRATIVE_KEYS, make_raw_topic, name_place, read_json_topics
from keystone.runs.trec.marked_topics import RawTopic, read_marked_topics

BARE_COLUMNS = ("first column", "second column")
LAYOUT = Layout(ID_KEYS, NARRATIVE_KEYS, (), {2: BARE_COLUMNS}, "an id and a narrative")
"""The columns of topics. Without a header there are two."""

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

    An object or a row of a table has one of `ID_KEYS` and one of `NARRATIVE_KEYS`; the first that has a value counts.
    In TSV and CSV, a row has an id and a narrative; a first row of such names is a header. The narrative of a `<top>`
    or `<topic>` joins its title, description and narrative by blank lines. `UserError` names the place of a bad topic.
    """
    if folder := find_folder(path):
        judged, queries = read_judged_ids(*folder), find_queries(folder[0])
        found = [topic for topic in chain(*map(read_topics, queries)) if judged is None or topic.id in judged]
        if not found:
            raise UserError(f"{path}: none of the queries of {', '.join(map(str, queries))} is judged")
        yield from found
        return
    yield from check_topics(str(path), _read_raw_topics(path))


def check_topics(name: str, raw: Iterable[RawTopic]) -> Iterator[Topic]:
    """Check raw topics, each with its line in the file of this name. `UserError` names the line of a bad topic."""
    known = set[str]()
    for number, topic_id, narrative, id_name, text_name, record in raw:
        where = name_place(name, number)
        whole = None if isinstance(topic_id, str) else read_whole_number(topic_id)
        topic_id = topic_id if whole is None else str(whole)
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
            yield f"query {place}", topic_id, narrative, "query_id", "text", fields
        return
    if form := find_form(path):
        yield from _read_table(path, form)
        return
    numbered = read_text_lines(path, limit=TOPICS_LIMIT_BYTES)
    for number, line in numbered:
        if line.strip():
            yield from _choose_reader(path, number, line)(path, chain([(number, line)], numbered))


def _choose_reader(path: Path, number: int, line: str) -> Callable[[Path, NumberedLines], Iterator[RawTopic]]:
    match line.strip()[:1]:
        case "{" | "[":
            return read_json_topics
        case "<":
            return lambda path, numbered: read_marked_topics(path, list(numbered))
    by = choose_delimiter(line)
    if by == "\t" or name_columns(line.split(by), LAYOUT) or strip_compression(path).endswith(".csv"):
        return _read_columns
    raise UserError(
        f"{path}:{number}: not a topic: expected a JSON object, <top>, <topic>, or an id, a tab and a narrative, "
        f"found {reprlib.repr(line)}"
    )


def _read_columns(path: Path, numbered: NumberedLines) -> Iterator[RawTopic]:
    for number, record in read_columns(path, numbered, LAYOUT):
        if all(key in record for key in BARE_COLUMNS):
            yield number, record[BARE_COLUMNS[0]], record[BARE_COLUMNS[1]], *BARE_COLUMNS, {}
        else:
            place, name, text, id_key, text_key, _ = make_raw_topic(path, number, record)
            yield place, name, text, id_key, text_key, {}


def _read_table(path: Path, form: str) -> Iterator[RawTopic]:
    for row, _, record in read_rows(path, form, (*ID_KEYS, *NARRATIVE_KEYS), NARRATIVE_KEYS):
        yield make_raw_topic(path, f"row {row}", record)
