"""Checks of an answer file: of each object and its sentences, and of the file: one answer for each topic, one run.

The module lists keys that no track asks for, but that the organisers' program reads: it refuses an answer with a value
of another type there. Source: `autojudge_base.report` of autojudge-base 1.0.0. Any other key may have any value.
"""

import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import BaseModel, ValidationError

from keystone.indexing.io.json_values import parse_json
from keystone.indexing.types import describe_id, is_id
from keystone.runs.track_rules import DEFAULT_TEAM, OPTIONS, TYPES, CitationForm, Key, KeyContent, Track
from keystone.runs.tracks.answer_files import (
    find_citation_form,
    get_metadata,
    is_integer,
    is_score,
    list_citations,
    list_cited_ids,
    list_references,
    map_citations,
    resolve_citation,
)
from keystone.runs.tracks.check_run import check_ids
from keystone.runs.tracks.violations import (
    Lines,
    Violation,
    make_error,
    make_warning,
    parse_object,
    put_on_line,
    shorten_value,
    tell_expected,
)
from keystone.runs.wording import plural

Citable = Mapping[str | int, str]
"""The id that each citation of an answer names: by its position among the references, or by the id itself."""
CONTEXT_CHARACTERS = 20
"""Characters that a message shows before and after the place where two narratives differ."""
ID_CONTENTS: tuple[KeyContent, ...] = ("team", "run", "topic")


def check_answers(content: Lines, track: Track, topics: Mapping[str, str]) -> Iterator[Violation]:
    """Find the violations of an answer file. `topics` maps topic ids to narratives."""
    run, owned = "", False
    answered, foreign = dict[str, int](), dict[str, int]()
    forms = dict[CitationForm, int]()
    default_team_lines = list[int]()
    records = sentences = 0
    for number, line in content:
        if not line.strip():
            yield make_warning("blank line", "blank line", number)
            continue
        try:
            record = parse_json(line)
        except ValueError as problem:
            yield make_error("not JSON", f"not JSON: {problem}; expected one object on each line", number)
            continue
        if not isinstance(record, dict):
            yield make_error("not an object", f"expected an object, found {shorten_value(record)}", number)
            continue
        records += 1
        sentences += len(list_sentences(record, track))
        metadata = get_metadata(record, track)
        topic = ""
        if isinstance(metadata, dict):
            values = {key.holds: read_id(metadata.get(key.name)) for key in track.keys}
            topic = values["topic"]
            yield from put_on_line(number, check_metadata(metadata, track, topic, topics))
            if track.is_default_team(values.get("team", "")):
                default_team_lines.append(number)
            if topic and (first := answered.setdefault(topic, number)) != number:
                message = f"topic {shorten_value(topic)} is already answered on line {first}"
                yield make_error("repeated topic", message, number)
            run = run or values["run"]
            if values["run"] not in ("", run):
                wanted = f"{shorten_value(run)} on every line"
                yield make_error("run id", tell_expected("run_id", wanted, values["run"]), number)
        else:
            yield make_error("metadata", tell_expected(f"{track.metadata}", "an object", metadata), number)
        if track.has_gate:
            yield from put_on_line(number, _check_known_keys(record, track, topic))
        references = list_references(record, track)
        if isinstance(references, list):
            if record.get("references") is None and track.listed == "advised":
                yield make_warning("references", "references: missing; expected a list of the cited ids", number)
            yield from put_on_line(number, _check_references(references, track))
            for reference in filter(None, map(read_id, [*references, *list_cited_ids(record, track)])):
                if track.owns(reference):
                    owned = True
                else:
                    foreign.setdefault(reference, number)
        else:
            yield make_error("references", tell_expected("references", "a list of ids", references), number)
            references = []
        answer = record.get(track.sentences)
        if isinstance(answer, list):
            names = map_citations(references, ("positions",) if "positions" in track.citations else track.integers)
            yield from put_on_line(number, _check_sentences(record, names, track, track.limit(topic)))
            yield from _check_forms(number, answer, track, forms)
        else:
            yield make_error(track.sentences, tell_expected(track.sentences, "a list", answer), number)
    yield from check_ids(foreign, track, "error" if track.strict_ids or owned else "warning")
    if default_team_lines:
        lines = plural(len(default_team_lines), "line")
        message = f"team: found {DEFAULT_TEAM!r}, the default of Keystone, on {lines}; expected your team"
        yield make_warning("default team", message, default_team_lines[0])
    if not records:
        yield make_error("no answer", f"holds no answer, expected answers to {plural(len(topics), 'topic')}")
    elif not sentences:
        yield make_error("no sentence", f"holds no sentence in {plural(records, 'answer')}")
    for topic in topics if records else ():
        if topic not in answered:
            yield make_error("missing topic", f"topic {shorten_value(topic)}: no answer")


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
    metadata: dict[str, Any], track: Track, topic: str, topics: Mapping[str, str]
) -> Iterator[Violation]:
    """Find the violations in an answer's metadata. `topic` is its topic, and `topics` maps ids to narratives."""
    for key in track.keys:
        value = metadata.get(key.name)
        where = key.name if track.metadata is None else f"{track.metadata}.{key.name}"
        if value is None:
            option = OPTIONS.get(key.holds)
            remedy = f"; keystone convert --to {track.form} {option} adds it" if option else ""
            yield (make_error if key.required else make_warning)(f"no {key.name}", f"{where}: missing{remedy}")
        elif key.holds == "kit":
            if not is_integer(value) or value not in (0, 1):
                yield make_error(key.name, tell_expected(where, "0 or 1", value))
        elif key.holds in ID_CONTENTS and is_integer(value):
            kind = "id as a number" if key.holds == "topic" else f"{key.name} as a number"
            yield make_error(kind, f"{where}: expected text, found the number {shorten_value(value)}")
        elif not isinstance(value, str) or not value.strip():
            yield make_error(key.name, tell_expected(where, "text", value))
        else:
            yield from _check_text(where, key, value, topics.get(topic), track)
    if topic and topic not in topics:
        yield make_error("unknown topic", f"topic {shorten_value(topic)} is not in the topics file")


