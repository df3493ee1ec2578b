"""Answers whose sentences are grounded: the documents that support and contradict each sentence, beside those given.

They are written, judged and repaired here. Source: the guidelines of BioGen 2025, task A, and its validator.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from keystone.indexing.errors import UserError
from keystone.indexing.io.json_values import try_json
from keystone.retrieval.types import Topic
from keystone.runs.track_rules import CONTRADICTED, EXISTING, SUPPORTED, KeyContent, Track, find_given_answer
from keystone.runs.tracks.answer_files import Author, get_metadata, is_integer
from keystone.runs.tracks.check_answers import check_metadata, list_sentences, read_id
from keystone.runs.tracks.fix import fix_ids, fix_objects
from keystone.runs.tracks.violations import (
    Lines,
    Repair,
    Violation,
    make_error,
    make_warning,
    parse_object,
    put_on_line,
    read_lines,
    shorten_value,
    tell_expected,
)
from keystone.runs.wording import plural


class Grounds(NamedTuple):
    """The ids of documents that support a sentence, and of those that contradict it, best first."""

    supporting: Sequence[str]
    contradicting: Sequence[str]


def make_grounded_records(
    topics: Sequence[Topic], grounds: Mapping[str, Grounds], track: Track, author: Author
) -> list[dict[str, Any]]:
    """Make the objects of the file, one for each answer. The topics are the sentences of the answers, in order."""
    found: dict[str, dict[str, Any]] = {}
    for topic in topics:
        answer_id, existing = str(topic.record.get(track.topic_key, topic.id)), topic.record.get(EXISTING)
        values: dict[KeyContent, str] = {"team": author.team_id, "run": author.run_id, "topic": answer_id}
        metadata = {key.name: values[key.holds] for key in track.keys if key.holds in values}
        if isinstance(question := topic.record.get("question"), str):
            metadata["question"] = question
        described = metadata if track.metadata is None else {track.metadata: metadata}
        record = found.setdefault(answer_id, {**described, track.sentences: []})
        own = grounds[topic.id]
        record[track.sentences].append(
            {
                "text": topic.narrative,
                EXISTING: existing,
                SUPPORTED: list(own.supporting[: track.cited]),
                CONTRADICTED: list(own.contradicting[: track.cited]),
            }
        )
    return list(found.values())


def read_grounded(path: Path) -> dict[str, list[tuple[str, set[str], Grounds]]]:
    """Read the sentences of each answer of a valid file, by the answer's id: text, existing ids and new ones.

    The file is JSONL or a JSON array. `UserError` for another one.
    """
    lines = read_lines(path)
    whole = try_json("\n".join(line for _, line in lines))
    records = whole if isinstance(whole, list) else [parse_object(line) for _, line in lines if line.strip()]
    found: dict[str, list[tuple[str, set[str], Grounds]]] = {}
    for number, record in enumerate(records, 1):
        try:
            if (given := find_given_answer(record)) is None:
                raise KeyError("no grounded answer")
            track, answer_id = given
            found[answer_id] = [_read_sentence(one) for one in record[track.sentences]]
        except (KeyError, TypeError, AttributeError) as error:
            expected = f"metadata.qa_id and the sentences of an answer, with {SUPPORTED} and {CONTRADICTED}"
            raise UserError(f"{path}: object {number}: expected {expected}") from error
        except ValueError as error:
            raise UserError(f"{path}: object {number}: {error}") from error
    return found


def _read_sentence(one: Mapping[str, Any]) -> tuple[str, set[str], Grounds]:
    existing = set(_read_ids(EXISTING, one.get(EXISTING) or []))
    return one["text"], existing, Grounds(*(_read_ids(key, one[key]) for key in (SUPPORTED, CONTRADICTED)))


def _read_ids(key: str, value: Any) -> list[str]:
    if not isinstance(value, list):
        raise ValueError(tell_expected(key, "a list of ids", value))
    return list(map(str, value))


def check_grounded(content: Lines, track: Track, topics: Mapping[str, str]) -> Iterator[Violation]:
    """Find the violations of a file, by line. `topics` are the sentences by their ids, `ANSWER-NUMBER`."""
    wanted = dict.fromkeys(name.rpartition("-")[0] for name in topics)
    seen, runs = dict[str, int](), dict[str, int]()
    for number, line in content:
        if not line.strip():
            continue
        record = parse_object(line)
        if record is None:
            yield make_error("not JSON", f"expected a JSON object, found {shorten_value(line)}", number)
            continue
        metadata = get_metadata(record, track)
        metadata = metadata if isinstance(metadata, dict) else {}
        yield from put_on_line(number, check_metadata(metadata, track, "", {}))
        answer_id = read_id(metadata.get(track.topic_key))
        if answer_id and answer_id in seen:
            message = f"line {seen[answer_id]} answers {answer_id}, too: expected one object for each answer"
            yield make_error("repeated answer", f"{track.topic_key}: {message}", number)
        elif answer_id and topics and answer_id not in wanted:
            yield make_error("unknown topic", f"{track.topic_key}: found {answer_id!r}, which no topic has", number)
        seen.setdefault(answer_id, number)
        if run_id := read_id(metadata.get(track.run_key)):
            runs.setdefault(run_id, number)
        sentences = record.get(track.sentences)
        if not isinstance(sentences, list) or not sentences:
            message = f"{track.sentences}: expected a list of sentences with at least one"
            yield make_error("no sentences", message, number)
            continue
        given = [text for name, text in topics.items() if name.rpartition("-")[0] == answer_id]
        if given and [one.get("text") for one in sentences if isinstance(one, dict)] != given:
            message = f"{track.sentences}: the sentences are not those of the topics, in order"
            yield make_error("other sentences", message, number)
        for place, one in enumerate(sentences):
            yield from put_on_line(number, _check_sentence(f"{track.sentences}[{place}]", one, track))
    if len(runs) > 1:
        yield make_error("several run ids", f"found the run ids {', '.join(runs)}, expected one")
    for name in wanted:
        if name not in seen:
            yield make_error("missing topic", f"the answer {name} is missing")
    if not seen:
        yield make_error("empty", "found no answer")


def _check_sentence(where: str, one: Any, track: Track) -> Iterator[Violation]:
    if not isinstance(one, dict) or not isinstance(one.get("text"), str) or not one["text"].strip():
        yield make_error("no text", tell_expected(where, "an object with a text", one))
        return
    lists = {}
    for key in (EXISTING, SUPPORTED, CONTRADICTED):
        value = one.get(key)
        if value is None and key == EXISTING:
            value = []
        if not isinstance(value, list):
            yield make_error("no list", tell_expected(f"{where}.{key}", "a list of ids", value))
            value = []
        lists[key] = [str(name) for name in value]
        if any(is_integer(name) for name in value):
            yield make_warning("id as a number", f"{where}.{key}: expected ids as text, found numbers")
    existing = set(lists[EXISTING])
    for key in (SUPPORTED, CONTRADICTED):
        names = lists[key]
        if len(set(names)) < len(names):
            yield make_error("repeated citation", f"{where}.{key}: expected each id once, found {names}")
        if held := [name for name in names if name in existing]:
            yield make_error("existing citation", f"{where}.{key}: found {held}, which {EXISTING} has already")
        if wrong := [name for name in names if not track.owns(name)]:
            expected = "ids of the corpus: PMIDs have at most 8 digits"
            yield make_error("id of another corpus", f"{where}.{key}: expected {expected}, found {wrong}")
        if track.cited is not None and len(names) > track.cited:
            message = f"{where}.{key}: expected at most {track.cited}, found {len(names)}"
            yield make_error("too many citations", message)
    if both := sorted(set(lists[SUPPORTED]) & set(lists[CONTRADICTED])):
        yield make_error("supports and contradicts", f"{where}: expected each id in one list, found {both} in both")


def fix_grounded(content: Lines, track: Track, _topics: Mapping[str, str]) -> tuple[list[str], list[Repair]]:
    """Repair a file without changing its meaning; returns the new lines, and the repairs by line.

    Numbers become text, repeated ids and those that exist already are dropped, and so are those beyond the limit. An id
    in both lists stays, since nobody can know which was meant.
    """

    def repair(record: dict[str, Any]) -> list[str]:
        if not isinstance(record.get(track.sentences), list):
            return []
        metadata = get_metadata(record, track)
        done = fix_ids(metadata, track) if isinstance(metadata, dict) else []
        return done + [
            f"{track.sentences}[{place}].{message}"
            for place, one in enumerate(record[track.sentences])
            if isinstance(one, dict)
            for message in _fix_sentence(one, track)
        ]

    return fix_objects(content, repair)


def _fix_sentence(one: dict[str, Any], track: Track) -> Iterator[str]:
    """Repair the lists of a sentence in place, and tell each repair."""
    existing = list(map(str, one[EXISTING])) if isinstance(one.get(EXISTING), list) else []
    for key in (EXISTING, SUPPORTED, CONTRADICTED):
        value = one.get(key)
        if not isinstance(value, list):
            continue
        names = [str(name) if is_integer(name) else name for name in value]
        kept = list(dict.fromkeys(name for name in names if isinstance(name, str)))
        if key != EXISTING:
            kept = [name for name in kept if name not in existing][: track.cited]
        if kept != value and len(names) == sum(isinstance(name, str) for name in names):
            one[key] = kept
            yield f"{key}: {value} is now {kept}"


def describe_grounded(content: Lines, track: Track, _topics: Mapping[str, str]) -> str:
    """Describe how much a file holds: answers, sentences, and documents that support or contradict them."""
    records = [record for _, line in content if (record := parse_object(line)) is not None]
    sentences = [one for record in records for one in list_sentences(record, track)]
    counts = [
        sum(len(one[key]) for one in sentences if isinstance(one.get(key), list)) for key in (SUPPORTED, CONTRADICTED)
    ]
    parts = [plural(len(records), "answer"), plural(len(sentences), "sentence")]
    return ", ".join([*parts, f"{counts[0]} supporting", f"{counts[1]} contradicting citations"])
