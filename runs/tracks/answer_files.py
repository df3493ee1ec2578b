"""Reading and writing of answer files, which hold one JSON object for each topic, for all tracks."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import UnionType
from typing import Any, TypeGuard

from keystone.generation.types import Answer, Sentence
from keystone.indexing.types import document_id
from keystone.retrieval.types import Topic
from keystone.runs.track_rules import DEFAULT_TEAM, CitationForm, IntegerMeaning, KeyContent, Track
from keystone.runs.tracks.violations import parse_lines, shorten_value, tell_expected

NUMBER = re.compile(r"0|[1-9]\d{0,18}", re.ASCII)
"""An id that can be written as an integer."""


@dataclass(frozen=True, slots=True)
class SubmittedAnswer:
    """The answer to one topic in an answer file: its run, its references, and its sentences with ids as citations."""

    run_id: str
    references: tuple[str, ...]
    answer: Answer
    team_id: str = ""


@dataclass(frozen=True, slots=True)
class Author:
    """The team and the run that submit, and a description of the run for tracks that ask for one."""

    team_id: str
    run_id: str
    run_desc: str = ""
    task: str = ""
    """`english` or `multilingual`, by the languages of the documents; empty if the index does not tell them."""

    def as_json(self) -> dict[str, str]:
        """The author for the keys of results; the task only if there is one."""
        return {name: value for name, value in asdict(self).items() if value or name != "task"}


def map_citations(
    references: Sequence[Any], integers: Sequence[IntegerMeaning] = ("positions", "ids")
) -> dict[str | int, str]:
    """Map each possible citation (a position in the references, or a reference itself) to the id that it names.

    A reference that is a number counts as the id with its digits. If an integer may mean several things, the first of
    them that names a reference counts.
    """
    ids = [str(reference) if is_integer(reference) else reference for reference in references]
    by_place: dict[str | int, str] = {place: name for place, name in enumerate(ids) if isinstance(name, str)}
    by_number: dict[str | int, str] = {int(name): name for name in by_place.values() if NUMBER.fullmatch(name)}
    found: dict[str | int, str] = {name: name for name in by_place.values()}
    for meaning in reversed(integers):
        found |= by_place if meaning == "positions" else by_number
    return found


def list_references(record: Mapping[str, Any], track: Track) -> Any:
    """List the references of an answer. If it has none, and the track does not require them, list its cited ids.

    In a valid answer the result is a list.
    """
    references = record.get("references")
    if references is None and track.listed != "required":
        return list_cited_ids(record, track)
    return references


def list_cited_ids(record: Mapping[str, Any], track: Track) -> list[str]:
    """List the ids that the sentences of an answer cite, each once. Without positions, an integer is an id, too."""
    cited = [one for own in list_citations(record.get(track.sentences)) for one in sort_citations(own)]
    has_numbers = "positions" not in track.citations
    return list(dict.fromkeys(str(one) for one in cited if isinstance(one, str) or (has_numbers and is_integer(one))))


def list_citations(answer: Any, kind: UnionType | type = list | dict) -> list[Any]:
    """List the citations of each sentence of an answer that are of a kind. In a valid answer, all citations are."""
    sentences = [one for one in answer if isinstance(one, dict)] if isinstance(answer, list) else []
    return [one["citations"] for one in sentences if isinstance(one.get("citations"), kind)]


def resolve_citation(citation: Any, names: Mapping[str | int, str]) -> str | None:
    """Find the id that a citation names in the map of `map_citations`, or None."""
    return names.get(citation) if isinstance(citation, str) or is_integer(citation) else None


def is_integer(value: Any) -> TypeGuard[int]:
    """Whether a JSON value is an integer. Python counts true and false as integers; this function does not."""
    return isinstance(value, int) and not isinstance(value, bool)


def find_citation_form(citation: Any) -> CitationForm:
    """Find the form of one citation in a list."""
    return "positions" if is_integer(citation) else "ids"


def sort_citations(citations: Any) -> list[Any]:
    """Sort the citations of a sentence, best first. A list stays as it is. An object is sorted by its scores."""
    if isinstance(citations, dict):
        return sorted(citations, key=lambda name: -citations[name] if is_score(citations[name]) else 0)
    return list(citations)


def is_score(value: Any) -> bool:
    """Whether a JSON value is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def get_metadata(record: dict[str, Any], track: Track) -> Any:
    """Get the value in an answer's place for metadata. In a valid answer it is an object."""
    return record if track.metadata is None else record.get(track.metadata)


def cut_to_limits(topic_id: str, sentences: Sequence[Sentence], track: Track) -> list[Sentence]:
    """Cut an answer to the track's limits: its length, citations of a sentence, and references of an answer.

    Sentences without text are dropped, and whole sentences are cut from the end. A citation is dropped if its
    reference is one too many.
    """
    filled = [sentence for sentence in sentences if sentence.text.strip()]
    filled = filled[: count_fitting_sentences([sentence.text for sentence in filled], topic_id, track)]
    kept: list[Sentence] = []
    allowed: set[str] = set()
    for sentence in filled:
        citations: list[str] = []
        for citation in list(dict.fromkeys(sentence.citations))[: track.cited]:
            if citation in allowed or track.references is None or len(allowed) < track.references:
                allowed.add(citation)
                citations.append(citation)
        kept.append(Sentence(sentence.text, tuple(citations)))
    return kept


