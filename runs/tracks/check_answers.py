"""The rules of an answer file, object by object and of the whole: one answer a topic, one run, exact narratives."""

import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from indexing.types import is_id
from runs.tracks.answer_files import citable, form_of, is_number, is_score, metadata_of, named
from runs.tracks.check_run import check_ids
from runs.tracks.rules import DEFAULT_TEAM, CitationForm, Holds, Key, Track
from runs.tracks.violations import Lines, Violation, error, object_of, shown, warning
from runs.wording import plural

TYPES = ("automatic", "manual")
AROUND = 20
"""Characters shown before and behind the place where two narratives differ."""
Citable = Mapping[str | int, str]
IDS: tuple[Holds, ...] = ("team", "run", "topic")


def check_answers(content: Lines, track: Track, topics: Mapping[str, str]) -> Iterator[Violation]:
    """The violations of an answer file; `topics` gives narratives by topic id."""
    run = ""
    answered: dict[str, int] = {}
    foreign: dict[str, int] = {}
    forms: dict[CitationForm, int] = {}
    nameless: list[int] = []
    records = sentences = 0
    for number, line in content:
        if not line.strip():
            yield warning(number, "blank line", "blank line")
            continue
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError as problem:
            yield error(number, "not JSON", f"not JSON: {problem}; expected an object a line")
            continue
        if not isinstance(record, dict):
            yield error(number, "not an object", f"expected an object, found {shown(record)}")
            continue
        records += 1
        sentences += len(sentences_of(record, track))
        metadata = metadata_of(record, track)
        topic = ""
        if isinstance(metadata, dict):
            values = {key.holds: as_text(metadata.get(key.name)) for key in track.keys}
            topic = values["topic"]
            yield from _check_metadata(number, metadata, track, topic, topics)
            if track.unnamed(values.get("team", "")):
                nameless.append(number)
            if topic and (first := answered.setdefault(topic, number)) != number:
                yield error(number, "repeated topic", f"topic {shown(topic)} is already answered on line {first}")
            run = run or values["run"]
            if values["run"] not in ("", run):
                message = f"run_id: expected {shown(run)} on every line, found {shown(values['run'])}"
                yield error(number, "run id", message)
        else:
            yield error(number, "metadata", f"{track.metadata}: expected an object, found {shown(metadata)}")
        references = record.get("references")
        if isinstance(references, list):
            yield from _check_references(number, references, track)
            for reference in references:
                if isinstance(reference, str) and not track.owns(reference):
                    foreign.setdefault(reference, number)
        else:
            yield error(number, "references", f"references: expected a list of ids, found {shown(references)}")
            references = []
        answer = record.get(track.sentences)
        if isinstance(answer, list):
            yield from _check_answer(number, answer, citable(references), track, record, track.limit(topic))
            yield from _check_forms(number, answer, track, forms)
        else:
            yield error(number, track.sentences, f"{track.sentences}: expected a list, found {shown(answer)}")
    yield from check_ids(foreign, track)
    if nameless:
        message = (
            f"team: {DEFAULT_TEAM!r} is the default of Keystone on {plural(len(nameless), 'line')}, expected yours"
        )
        yield warning(nameless[0], "default team", message)
    if not records:
        yield error(0, "no answer", f"holds no answer, expected one for {plural(len(topics), 'topic')}")
    elif not sentences:
        yield error(0, "no sentence", f"holds no sentence in {plural(records, 'answer')}")
    for topic in topics if records else ():
        if topic not in answered:
            yield error(0, "missing topic", f"topic {shown(topic)}: no answer")


def seen_in_answers(content: Lines, track: Track, topics: Mapping[str, str]) -> str:
    """How much of an answer file there is to judge."""
    records = [record for _, line in content if (record := object_of(line)) is not None]
    answered = {topic_of(record, track) for record in records}
    sentences = [sentence for record in records for sentence in sentences_of(record, track)]
    bare = sum(not sentence.get("citations") for sentence in sentences)
    shown = f"{len(answered & topics.keys()):,} of {plural(len(topics), 'topic')}, {plural(len(sentences), 'sentence')}"
    return f"{shown}, {bare:,} without citation"


