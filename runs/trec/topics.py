"""Reader of topics from JSON, TSV, CSV, Parquet and the markup of TREC, from folders of BEIR and from ir_datasets.

JSON is objects in a row, an array or one object of topics, or the turns of conversations (CAsT, iKAT).

The name of a table and the first line of any other file decide its format. The reader skips nothing: if a line is no
topic, it raises `UserError` with file and line.
"""

import reprlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from keystone.indexing.corpora.folders import strip_compression
from keystone.indexing.corpora.tables import find_form, read_rows
from keystone.indexing.errors import UserError
from keystone.indexing.io.columns import Layout, choose_delimiter, name_columns, read_columns
from keystone.indexing.io.fields import find_field
from keystone.indexing.io.json_values import digest, list_inner, parse_json, parse_objects, read_whole_number
from keystone.indexing.io.reading import hash_file, read_json_lines, read_text_lines
from keystone.indexing.types import describe_id, has_lone_surrogate, is_id
from keystone.retrieval.types import Topic
from keystone.runs.track_rules import EXISTING, TRACKS, Track, find_given_answer, find_request
from keystone.runs.trec.collections import find_folder, find_queries, is_data_set, read_judged_ids, read_queries
from keystone.runs.trec.marked_topics import RawTopic, read_marked_topics

ID_KEYS = (
    *("id", "_id", "qid", "topic_id", "narrative_id", "request_id", "query_id"),
    *("number", "num", "question_id", "topic"),
)
NARRATIVE_KEYS = ("narrative", "problem_statement", "title", "text", "query", "question", "description")
"""The names of the id and of the narrative; `keystone.indexing.io.fields` has the rule by which they are found."""

TURN_KEYS = ("turn", "turns")
TURN_ID_KEYS = ("number", "turn_id")
UTTERANCE_KEYS = (
    *("manual_rewritten_utterance", "resolved_utterance", "automatic_rewritten_utterance"),
    *("raw_utterance", "utterance"),
)
"""What a user says in a turn; the forms that need no earlier turn go first."""

TRANSLATED_KEYS = ("topic_title", "topic_description", "topic_narrative")
"""The fields of a topic of NeuCLIR in one of its languages."""


def read_json_topics(path: Path, numbered: Iterable[tuple[int, str]]) -> Iterator[RawTopic]:
    """Yield the topics of a file that begins with `{` or `[`. `UserError` with the place of an object that is no topic.

    A file with an object on each line is read line by line, any other file as a whole.
    """
    lines = iter(numbered)
    first = next(lines)
    if isinstance(_parse(first[1]), dict):
        for number, record in read_json_lines(path, numbered=chain([first], lines)):
            yield from _read_object(path, number, record)
        return
    rest = list(lines)
    text = "\n".join([first[1], *(line for _, line in rest)]).removeprefix("\ufeff")
    whole = _parse(text)
    whole = parse_objects(text) if whole is None else whole
    if not isinstance(whole, dict | list):
        for number, record in read_json_lines(path, numbered=[first, *rest]):  # which names the line that is no object
            yield from _read_object(path, number, record)
        return
    for number, record in enumerate(whole if isinstance(whole, list) else [whole], 1):
        yield from _read_object(path, f"object {number}", record)


def make_raw_topic(path: Path, place: int | str, record: Mapping[str, Any]) -> RawTopic:
    """Make the topic of a record. `UserError` if it has no id or no narrative."""
    id_key, text_key = find_field(record, ID_KEYS), find_field(record, NARRATIVE_KEYS)
    if id_key is None or text_key is None:
        raise UserError(
            f"{name_place(path, place)}: expected an id ({', '.join(ID_KEYS)}) and a narrative "
            f"({', '.join(NARRATIVE_KEYS)}), found the keys {', '.join(record) or 'none'}"
        )
    if (request := find_request(record)) and id_key not in request[1]:
        parts = request[1]
        text = "\n\n".join(record[key].strip() for key in parts)
        return place, record[id_key], text, id_key, ", ".join(parts), record
    return place, record[id_key], record[text_key], id_key, text_key, record


def name_place(name: Path | str, place: int | str) -> str:
    """Name a place in a file for messages: a line, or the words for another place."""
    return f"{name}:{place}" if isinstance(place, int) else f"{name}: {place}"


def _parse(text: str) -> Any:
    try:
        return parse_json(text.removeprefix("\ufeff"))
    except ValueError:
        return None


def _read_object(path: Path, place: int | str, record: Any) -> Iterator[RawTopic]:
    if not isinstance(record, dict):
        raise UserError(f"{name_place(path, place)}: expected a JSON object, found {type(record).__name__}")
    known, text = find_field(record, ID_KEYS), find_field(record, NARRATIVE_KEYS)
    turns = next((record[key] for key in TURN_KEYS if isinstance(record.get(key), list)), None)
    if known and turns:
        yield from _read_turns(path, place, str(record[known]), turns)
    elif given := find_given_answer(record):
        yield from _read_sentences(path, place, *given, record)
    elif known and not text and isinstance(own := _choose_language(record.get("topics")), dict):
        parts = (own.get(key) for key in TRANSLATED_KEYS)
        joined = "\n\n".join(part.strip() for part in parts if isinstance(part, str) and part.strip())
        yield place, record[known], joined, known, ", ".join(TRANSLATED_KEYS), record
    elif not known and not text and record and (inner := list_inner(record, "narrative")):
        for number, one in inner:
            yield from _read_object(path, f"{place if isinstance(place, str) else f'line {place}'}, {number}", one)
    else:
        yield make_raw_topic(path, place, record)


