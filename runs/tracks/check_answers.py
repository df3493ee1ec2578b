"""Checks of an answer file: of each object, and of the whole file (one answer for each topic, one run id).

The module lists keys that no track asks for, but that the organisers' program reads: it refuses an answer with another
value there. Source: `autojudge_base.report` of autojudge-base 1.0.0. Any other key may have any value.
"""

import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ValidationError

from keystone.indexing.io.json_values import parse_json
from keystone.indexing.types import describe_id, is_id
from keystone.runs.track_rules import DEFAULT_TEAM, OPTIONS, TYPES, CitationForm, Key, KeyContent, Track
from keystone.runs.tracks.answer_files import (
    get_metadata,
    is_integer,
    list_cited_ids,
    list_references,
    map_citations,
)
from keystone.runs.tracks.check_run import check_ids
from keystone.runs.tracks.check_sentences import check_forms, check_sentences
from keystone.runs.tracks.violations import Lines, Violation, make_error, make_warning, parse_object, shorten_value
from keystone.runs.wording import plural

CONTEXT_CHARACTERS = 20
"""Characters that a message shows before and after the place where two narratives differ."""
ID_CONTENTS: tuple[KeyContent, ...] = ("team", "run", "topic")


def check_answers(content: Lines, track: Track, topics: Mapping[str, str]) -> Iterator[Violation]:
    """Find the violations of an answer file. `topics` maps topic ids to narratives."""
    run = ""
    answered: dict[str, int] = {}
    foreign: dict[str, int] = {}
    forms: dict[CitationForm, int] = {}
    default_team_lines: list[int] = []
    records = sentences = 0
    owned = False
    for number, line in content:
        if not line.strip():
            yield make_warning(number, "blank line", "blank line")
            continue
        try:
            record = parse_json(line)
        except ValueError as problem:
            yield make_error(number, "not JSON", f"not JSON: {problem}; expected one object on each line")
            continue
        if not isinstance(record, dict):
            yield make_error(number, "not an object", f"expected an object, found {shorten_value(record)}")
            continue
        records += 1
        sentences += len(list_sentences(record, track))
        metadata = get_metadata(record, track)
        topic = ""
        if isinstance(metadata, dict):
            values = {key.holds: read_id(metadata.get(key.name)) for key in track.keys}
            topic = values["topic"]
            yield from check_metadata(number, metadata, track, topic, topics)
            if track.is_default_team(values.get("team", "")):
                default_team_lines.append(number)
            if topic and (first := answered.setdefault(topic, number)) != number:
                yield make_error(
                    number, "repeated topic", f"topic {shorten_value(topic)} is already answered on line {first}"
                )
            run = run or values["run"]
            if values["run"] not in ("", run):
                message = f"run_id: expected {shorten_value(run)} on every line, found {shorten_value(values['run'])}"
                yield make_error(number, "run id", message)
        else:
            yield make_error(
                number, "metadata", f"{track.metadata}: expected an object, found {shorten_value(metadata)}"
            )
        if track.has_gate:
            yield from check_known_keys(number, record, track, topic)
        references = list_references(record, track)
        if isinstance(references, list):
            if record.get("references") is None and track.listed == "advised":
                yield make_warning(number, "references", "references: missing; expected a list of the cited ids")
            yield from _check_references(number, references, track)
            for reference in filter(None, map(read_id, [*references, *list_cited_ids(record, track)])):
                if track.owns(reference):
                    owned = True
                else:
                    foreign.setdefault(reference, number)
        else:
            yield make_error(
                number, "references", f"references: expected a list of ids, found {shorten_value(references)}"
            )
            references = []
        answer = record.get(track.sentences)
        if isinstance(answer, list):
            names = map_citations(references, track.integers)
            yield from check_sentences(number, record, names, track, track.limit(topic))
            yield from check_forms(number, answer, track, forms)
        else:
            yield make_error(
                number, track.sentences, f"{track.sentences}: expected a list, found {shorten_value(answer)}"
            )
    yield from check_ids(foreign, track, "error" if track.strict_ids or owned else "warning")
    if default_team_lines:
        lines = plural(len(default_team_lines), "line")
        message = f"team: found {DEFAULT_TEAM!r}, the default of Keystone, on {lines}; expected your team"
        yield make_warning(default_team_lines[0], "default team", message)
    if not records:
        yield make_error(0, "no answer", f"holds no answer, expected answers to {plural(len(topics), 'topic')}")
    elif not sentences:
        yield make_error(0, "no sentence", f"holds no sentence in {plural(records, 'answer')}")
    for topic in topics if records else ():
        if topic not in answered:
            yield make_error(0, "missing topic", f"topic {shorten_value(topic)}: no answer")