def _check_text(where: str, key: Key, value: str, narrative: str | None, track: Track) -> Iterator[Violation]:
    if key.holds == "type" and value not in TYPES:
        yield make_error(key.name, tell_expected(where, f"one of {', '.join(TYPES)}", value))
    if key.holds == "run" and not track.takes_run_id(value):
        yield make_error("run id form", tell_expected(where, track.describe_run_ids(), value))
    if key.holds == "narrative" and narrative is not None and value != narrative:
        difference = describe_difference(value, narrative)
        yield make_error("narrative differs", f"{where}: differs from the topics file {difference}")


def describe_difference(found: str, expected: str) -> str:
    """Describe the first difference of two texts, and the text around it. Letters that look alike appear as escapes."""
    pairs = zip(found, expected, strict=False)
    place = next((i for i, (own, other) in enumerate(pairs) if own != other), min(len(found), len(expected)))
    alike = unicodedata.normalize("NFKC", found) == unicodedata.normalize("NFKC", expected)
    parts = (text[max(place - CONTEXT_CHARACTERS, 0) : place + CONTEXT_CHARACTERS] for text in (expected, found))
    wanted, given = (ascii(part) if alike else repr(part) for part in parts)
    return f"at character {place + 1:,}: expected {wanted}, found {given}"


def _check_references(references: list[Any], track: Track) -> Iterator[Violation]:
    for place, reference in enumerate(references):
        where = f"references[{place}]"
        if is_integer(reference):
            yield make_error("id as a number", f"{where}: expected text, found the number {shorten_value(reference)}")
        elif not isinstance(reference, str) or not is_id(reference):
            yield make_error("references", tell_expected(where, describe_id(reference), reference))
    if track.references is not None and len(references) > track.references:
        message = f"references: expected at most {track.references}, found {len(references)}"
        yield make_error("too many references", message)
    ids = list(filter(None, map(read_id, references)))
    if len(set(ids)) < len(ids):
        yield make_error("repeated reference", "references: an id is listed more than once")


def _check_sentences(record: dict[str, Any], names: Citable, track: Track, limit: int | None) -> Iterator[Violation]:
    """Find the violations of the sentences of an object. `names` maps citations to the ids in its references.

    `limit` is the most that the sentences may measure; None: any length.
    """
    answer = record[track.sentences]
    if not answer:
        yield make_warning("empty answer", f"{track.sentences}: empty")
    texts = []
    for place, sentence in enumerate(answer):
        where = f"{track.sentences}[{place}]"
        if not isinstance(sentence, dict):
            yield make_error("sentence", tell_expected(where, "an object", sentence))
            continue
        text, citations = sentence.get("text"), sentence.get("citations")
        if not isinstance(text, str) or not text.strip():
            yield make_error("text", tell_expected(f"{where}.text", "text", text))
        else:
            texts.append(text)
        if isinstance(citations, list | dict):
            yield from _check_citations(f"{where}.citations", citations, names, track)
        else:
            yield make_error("citations", tell_expected(f"{where}.citations", "a list", citations))
    cited = {resolve_citation(one, names) for citations in list_citations(answer) for one in citations}
    if (uncited := set(names.values()) - cited) and not track.uncited:
        yield make_error("uncited reference", f"references: found {len(uncited)} that no sentence cites")
    length = sum(track.length.measure(texts))
    if limit is not None and length > limit:
        message = f"{track.sentences}: expected at most {limit} {track.length.unit}, found {length}"
        yield make_error("too long", message)
    if key := track.length_key:
        reported = record.get(key)
        if reported is None:
            yield make_error(key, f"{key}: missing; expected {length}")
        elif not is_integer(reported):
            yield make_error(key, tell_expected(key, "a number", reported))
        elif reported != length:
            yield make_warning(key, f"{key}: expected {length}, found {reported}")