def _read_turns(path: Path, place: int | str, topic_id: str, turns: list[Any]) -> Iterator[RawTopic]:
    """Yield each turn of the user as a topic with the id `CONVERSATION_TURN`, as in the judgments of CAsT and iKAT."""
    for number, turn in enumerate(turns, 1):
        where = f"{place if isinstance(place, str) else f'line {place}'}, turn {number}"
        if not isinstance(turn, dict):
            raise UserError(f"{name_place(path, where)}: expected a JSON object, found {type(turn).__name__}")
        if turn.get("participant") == "System":
            continue
        key, text = find_field(turn, TURN_ID_KEYS), find_field(turn, UTTERANCE_KEYS)
        if key is None or text is None:
            raise UserError(
                f"{name_place(path, where)}: expected a number ({', '.join(TURN_ID_KEYS)}) and an utterance "
                f"({', '.join(UTTERANCE_KEYS)}), found the keys {', '.join(turn) or 'none'}"
            )
        yield where, f"{topic_id}_{turn[key]}", turn[text], key, text, turn


def _read_sentences(
    path: Path, place: int | str, track: Track, answer_id: str, record: Mapping[str, Any]
) -> Iterator[RawTopic]:
    """Yield each sentence of a given answer as a topic with the id `ANSWER-NUMBER`, from 1."""
    described = {**record, **record["metadata"]} if isinstance(record.get("metadata"), dict) else record
    for number, one in enumerate(record[track.sentences], 1):
        where = f"{place if isinstance(place, str) else f'line {place}'}, sentence {number}"
        if not isinstance(one, dict) or not isinstance(one.get("text"), str):
            raise UserError(f"{name_place(path, where)}: expected an object with a text, found {type(one).__name__}")
        name = f"{answer_id}-{number}"
        known = {"id": name, "narrative": one["text"], "question": described.get("question")}
        known |= {track.topic_key: answer_id, EXISTING: one.get(EXISTING)}
        yield where, name, one["text"], track.topic_key, track.sentences, known


def _choose_language(topics: Any) -> Any:
    """Choose the English version of a topic in several languages, or else the first one."""
    found = [one for one in topics if isinstance(one, dict)] if isinstance(topics, list) else []
    return next((one for one in found if one.get("lang") == "eng"), found[0] if found else None)


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


def read_topic_narratives(path: Path) -> dict[str, str]:
    """Read the narratives of a file of topics, by the topics' ids."""
    return {topic.id: topic.narrative for topic in read_topics(path)}


def names_collection(path: Path) -> bool:
    """Whether a path names a folder of BEIR or a data set of ir_datasets, and no file of topics."""
    return is_data_set(path) or find_folder(path) is not None


def hash_topics(path: Path, topics: Iterable[Topic]) -> str:
    """Hash a file of topics by SHA-256, or for a collection, the ids and narratives read from it."""
    return digest([[topic.id, topic.narrative] for topic in topics]) if names_collection(path) else hash_file(path)


def stream_topics(path: Path, live: bool = False) -> Iterator[Topic]:
    """Yield the topics of a file (.gz and .zst, too) in its order. An id that is a JSON integer becomes text.

    The file is read once, so it may be a pipe. Each topic of JSONL and TSV is yielded as soon as it is read. The topics
    of a folder of BEIR are those that its split judges. `UserError` if the split judges none of its queries. An object
    or a row of a table has one of `ID_KEYS` and one of `NARRATIVE_KEYS`; the first that has a value counts. In TSV and
    CSV, a row has an id and a narrative; a first row of such names is a header. The narrative of a `<top>` or `<topic>`
    joins its title, description and narrative by blank lines. `UserError` names the place of a bad topic.

    If `live` is true, the topics of standard input come as they are written, and can be read once.
    """
    if folder := find_folder(path):
        judged, queries = read_judged_ids(*folder), find_queries(folder[0])
        found = [topic for topic in chain(*map(read_topics, queries)) if judged is None or topic.id in judged]
        if not found:
            raise UserError(f"{path}: none of the queries of {', '.join(map(str, queries))} is judged")
        yield from found
        return
    yield from check_topics(str(path), _read_raw_topics(path, live))


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
        if not isinstance(existing := record.get(EXISTING), list | None):
            raise UserError(f"{where}: {EXISTING}: expected a list, found {reprlib.repr(existing)}")
        if topic_id in known:
            raise UserError(f"{where}: topic {topic_id!r} occurs more than once")
        known.add(topic_id)
        yield Topic(topic_id, narrative, where, record)
    if not known:
        raise UserError(f"{name}: holds no topic")


def _read_raw_topics(path: Path, live: bool) -> Iterator[RawTopic]:
    if is_data_set(path):
        for place, topic_id, narrative, fields in read_queries(path):
            yield f"query {place}", topic_id, narrative, "query_id", "text", fields
        return
    if form := find_form(path):
        for row, _, record in read_rows(path, form, (*ID_KEYS, *NARRATIVE_KEYS, *_list_request_keys()), NARRATIVE_KEYS):
            yield make_raw_topic(path, f"row {row}", record)
        return
    numbered = read_text_lines(path, limit=TOPICS_LIMIT_BYTES, live=live)
    for number, line in numbered:
        if line.strip():
            yield from _choose_reader(path, number, line)(path, chain([(number, line)], numbered))


def _list_request_keys() -> list[str]:
    """List the keys of the tracks' topics in several parts, and of their limits."""
    keys = [(*(track.request.parts if track.request else ()), track.topic_limit) for track in TRACKS.values()]
    return [key for own in keys for key in own if key]


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
            yield make_raw_topic(path, number, record)
