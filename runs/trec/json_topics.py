"""Topics in JSON: objects in a row, an array or one object of topics, and turns of conversations (CAsT, iKAT)."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from keystone.indexing.errors import UserError
from keystone.indexing.io.fields import find_field
from keystone.indexing.io.json_values import list_inner, parse_json, parse_objects
from keystone.indexing.io.reading import read_json_lines
from keystone.runs.track_rules import EXISTING, Track, find_given_answer, find_request
from keystone.runs.trec.marked_topics import RawTopic

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
    """The topics of a file that begins with `{` or `[`. `UserError` with the place of an object that is no topic.

    A file of an object a line is read line by line, any other one as a whole.
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
        for number, record in read_json_lines(path, numbered=[first, *rest]):  # which names the line that is none
            yield from _read_object(path, number, record)
        return
    for number, record in enumerate(whole if isinstance(whole, list) else [whole], 1):
        yield from _read_object(path, f"object {number}", record)


def make_raw_topic(path: Path, place: int | str, record: Mapping[str, Any]) -> RawTopic:
    """The topic of a record, by its names. `UserError` if it has no id or no narrative."""
    id_key, text_key = find_field(record, ID_KEYS), find_field(record, NARRATIVE_KEYS)
    if id_key is None or text_key is None:
        raise UserError(
            f"{name_place(path, place)}: expected an id ({', '.join(ID_KEYS)}) and a narrative "
            f"({', '.join(NARRATIVE_KEYS)}), found the keys {', '.join(record) or 'none'}"
        )
    if request := find_request(record):
        parts = request[1]
        text = "\n\n".join(record[key].strip() for key in parts)
        return place, record[id_key], text, id_key, ", ".join(parts), record
    return place, record[id_key], record[text_key], id_key, text_key, record


def name_place(name: Path | str, place: int | str) -> str:
    """A place in a file for messages: a line, or the words for another place."""
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
    """Each turn of the user as a topic with the id `CONVERSATION_TURN`, as in the judgments of CAsT and iKAT."""
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
    """Each sentence of a given answer as a topic with the id `ANSWER-NUMBER`, from 1."""
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
    """The English one of the same topic in several languages; without it the first one."""
    found = [one for one in topics if isinstance(one, dict)] if isinstance(topics, list) else []
    return next((one for one in found if one.get("lang") == "eng"), found[0] if found else None)
