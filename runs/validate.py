"""Judging submission files of a track: every violation with its line, its severity and what was expected.

The rules are those of the track's guidelines and of its organisers' validators, and the whole-file rules that
those lack (missing, repeated and unknown topics, one run tag, exact narrative, limits).
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import orjson

from indexing.files import lines
from retrieval.types import Topic
from runs.rag import word_count
from runs.tracks import Track

TYPES = ("automatic", "manual")


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken rule; line 0 stands for the whole file. An `error` makes the submission invalid."""

    line: int
    severity: Literal["error", "warning"]
    message: str


def validate(path: Path, track: Track, topics: Sequence[Topic]) -> list[Violation]:
    """The violations of a retrieval run, or of an answer file (`.jsonl`, or JSON in its first line), by line."""
    content = list(lines(path))
    known = {topic.id: topic.narrative for topic in topics}
    is_rag = path.suffix == ".jsonl" or (bool(content) and _is_object(content[0][1]))
    check = _check_rag if is_rag else _check_run
    return sorted(check(content, track, known), key=lambda violation: violation.line)


def _is_object(line: str) -> bool:
    try:
        return isinstance(orjson.loads(line), dict)
    except orjson.JSONDecodeError:
        return False


def _error(line: int, message: str) -> Violation:
    return Violation(line, "error", message)


def _warning(line: int, message: str) -> Violation:
    return Violation(line, "warning", message)


def _check_run(content: list[tuple[int, str]], track: Track, topics: dict[str, str]) -> Iterator[Violation]:
    tags: dict[str, int] = {}
    ranks: dict[str, int] = {}
    last: dict[str, tuple[int, float]] = {}
    seen: dict[tuple[str, str], int] = {}
    foreign: dict[str, int] = {}
    previous = ""
    for number, line in content:
        fields = line.split()
        if len(fields) != 6:
            yield _error(number, f"expected 6 columns, found {len(fields)}")
            continue
        topic, second, segment, rank, score_text, tag = fields
        if second != "Q0":
            yield _warning(number, f"second column: expected Q0, found {second!r}")
        if topic not in topics:
            yield _error(number, f"topic {topic!r} is not in the topics file")
        if topic != previous and topic in ranks:
            yield _warning(number, f"topic {topic!r}: its rows do not stand together")
        previous = topic
        if not re.fullmatch(track.segment_id, segment):
            foreign.setdefault(segment, number)
        first = seen.setdefault((topic, segment), number)
        if first != number:
            yield _error(number, f"{segment} is already listed for topic {topic} on line {first}")
        ranks[topic] = ranks.get(topic, 0) + 1
        if rank != str(ranks[topic]):
            yield _error(number, f"rank: expected {ranks[topic]}, found {rank!r}")
        if ranks[topic] == track.rows + 1:
            yield _error(number, f"topic {topic}: more than {track.rows} rows")
        yield from _check_score(number, topic, score_text, last)
        tags.setdefault(tag, number)
    for tag, number in list(tags.items())[1:]:
        yield _error(number, f"run tag: expected {next(iter(tags))!r} on every line, found {tag!r}")
    yield from _check_ids(foreign)
    for topic in topics:
        if topic not in ranks:
            yield _warning(0, f"topic {topic}: no row")


def _check_ids(foreign: dict[str, int]) -> Iterator[Violation]:
    """One warning for all ids that cannot be of the track's corpus: `foreign` gives each with its first line."""
    if foreign:
        name, number = next(iter(foreign.items()))
        yield _warning(number, f"{name}: not an id of the track's corpus; {len(foreign)} ids of the file are not")


def _check_score(number: int, topic: str, text: str, last: dict[str, tuple[int, float]]) -> Iterator[Violation]:
    try:
        score = float(text)
    except ValueError:
        score = math.nan
    if not math.isfinite(score):
        yield _error(number, f"score: expected a finite number, found {text!r}")
        return
    if topic in last:
        above, before = last[topic]
        if score > before:
            yield _error(number, f"score {text} is above the one of line {above}")
        elif np.float32(score) == np.float32(before):
            yield _warning(number, f"score {text} equals the one of line {above} in float32: tools may swap them")
    last[topic] = (number, score)