def count_fitting_sentences(texts: Sequence[str], topic_id: str, track: Track) -> int:
    """Count the sentences, from the first on, that fit into the length limit of the answer."""
    limit, total = track.limit(topic_id), 0
    for number, size in enumerate(track.length.measure(texts)):
        total += size
        if limit is not None and total > limit:
            return number
    return len(texts)


def cite_by_track_ids(answer: Answer, track: Track) -> Answer:
    """Replace segments by their documents in citations, unless the track cites segments."""
    if track.segments:
        return answer
    cited = (replace(s, citations=tuple(map(document_id, s.citations))) for s in answer.sentences)
    return replace(answer, sentences=tuple(cited))


def make_answer_record(topic: Topic, answer: Answer, track: Track, author: Author) -> dict[str, Any]:
    """Make the JSON object of one topic's answer, with references in the order of their first citation."""
    sentences = cut_to_limits(topic.id, answer.sentences, track)
    references = list(dict.fromkeys(c for sentence in sentences for c in sentence.citations))
    position = {reference: number for number, reference in enumerate(references)}
    by_position = track.citations[0] == "positions"
    values: dict[KeyContent, str | int] = {
        "kit": 0,
        "team": author.team_id,
        "run": author.run_id,
        "topic": topic.id,
        "narrative": topic.narrative,
        "type": "automatic",
        "description": author.run_desc,
    }
    metadata = {key.name: values[key.holds] for key in track.keys}
    if track.task_key and author.task:
        metadata[track.task_key] = author.task
    length = sum(track.length.measure([sentence.text for sentence in sentences]))
    return {
        **(metadata if track.metadata is None else {track.metadata: metadata}),
        "references": references,
        **({track.length_key: length} if track.length_key else {}),
        track.sentences: [
            {"text": s.text, "citations": [position[c] if by_position else c for c in s.citations]} for s in sentences
        ],
    }


def make_answer_records(
    topics: Sequence[Topic], answers: Mapping[str, Answer], track: Track, author: Author
) -> list[dict[str, Any]]:
    """Make the object of each topic, in the order of the topics. A topic without an answer gets no sentence."""
    return [make_answer_record(topic, answers.get(topic.id, Answer(topic.id, ())), track, author) for topic in topics]


def read_answer_file(path: Path, track: Track) -> list[SubmittedAnswer]:
    """Read the answers of a file in its order, with citations in any form.

    `UserError` with file and line for the first unreadable answer. `keystone.runs.tracks.validate` finds all
    violations.
    """
    return [one for _, one in parse_lines(path, lambda record: _parse_answer(record, track))]


def _parse_answer(record: dict[str, Any], track: Track) -> SubmittedAnswer:
    metadata = get_metadata(record, track)
    if not isinstance(metadata, dict):
        raise ValueError(tell_expected(f"{track.metadata}", "an object", metadata))
    value = {key.holds: metadata.get(key.name) for key in track.keys}
    for key in track.keys:
        if key.holds in ("run", "topic") and not isinstance(value[key.holds], str) and not is_integer(value[key.holds]):
            raise ValueError(tell_expected(key.name, "an id", value[key.holds]))
    references, answer = list_references(record, track), record.get(track.sentences)
    if not isinstance(references, list) or not all(isinstance(r, str) or is_integer(r) for r in references):
        raise ValueError("references: expected a list of ids")
    if not isinstance(answer, list) or not all(isinstance(sentence, dict) for sentence in answer):
        raise ValueError(f"{track.sentences}: expected a list of objects")
    names = map_citations(references, track.integers)
    sentences = tuple(_parse_sentence(sentence, names, f"{track.sentences}[{i}]") for i, sentence in enumerate(answer))
    topic_id = str(value["topic"])
    team = value.get("team")
    team_id = team if isinstance(team, str) and team != DEFAULT_TEAM else ""
    return SubmittedAnswer(str(value["run"]), tuple(map(str, references)), Answer(topic_id, sentences), team_id)


def _parse_sentence(sentence: dict[str, Any], names: Mapping[str | int, str], where: str) -> Sentence:
    text, citations = sentence.get("text"), sentence.get("citations")
    if not isinstance(text, str):
        raise ValueError(tell_expected(f"{where}.text", "text", text))
    if not isinstance(citations, list | dict):
        raise ValueError(f"{where}.citations: expected a list of positions or ids, or an object from id to score")
    ids = []
    for citation in sort_citations(citations):
        name = resolve_citation(citation, names)
        if name is None:
            raise ValueError(f"{where}.citations: {shorten_value(citation)} names no reference")
        ids.append(name)
    return Sentence(text, tuple(dict.fromkeys(ids)))