def describe_answers(content: Lines, track: Track, topics: Mapping[str, str]) -> str:
    """Describe the size of an answer file: its topics, sentences, and sentences without citation."""
    records = [record for _, line in content if (record := parse_object(line)) is not None]
    answered = {find_topic(record, track) for record in records}
    sentences = [sentence for record in records for sentence in list_sentences(record, track)]
    bare = sum(not sentence.get("citations") for sentence in sentences)
    size = f"{len(answered & topics.keys()):,} of {plural(len(topics), 'topic')}, {plural(len(sentences), 'sentence')}"
    return f"{size}, {bare:,} without citation"


def find_topic(record: dict[str, Any], track: Track) -> str:
    """Find the topic that an object answers. If it names none, the result is empty."""
    metadata = get_metadata(record, track)
    return read_id(metadata.get(track.topic_key)) if isinstance(metadata, dict) else ""


def list_sentences(record: dict[str, Any], track: Track) -> list[dict[str, Any]]:
    """List the sentences of an object, without elements that are no objects."""
    answer = record.get(track.sentences)
    return [one for one in answer if isinstance(one, dict)] if isinstance(answer, list) else []


def read_id(value: Any) -> str:
    """Read a value as an id: text itself, or the digits of an integer. Any other value gives the empty id."""
    return str(value) if isinstance(value, str) or is_integer(value) else ""


def check_metadata(
    number: int, metadata: dict[str, Any], track: Track, topic: str, topics: Mapping[str, str]
) -> Iterator[Violation]:
    """Find the violations in an answer's metadata. `topic` is its topic, and `topics` maps ids to narratives."""
    for key in track.keys:
        value = metadata.get(key.name)
        where = key.name if track.metadata is None else f"{track.metadata}.{key.name}"
        if value is None:
            option = OPTIONS.get(key.holds)
            remedy = f"; keystone convert --to {track.form} {option} adds it" if option else ""
            yield (make_error if key.required else make_warning)(number, f"no {key.name}", f"{where}: missing{remedy}")
        elif key.holds == "kit":
            if not is_integer(value) or value not in (0, 1):
                yield make_error(number, key.name, f"{where}: expected 0 or 1, found {shorten_value(value)}")
        elif key.holds in ID_CONTENTS and is_integer(value):
            kind = "id as a number" if key.holds == "topic" else f"{key.name} as a number"
            yield make_error(number, kind, f"{where}: expected text, found the number {shorten_value(value)}")
        elif not isinstance(value, str) or not value.strip():
            yield make_error(number, key.name, f"{where}: expected text, found {shorten_value(value)}")
        else:
            yield from _check_text(number, where, key, value, topics.get(topic), track)
    if topic and topic not in topics:
        yield make_error(number, "unknown topic", f"topic {shorten_value(topic)} is not in the topics file")


def _check_text(
    number: int, where: str, key: Key, value: str, narrative: str | None, track: Track
) -> Iterator[Violation]:
    if key.holds == "type" and value not in TYPES:
        yield make_error(number, key.name, f"{where}: expected one of {', '.join(TYPES)}, found {shorten_value(value)}")
    if key.holds == "run" and not track.takes_run_id(value):
        yield make_error(
            number, "run id form", f"{where}: expected {track.describe_run_ids()}, found {shorten_value(value)}"
        )
    if key.holds == "narrative" and narrative is not None and value != narrative:
        yield make_error(
            number,
            "narrative differs",
            f"{where}: differs from the topics file {describe_difference(value, narrative)}",
        )


