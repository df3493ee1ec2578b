"""Answer files of every track: one JSON object a topic, written from answers and read into them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import orjson

from generation.types import Answer, Sentence
from indexing.errors import UserError
from indexing.io.files import json_lines, written
from indexing.types import document_id
from retrieval.types import Topic
from runs.tracks.rules import CitationForm, Holds, Track


@dataclass(frozen=True, slots=True)
class Submitted:
    """One topic's object of an answer file: who answered, what is referred to, and the answer, citations as ids."""

    run_id: str
    references: tuple[str, ...]
    answer: Answer


@dataclass(frozen=True, slots=True)
class Author:
    """Who submits: team, run, and a description of the run where the track asks for one."""

    team_id: str
    run_id: str
    run_desc: str = ""


def citable(references: Sequence[Any]) -> dict[str | int, str]:
    """What a citation may be, and the id that it then names: a position in the references, or one of them.

    A reference that is a number counts as the id of these digits.
    """
    ids = [str(reference) if is_number(reference) else reference for reference in references]
    names: dict[str | int, str] = {place: name for place, name in enumerate(ids) if isinstance(name, str)}
    return names | {name: name for name in names.values()} | {n: str(n) for n in references if is_number(n)}


def named(citation: Any, names: Mapping[str | int, str]) -> str | None:
    """The id that a citation names, by `citable`; None where it names nothing."""
    return names.get(citation) if isinstance(citation, str) or is_number(citation) else None


def is_number(value: Any) -> bool:
    """Whether a JSON value is a whole number (which true and false are to Python)."""
    return isinstance(value, int) and not isinstance(value, bool)


def form_of(citation: Any) -> CitationForm:
    """The form of one citation of a list."""
    return "positions" if is_number(citation) else "ids"


def best_first(citations: Any) -> list[Any]:
    """The citations of a sentence, best first: a list as it is, an object from id to score by score down."""
    if isinstance(citations, dict):
        return sorted(citations, key=lambda name: -citations[name] if is_score(citations[name]) else 0)
    return list(citations)


def is_score(value: Any) -> bool:
    """Whether a JSON value is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def metadata_of(record: dict[str, Any], track: Track) -> Any:
    """What should be the object that holds the metadata of an answer."""
    return record if track.metadata is None else record.get(track.metadata)


def within_limits(topic_id: str, sentences: Sequence[Sentence], track: Track) -> list[Sentence]:
    """What the track takes of an answer: sentences with text up to its length, citations and references up to theirs.

    Whole sentences are cut from the end; a citation beyond the last allowed reference is dropped.
    """
    told = [sentence for sentence in sentences if sentence.text.strip()]
    told = told[: fitting([sentence.text for sentence in told], topic_id, track)]
    kept: list[Sentence] = []
    allowed: set[str] = set()
    for sentence in told:
        citations: list[str] = []
        for citation in list(dict.fromkeys(sentence.citations))[: track.cited]:
            if citation in allowed or track.references is None or len(allowed) < track.references:
                allowed.add(citation)
                citations.append(citation)
        kept.append(Sentence(sentence.text, tuple(citations)))
    return kept


def fitting(texts: Sequence[str], topic_id: str, track: Track) -> int:
    """How many of the sentences, from the first on, are within the length that the answer may have."""
    limit, total = track.limit(topic_id), 0
    for number, size in enumerate(track.length.sizes(texts)):
        total += size
        if limit is not None and total > limit:
            return number
    return len(texts)


def submitted(answer: Answer, track: Track) -> Answer:
    """The answer as the track has it: documents stand for their segments unless it cites segments."""
    if track.segments:
        return answer
    cited = (replace(s, citations=tuple(map(document_id, s.citations))) for s in answer.sentences)
    return replace(answer, sentences=tuple(cited))


def rag_record(topic: Topic, answer: Answer, track: Track, author: Author) -> dict[str, Any]:
    """One topic's object; references in the order of their first citation."""
    sentences = within_limits(topic.id, answer.sentences, track)
    references = list(dict.fromkeys(c for sentence in sentences for c in sentence.citations))
    position = {reference: number for number, reference in enumerate(references)}
    by_position = track.citations[0] == "positions"
    values: dict[Holds, str] = {
        "team": author.team_id,
        "run": author.run_id,
        "topic": topic.id,
        "narrative": topic.narrative,
        "type": "automatic",
        "description": author.run_desc,
    }
    metadata = {key.name: values[key.holds] for key in track.keys}
    length = sum(track.length.sizes([sentence.text for sentence in sentences]))
    return {
        **(metadata if track.metadata is None else {track.metadata: metadata}),
        "references": references,
        **({track.length_key: length} if track.length_key else {}),
        track.sentences: [
            {"text": s.text, "citations": [position[c] if by_position else c for c in s.citations]} for s in sentences
        ],
    }


def write_rag(path: Path, topics: Sequence[Topic], answers: Mapping[str, Answer], track: Track, author: Author) -> None:
    """Write the answer file: one object for every topic, in the order of the topics; all of it or nothing."""
    with written(path) as out:
        for topic in topics:
            record = rag_record(topic, answers.get(topic.id, Answer(topic.id, ())), track, author)
            out.write(orjson.dumps(record) + b"\n")


def read_rag(path: Path, track: Track) -> list[Submitted]:
    """The answers of a file, in its order, whichever form their citations have.

    `UserError` with file and line for what cannot be read so; `runs.tracks.validate` finds everything that is wrong.
    """
    found = []
    for number, record in json_lines(path):
        try:
            found.append(_submitted(record, track))
        except ValueError as error:
            raise UserError(f"{path}:{number}: {error}") from error
    return found


def _submitted(record: dict[str, Any], track: Track) -> Submitted:
    metadata = metadata_of(record, track)
    if not isinstance(metadata, dict):
        raise ValueError(f"{track.metadata}: expected an object")
    value = {key.holds: metadata.get(key.name) for key in track.keys}
    for key in track.keys:
        if key.holds in ("run", "topic") and not isinstance(value[key.holds], str) and not is_number(value[key.holds]):
            raise ValueError(f"{key.name}: expected an id")
    references, answer = record.get("references"), record.get(track.sentences)
    if not isinstance(references, list) or not all(isinstance(r, str) or is_number(r) for r in references):
        raise ValueError("references: expected a list of ids")
    if not isinstance(answer, list) or not all(isinstance(sentence, dict) for sentence in answer):
        raise ValueError(f"{track.sentences}: expected a list of objects")
    names = citable(references)
    sentences = tuple(_sentence(sentence, names, f"{track.sentences}[{i}]") for i, sentence in enumerate(answer))
    topic_id = str(value["topic"])
    return Submitted(str(value["run"]), tuple(map(str, references)), Answer(topic_id, sentences))


def _sentence(sentence: dict[str, Any], names: Mapping[str | int, str], where: str) -> Sentence:
    text, citations = sentence.get("text"), sentence.get("citations")
    if not isinstance(text, str):
        raise ValueError(f"{where}.text: expected text")
    if not isinstance(citations, list | dict):
        raise ValueError(f"{where}.citations: expected a list of positions or ids, or an object from id to score")
    ids = []
    for citation in best_first(citations):
        name = named(citation, names)
        if name is None:
            raise ValueError(f"{where}.citations: one of them is not in references")
        ids.append(name)
    return Sentence(text, tuple(dict.fromkeys(ids)))