def _check_citations(
    where: str, citations: list[Any] | dict[str, Any], names: Citable, track: Track
) -> Iterator[Violation]:
    if isinstance(citations, dict):
        if "scores" not in track.citations:
            yield make_error("citation form", f"{where}: expected a list, found an object")
        for score in citations.values():
            if not is_score(score):
                yield make_error("citations", tell_expected(where, "a number as score", score))
    used: set[str] = set()
    for citation in citations:
        if not isinstance(citation, str) and not is_integer(citation):
            yield make_error("citations", tell_expected(where, "a position or an id", citation))
            continue
        name = resolve_citation(citation, names)
        if is_integer(citation) and name == str(citation) and "positions" not in track.citations:
            yield make_error("id as a number", f"{where}: expected text, found the number {shorten_value(citation)}")
        elif isinstance(citations, list) and find_citation_form(citation) not in track.citations:
            yield make_error("citation form", tell_expected(where, " or ".join(track.citations), citation))
        if name is None:
            yield make_error("citation without reference", f"{where}: {shorten_value(citation)} names no reference")
        elif name in used:
            message = f"{where}: {shorten_value(citation)} names a reference that the sentence cites already"
            yield make_warning("repeated citation", message)
        else:
            used.add(name)
    if track.cited is not None and len(citations) > track.cited:
        message = f"{where}: expected at most {track.cited}, found {len(citations)}"
        yield make_error("too many citations", message)


def collect_forms(answer: list[Any]) -> set[CitationForm]:
    """Collect the forms of the citations in an answer's lists."""
    cited = (one for citations in list_citations(answer, list) for one in citations)
    return {find_citation_form(one) for one in cited if isinstance(one, str) or is_integer(one)}


def mixes_forms(answer: list[Any]) -> bool:
    """Whether the sentences of an answer have citations of several forms. An empty list beside objects counts, too."""
    kinds = {type(s.get("citations")) for s in answer if isinstance(s, dict)}
    return len(collect_forms(answer)) > 1 or {list, dict} <= kinds


def _check_forms(number: int, answer: list[Any], track: Track, forms: dict[CitationForm, int]) -> Iterator[Violation]:
    """Find citations of several forms in an answer or file. `forms` keeps the first line of each form in the file."""
    if track.one_form == "answer" and mixes_forms(answer):
        message = f"citations: expected one form in all sentences, such as lists of {track.citations[0]}, found several"
        yield make_error("mixed citations", message, number)
    for form in sorted(collect_forms(answer), reverse=True) if track.one_form == "file" else ():
        forms.setdefault(form, number)
        expected, line = next(iter(forms.items()))
        if form != expected:
            message = f"citations: expected {expected} as on line {line}, found {form}"
            yield make_error("mixed citations", message, number)


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


def _check_known_keys(record: dict[str, Any], track: Track, topic: str) -> Iterator[Violation]:
    """Find values that the organisers' program cannot read. Values that other checks refuse may be among them."""
    own = {("metadata", key.name) for key in track.keys}
    try:
        _Answer.model_validate(record)
    except ValidationError as error:
        for one in error.errors(include_url=False):
            if one["loc"][:2] not in own:
                where, found = ".".join(map(str, one["loc"])), shorten_value(one["input"])
                message = f"{where}: found {found}; the organisers' program expects: {one['msg']}"
                yield make_error("key of another type", message)
    if all(record.get(key) is not None for key in SENTENCE_KEYS):
        message = f"found both {' and '.join(SENTENCE_KEYS)}: the organisers' program reads {SENTENCE_KEYS[1]}"
        yield make_error("second answer", message)
    metadata = record.get("metadata")
    for key in ("topic_id", "narrative_id"):
        other = metadata.get(key) if isinstance(metadata, dict) else None
        if topic and other is not None and str(other) != topic:
            wanted = f"{shorten_value(topic)} as elsewhere"
            yield make_error("second topic", tell_expected(f"metadata.{key}", wanted, other))