def topic_of(record: dict[str, Any], track: Track) -> str:
    """The topic that an object answers; empty where it names none."""
    metadata = metadata_of(record, track)
    name = next(key.name for key in track.keys if key.holds == "topic")
    return as_text(metadata.get(name)) if isinstance(metadata, dict) else ""


def sentences_of(record: dict[str, Any], track: Track) -> list[dict[str, Any]]:
    """The sentences of an object, without what is none."""
    answer = record.get(track.sentences)
    return [one for one in answer if isinstance(one, dict)] if isinstance(answer, list) else []


def as_text(value: Any) -> str:
    """A value as an id: itself, or the digits of a number; what is neither stands for no id."""
    return str(value) if isinstance(value, str) or is_number(value) else ""


def _check_metadata(
    number: int, metadata: dict[str, Any], track: Track, topic: str, topics: Mapping[str, str]
) -> Iterator[Violation]:
    for key in track.keys:
        value = metadata.get(key.name)
        where = key.name if track.metadata is None else f"{track.metadata}.{key.name}"
        if value is None:
            yield (error if key.required else warning)(number, f"no {key.name}", f"{where}: missing")
        elif key.holds in IDS and is_number(value):
            yield error(number, "id as a number", f"{where}: expected text, found the number {shown(value)}")
        elif not isinstance(value, str) or not value.strip():
            yield error(number, key.name, f"{where}: expected text, found {shown(value)}")
        else:
            yield from _check_text(number, where, key, value, topics.get(topic))
    if topic and topic not in topics:
        yield error(number, "unknown topic", f"topic {shown(topic)} is not in the topics file")


def _check_text(number: int, where: str, key: Key, value: str, narrative: str | None) -> Iterator[Violation]:
    if key.holds == "type" and value not in TYPES:
        yield error(number, key.name, f"{where}: expected one of {', '.join(TYPES)}, found {shown(value)}")
    if key.holds == "narrative" and narrative is not None and value != narrative:
        yield error(
            number, "narrative differs", f"{where}: differs from the topics file {difference(value, narrative)}"
        )


def difference(found: str, expected: str) -> str:
    """Where two texts begin to differ, with what stands around; letters that look alike are shown by their numbers."""
    pairs = zip(found, expected, strict=False)
    place = next((i for i, (own, other) in enumerate(pairs) if own != other), min(len(found), len(expected)))
    alike = unicodedata.normalize("NFKC", found) == unicodedata.normalize("NFKC", expected)
    parts = (text[max(place - AROUND, 0) : place + AROUND] for text in (expected, found))
    wanted, given = (ascii(part) if alike else repr(part) for part in parts)
    return f"at character {place + 1:,}: expected {wanted}, found {given}"


def _check_references(number: int, references: list[Any], track: Track) -> Iterator[Violation]:
    for place, reference in enumerate(references):
        if is_number(reference):
            message = f"references[{place}]: expected text, found the number {shown(reference)}"
            yield error(number, "id as a number", message)
        elif not isinstance(reference, str) or not is_id(reference):
            yield error(number, "references", f"references[{place}]: expected an id, found {shown(reference)}")
    if track.references is not None and len(references) > track.references:
        message = f"references: expected at most {track.references}, found {len(references)}"
        yield error(number, "too many references", message)
    ids = [as_text(reference) for reference in references if as_text(reference)]
    if len(set(ids)) < len(ids):
        yield error(number, "repeated reference", "references: an id is listed more than once")