def _check_rag(content: list[tuple[int, str]], track: Track, topics: dict[str, str]) -> Iterator[Violation]:
    run_ids: dict[str, int] = {}
    answered: dict[str, int] = {}
    foreign: dict[str, int] = {}
    for number, line in content:
        if not line.strip():
            yield _warning(number, "blank line")
            continue
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            yield _error(number, f"not JSON: {error}")
            continue
        if not isinstance(record, dict):
            yield _error(number, f"expected an object, found {type(record).__name__}")
            continue
        metadata = record.get("metadata")
        if isinstance(metadata, dict):
            yield from _check_metadata(number, metadata, topics)
            topic = str(metadata.get("narrative_id"))
            first = answered.setdefault(topic, number)
            if first != number:
                yield _error(number, f"topic {topic} is already answered on line {first}")
            run_ids.setdefault(str(metadata.get("run_id")), number)
        else:
            yield _error(number, f"metadata: expected an object, found {type(metadata).__name__}")
        yield from _check_answer(number, record, track)
        for reference in record["references"] if isinstance(record.get("references"), list) else []:
            if not re.fullmatch(track.segment_id, str(reference)):
                foreign.setdefault(str(reference), number)
    yield from _check_ids(foreign)
    for run_id, number in list(run_ids.items())[1:]:
        yield _error(number, f"run_id: expected {next(iter(run_ids))!r} on every line, found {run_id!r}")
    for topic in topics:
        if topic not in answered:
            yield _error(0, f"topic {topic}: no answer")


def _check_metadata(number: int, metadata: dict[str, Any], topics: dict[str, str]) -> Iterator[Violation]:
    for key in ("team_id", "run_id", "narrative_id"):
        value = metadata.get(key)
        if not isinstance(value, str | int) or isinstance(value, bool) or not str(value).strip():
            yield _error(number, f"metadata.{key}: expected text, found {value!r}")
    kind = metadata.get("type")
    if kind is None:
        yield _warning(number, "metadata.type: missing")
    elif kind not in TYPES:
        yield _error(number, f"metadata.type: expected one of {', '.join(TYPES)}, found {kind!r}")
    topic = str(metadata.get("narrative_id"))
    if topic not in topics:
        yield _error(number, f"topic {topic!r} is not in the topics file")
    elif metadata.get("narrative") is None:
        yield _warning(number, "metadata.narrative: missing")
    elif metadata["narrative"] != topics[topic]:
        yield _error(number, "metadata.narrative: differs from the topics file")


def _check_answer(number: int, record: dict[str, Any], track: Track) -> Iterator[Violation]:
    references, answer = record.get("references"), record.get("answer")
    if not isinstance(references, list) or not all(isinstance(reference, str) for reference in references):
        yield _error(number, "references: expected a list of segment ids")
        references = []
    if len(references) > track.references:
        yield _error(number, f"references: expected at most {track.references}, found {len(references)}")
    if len(set(references)) < len(references):
        yield _error(number, "references: an id is listed more than once")
    if not isinstance(answer, list):
        yield _error(number, f"answer: expected a list, found {type(answer).__name__}")
        return
    if not answer:
        yield _warning(number, "answer: empty")
    words = 0
    for place, sentence in enumerate(answer):
        where = f"answer[{place}]"
        if not isinstance(sentence, dict):
            yield _error(number, f"{where}: expected an object, found {type(sentence).__name__}")
            continue
        text = sentence.get("text")
        if not isinstance(text, str) or not text.strip():
            yield _error(number, f"{where}.text: expected text, found {text!r}")
        else:
            words += word_count(text)
        yield from _check_citations(number, where, sentence.get("citations"), references)
    if words > track.words:
        yield _error(number, f"answer: expected at most {track.words} words, found {words}")


def _check_citations(number: int, where: str, citations: Any, references: list[str]) -> Iterator[Violation]:
    if not isinstance(citations, list):
        yield _error(number, f"{where}.citations: expected a list, found {type(citations).__name__}")
        return
    for citation in citations:
        if isinstance(citation, str):
            if citation not in references:
                yield _error(number, f"{where}.citations: {citation!r} is not in references")
        elif isinstance(citation, bool) or not isinstance(citation, int):
            yield _error(number, f"{where}.citations: expected a position or a segment id, found {citation!r}")
        elif not 0 <= citation < len(references):
            yield _error(number, f"{where}.citations: {citation} is outside 0..{len(references) - 1}")
    if len({repr(citation) for citation in citations}) < len(citations):
        yield _warning(number, f"{where}.citations: a citation is repeated")