def describe_difference(found: str, expected: str) -> str:
    """Describe the first difference of two texts, and the text around it. Letters that look alike appear as escapes."""
    pairs = zip(found, expected, strict=False)
    place = next((i for i, (own, other) in enumerate(pairs) if own != other), min(len(found), len(expected)))
    alike = unicodedata.normalize("NFKC", found) == unicodedata.normalize("NFKC", expected)
    parts = (text[max(place - CONTEXT_CHARACTERS, 0) : place + CONTEXT_CHARACTERS] for text in (expected, found))
    wanted, given = (ascii(part) if alike else repr(part) for part in parts)
    return f"at character {place + 1:,}: expected {wanted}, found {given}"


def _check_references(number: int, references: list[Any], track: Track) -> Iterator[Violation]:
    for place, reference in enumerate(references):
        if is_integer(reference):
            message = f"references[{place}]: expected text, found the number {shorten_value(reference)}"
            yield make_error(number, "id as a number", message)
        elif not isinstance(reference, str) or not is_id(reference):
            yield make_error(
                number,
                "references",
                f"references[{place}]: expected {describe_id(reference)}, found {shorten_value(reference)}",
            )
    if track.references is not None and len(references) > track.references:
        message = f"references: expected at most {track.references}, found {len(references)}"
        yield make_error(number, "too many references", message)
    ids = [read_id(reference) for reference in references if read_id(reference)]
    if len(set(ids)) < len(ids):
        yield make_error(number, "repeated reference", "references: an id is listed more than once")


SENTENCE_KEYS = ("answer", "responses")
Object = dict[str, Any]


class _Metadata(BaseModel):
    topic_id: str = ""
    narrative_id: str | int | None = None
    narrative: str | None = None
    collection_ids: list[str] | None = None
    task: Literal["multilingual", "english", "rag"] | None = None
    description: str | None = None
    run_desc: str | None = None
    creator: Object = {}
    extra: Object = {}
    use_starter_kit: int | None = None
    type: str | None = None
    request_id: str | None = None
    limit: int | None = None
    evaldata: Object | None = None


class _Sentence(BaseModel):
    metadata: Object | None = None
    evaldata: Object | None = None


class _Document(BaseModel):
    id: str
    text: str
    title: str | None = None
    url: str | None = None
    metadata: Object | None = None
    created: str | None = None
    cc_file: str | None = None
    time: str | None = None
    lang: str | None = None


class _Ranked(BaseModel):
    doc_id: str
    rank: int
    doc: _Document | None = None
    score: float | None = None


class _Retrieved(BaseModel):
    query_id: str
    test_collection: str
    run_id: str | None = None
    metadata: Object | None = None
    ranked_docs: list[_Ranked] = []


class _Answer(BaseModel):
    metadata: _Metadata
    answer: list[_Sentence] | None = None
    responses: list[_Sentence] | None = None
    is_ragtime: bool = True
    path: str | None = None
    evaldata: Object | None = None
    ranking: list[_Retrieved] | list[_Ranked] | None = None
    documents: dict[str, _Document] | None = None


def check_known_keys(number: int, record: dict[str, Any], track: Track, topic: str) -> Iterator[Violation]:
    """Find values that the organisers' program cannot read. Values that other checks refuse may be among them."""
    own = {key.name for key in track.keys}
    try:
        _Answer.model_validate(record)
    except ValidationError as error:
        for one in error.errors(include_url=False):
            where = ".".join(map(str, one["loc"]))
            if not (one["loc"][:1] == ("metadata",) and one["loc"][1:2] and one["loc"][1] in own):
                message = f"{where}: found {shorten_value(one['input'])}; the organisers' program expects: {one['msg']}"
                yield make_error(number, "key of another type", message)
    if all(record.get(key) is not None for key in SENTENCE_KEYS):
        message = f"found both {' and '.join(SENTENCE_KEYS)}: the organisers' program reads {SENTENCE_KEYS[1]}"
        yield make_error(number, "second answer", message)
    metadata = record.get("metadata")
    for key in ("topic_id", "narrative_id"):
        other = metadata.get(key) if isinstance(metadata, dict) else None
        if topic and other is not None and str(other) != topic:
            message = f"metadata.{key}: expected {shorten_value(topic)} as elsewhere, found {shorten_value(other)}"
            yield make_error(number, "second topic", message)