def _check_answer(
    number: int, answer: list[Any], names: Citable, track: Track, record: dict[str, Any], limit: int | None
) -> Iterator[Violation]:
    if not answer:
        yield warning(number, "empty answer", f"{track.sentences}: empty")
    texts = []
    for place, sentence in enumerate(answer):
        where = f"{track.sentences}[{place}]"
        if not isinstance(sentence, dict):
            yield error(number, "sentence", f"{where}: expected an object, found {shown(sentence)}")
            continue
        text, citations = sentence.get("text"), sentence.get("citations")
        if not isinstance(text, str) or not text.strip():
            yield error(number, "text", f"{where}.text: expected text, found {shown(text)}")
        else:
            texts.append(text)
        if isinstance(citations, list | dict):
            yield from _check_citations(number, f"{where}.citations", citations, names, track)
        else:
            yield error(number, "citations", f"{where}.citations: expected a list, found {shown(citations)}")
    idle = set(names.values()) - cited_ids(answer, names)
    if idle and not track.uncited:
        yield error(number, "uncited reference", f"references: found {len(idle)} that no sentence cites")
    length = sum(track.length.sizes(texts))
    if limit is not None and length > limit:
        message = f"{track.sentences}: expected at most {limit} {track.length.unit}, found {length}"
        yield error(number, "too long", message)
    if track.length_key:
        yield from _check_length(number, track.length_key, record.get(track.length_key), length)


def cited_ids(answer: list[Any], names: Citable) -> set[str]:
    """The ids that the sentences of an answer cite."""
    lists = [s["citations"] for s in answer if isinstance(s, dict) and isinstance(s.get("citations"), list | dict)]
    return {name for citations in lists for citation in citations if (name := named(citation, names)) is not None}


def _check_length(number: int, key: str, reported: Any, length: int) -> Iterator[Violation]:
    if not is_number(reported):
        yield error(number, key, f"{key}: expected a number, found {shown(reported)}")
    elif reported != length:
        yield warning(number, key, f"{key}: expected {length}, found {reported}")


def _check_citations(
    number: int, where: str, citations: list[Any] | dict[str, Any], names: Citable, track: Track
) -> Iterator[Violation]:
    if isinstance(citations, dict):
        if "scores" not in track.citations:
            yield error(number, "citation form", f"{where}: expected a list, found an object")
        for score in citations.values():
            if not is_score(score):
                yield error(number, "citations", f"{where}: expected a number as score, found {shown(score)}")
    used: set[str] = set()
    for citation in citations:
        if not isinstance(citation, str) and not is_number(citation):
            yield error(number, "citations", f"{where}: expected a position or an id, found {shown(citation)}")
            continue
        if isinstance(citations, list) and form_of(citation) not in track.citations:
            message = f"{where}: expected {' or '.join(track.citations)}, found {shown(citation)}"
            yield error(number, "citation form", message)
        name = named(citation, names)
        if name is None:
            yield error(number, "citation of nothing", f"{where}: {shown(citation)} names no reference")
        elif name in used:
            yield warning(number, "repeated citation", f"{where}: {shown(citation)} names what is cited already")
        else:
            used.add(name)
    if track.cited is not None and len(citations) > track.cited:
        message = f"{where}: expected at most {track.cited}, found {len(citations)}"
        yield error(number, "too many citations", message)


def forms_in(answer: list[Any]) -> set[CitationForm]:
    """The forms of the citations in lists of an answer."""
    lists = [s["citations"] for s in answer if isinstance(s, dict) and isinstance(s.get("citations"), list)]
    return {form_of(c) for citations in lists for c in citations if isinstance(c, str) or is_number(c)}


def _check_forms(number: int, answer: list[Any], track: Track, forms: dict[CitationForm, int]) -> Iterator[Violation]:
    found = sorted(forms_in(answer), reverse=True)
    for form in found:
        forms.setdefault(form, number)
        expected, line = next(iter(forms.items()))
        if form != expected and not track.mixed:
            message = f"citations: expected {expected} as on line {line}, found {form}"
            yield error(number, "mixed citations", message)
