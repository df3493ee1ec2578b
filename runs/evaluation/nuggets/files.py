"""Nuggets, which a good answer should say, and their files: single nuggets, nuggetizer's files, and nugget banks.

Sources: castorini/nuggetizer 0.0.6; the NuggetBank of trec-auto-judge, version 3; RAGTIME 2026, task 3; NIST's
narratives of TREC RAG 2025 with their sub-narratives.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, get_args

from keystone.generation.grading.nuggets import ASSIGNMENTS, IMPORTANCES, Assignment, Importance
from keystone.indexing.errors import UserError
from keystone.indexing.io.reading import read_json_lines
from keystone.indexing.io.writing import write_json_lines
from keystone.indexing.types import Span, Store, document_id
from keystone.runs.track_rules import DEFAULT_TEAM, Aggregator
from keystone.runs.tracks.answer_files import is_integer
from keystone.runs.tracks.violations import shorten_value, tell_expected


@dataclass(frozen=True, slots=True)
class Source:
    """A document that says a nugget, and the nugget's place in it, if it is known."""

    doc_id: str
    span: Span | None = None


@dataclass(frozen=True, slots=True)
class GoldAnswer:
    """An answer to the question of a nugget."""

    text: str
    sources: tuple[Source, ...] = ()


@dataclass(frozen=True, slots=True)
class Nugget:
    """A claim, or a question with its answers. None stands for a label that nobody gave."""

    text: str
    importance: Importance | None = None
    assignment: Assignment | None = None
    name: str = ""
    sources: tuple[Source, ...] = ()
    answers: tuple[GoldAnswer, ...] | None = None
    """The answers of a question. None: the nugget is a claim."""
    aggregator: Aggregator | None = None
    sub_narrative: str = ""
    """The part of the narrative that the nugget is about; empty if its file names none."""
    place: str = field(default="", compare=False, repr=False)
    """The `file:line` that holds the nugget."""

    def list_sources(self) -> list[Source]:
        """List the sources of the nugget and of its answers, each once."""
        own = [*self.sources, *(source for answer in self.answers or () for source in answer.sources)]
        return list(dict.fromkeys(own))

    def describe(self) -> str:
        """Describe the nugget in one text: the claim, or the question with its answers."""
        joint = " or " if self.aggregator == "OR" else "; "
        return " ".join(filter(None, (self.text, joint.join(answer.text for answer in self.answers or ()))))


@dataclass(frozen=True, slots=True)
class NuggetBank:
    """The nuggets of a topic. With a run, they are assigned to the answer of that run."""

    topic_id: str
    nuggets: tuple[Nugget, ...]
    query: str = ""
    run_id: str = ""
    answer_text: str = ""
    team_id: str = ""
    description: str = ""
    """The description of the run."""

    @property
    def place(self) -> str:
        """The `file:line` of its first nugget; empty without one."""
        return self.nuggets[0].place if self.nuggets else ""


def read_texts(store: Store, ids: Iterable[str]) -> dict[str, str]:
    """Read the text of each id, which names a document, or a segment of one. Ids that the store lacks are left out."""
    wanted = list(dict.fromkeys(ids))
    names = list(dict.fromkeys([*wanted, *map(document_id, wanted)]))
    rows = [row for row in store.rows(names).tolist() if row >= 0]
    found: dict[str, str] = {}
    for document in store.get(rows):
        found |= {one.id: document.segment_text(one) for one in document.segments}
        found[document.id] = document.contents
    return {name: found[name] for name in wanted if name in found}


T = TypeVar("T")
L = TypeVar("L", bound=str)

TOPIC_KEYS = ("topic_id", "topic", "qid", "narrative_id", "query_id")
DOC_KEYS = ("doc_id", "docid")
NAME_KEYS = ("nugget_id", "claim_id", "question_id", "id", "_id")
QUERY_KEYS = ("query", "title_query", "narrative")
SUB_NARRATIVES, SUB_NARRATIVE = "sub_narratives", "mapped_sub_narrative"
BANKS = ("nuggets", "nugget_bank", "claim_bank", SUB_NARRATIVES)
"""The keys of the nuggets of a topic."""
CODE_POINTS = "unicode code points"
"""The encoding of offsets that count characters. Other offsets are not read."""


def read_nuggets(path: Path, records: Iterable[tuple[str, dict[str, Any]]] | None = None) -> list[NuggetBank]:
    """Read the nuggets of each topic, in the order of the file. `UserError` with file, line and key for a bad one.

    `records` are the objects of the file with their places, if the caller has read them; None: each line is an object.
    An object has one of five forms:

    * one nugget: its topic, `text`, and if known its document with `start` and `end`, and its name;
    * nuggetizer's: `qid`, `query`, and `nuggets` with `text`, `importance` and `assignment`, and the track's with
      `mapped_sub_narrative`, which may be in quotes;
    * auto-judge's NuggetBank: `query_id`, `title_query`, and the objects `nugget_bank` and `claim_bank`. Nuggets within
      nuggets follow them;
    * RAGTIME's: `metadata` with `topic_id`, and the list `nugget_bank`;
    * NIST's: `id`, `narrative`, and `sub_narratives` with `text` and `importance`.

    Single nuggets of a topic are one bank. Otherwise, a topic that recurs with the same run is an error.
    """
    banks: dict[tuple[str, str], NuggetBank] = {}
    single: dict[str, list[Nugget]] = {}
    if records is None:
        records = ((f"{path}:{number}", record) for number, record in read_json_lines(path))
    for place, record in records:
        try:
            if any(key in record for key in BANKS):
                bank = _parse_bank(record, place)
                if banks.setdefault((bank.topic_id, bank.run_id), bank) is not bank:
                    of_run = f" of run {bank.run_id!r}" if bank.run_id else ""
                    raise ValueError(f"topic {bank.topic_id!r}{of_run} occurs more than once")
            else:
                nugget = _parse_single(record, place)
                single.setdefault(get_id(record, TOPIC_KEYS), []).append(nugget)
        except ValueError as error:
            raise UserError(f"{place}: {error}") from error
    found = [*banks.values(), *(NuggetBank(topic_id, tuple(own)) for topic_id, own in single.items())]
    if not found:
        raise UserError(f"{path}: holds no line, expected nuggets")
    return found


def _parse_bank(record: dict[str, Any], place: str) -> NuggetBank:
    metadata = _get(record, "metadata", dict) or {}
    topic_keys = (*TOPIC_KEYS, "id") if SUB_NARRATIVES in record else TOPIC_KEYS
    topic_id = get_id(metadata if "topic_id" in metadata else record, topic_keys)
    query = next((record[key] for key in QUERY_KEYS if key in record), None)
    query = query.get("text") if isinstance(query, dict) else query
    if query is not None and not isinstance(query, str):
        raise ValueError(tell_expected("query", "a text", query))
    found = [
        nugget
        for key in BANKS
        for where, one in list_objects(record, key)
        for nugget in _parse_nuggets(one, where, place)
    ]
    of_run = record if record.get("run_id") is not None else metadata
    run_id = get_id(of_run, ("run_id",)) if of_run.get("run_id") is not None else ""
    team_id = get_id(metadata, ("team_id",)) if metadata.get("team_id") is not None else ""
    return NuggetBank(
        topic_id,
        tuple(found),
        query or "",
        run_id,
        _get(record, "answer_text", str) or "",
        "" if team_id == DEFAULT_TEAM else team_id,
        _get(metadata, "run_desc", str) or "",
    )


def _parse_nuggets(record: dict[str, Any], where: str, place: str) -> Iterator[Nugget]:
    """Parse a nugget of a bank, and then those within it."""
    kind = next((key for key in ("text", "claim", "question") if key in record), "text")
    aggregator = record.get("aggregator_type")
    yield Nugget(
        _get_text(record, kind, where),
        _get_label(record, "importance", IMPORTANCES, where),
        _get_label(record, "assignment", ASSIGNMENTS, where),
        _get_name(record),
        _parse_sources(record, where),
        _parse_answers(record, where) if kind == "question" else None,
        aggregator if aggregator in get_args(Aggregator) else None,
        _get_sub_narrative(record),
        place,
    )
    for inner, one in list_objects(record, "sub_nuggets", where):
        yield from _parse_nuggets(one, inner, place)


def _parse_answers(record: dict[str, Any], where: str) -> tuple[GoldAnswer, ...]:
    found = list_objects(record, "answers", where)
    return tuple(GoldAnswer(_get_text(one, "answer", inner), _parse_sources(one, inner)) for inner, one in found)


def _parse_sources(record: dict[str, Any], where: str) -> tuple[Source, ...]:
    """Parse references, each an id or an object with a document and offsets."""
    found = []
    for one in _get(record, "references", list) or []:
        reference = one if isinstance(one, dict) else {"doc_id": one}
        offsets = _get(reference, "offsets", dict) or {}
        offsets = offsets if offsets.get("encoding", CODE_POINTS) == CODE_POINTS else {}
        place = {"start": offsets.get("start_offset"), "end": offsets.get("end_offset")}
        found.append(_parse_source(reference | place, f"{where}references: "))
    return tuple(found)


def _parse_single(record: dict[str, Any], place: str) -> Nugget:
    number = re.split(": ?", place)[-1]
    has_source = any(key in record for key in DOC_KEYS)
    return Nugget(
        _get_text(record, "text", ""),
        _get_label(record, "importance", IMPORTANCES, ""),
        name=_get_name(record) or (f"line {number}" if number.isdigit() else number),
        sources=(_parse_source(record, ""),) if has_source else (),
        place=place,
    )


def _parse_source(record: dict[str, Any], where: str) -> Source:
    doc_id, start, end = get_id(record, DOC_KEYS, where), record.get("start"), record.get("end")
    if start is None and end is None:
        return Source(doc_id)
    if not (is_integer(start) and is_integer(end) and 0 <= start < end):
        found = f"{shorten_value(start)} and {shorten_value(end)}"
        raise ValueError(f"{where}start, end: expected the nugget's place in its document in characters, found {found}")
    return Source(doc_id, Span(doc_id, start, end))


def list_objects(record: dict[str, Any], key: str, where: str = "") -> list[tuple[str, dict[str, Any]]]:
    """List the objects under a key, which may be in a list or in an object, each with its place in the record.

    A place ends with a dot, and `where` is that of the record. `ValueError` for anything but objects.
    """
    value = record.get(key)
    if value is None:
        return []
    if not isinstance(value, list | dict):
        raise ValueError(tell_expected(f"{where}{key}", "a list or an object", value))
    places = value.items() if isinstance(value, dict) else enumerate(value)
    found = [(f"{where}{key}[{shorten_value(name)}].", one) for name, one in places]
    for place, one in found:
        if not isinstance(one, dict):
            raise ValueError(tell_expected(place[:-1], "an object", one))
    return found


def _get(record: dict[str, Any], key: str, kind: type[T]) -> T | None:
    value = record.get(key)
    if value is None or isinstance(value, kind):
        return value
    raise ValueError(tell_expected(key, f"a {kind.__name__}", value))


def _get_sub_narrative(record: dict[str, Any]) -> str:
    """Get the sub-narrative of a nugget, which some files quote; empty if it is no text."""
    value = record.get(SUB_NARRATIVE)
    text = value if isinstance(value, str) else ""
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text


def _get_text(record: dict[str, Any], key: str, where: str) -> str:
    value = record.get(key)
    if not isinstance(value, str) or not value.strip():
        raise ValueError(tell_expected(f"{where}{key}", "the text of a nugget", value))
    return value


def _get_label(record: dict[str, Any], key: str, labels: Sequence[L], where: str) -> L | None:
    value = record.get(key)
    if value is None or is_integer(value):  # numbers, which the NuggetBank allows, have no scale
        return None
    if found := next((label for label in labels if label == value), None):
        return found
    raise ValueError(tell_expected(f"{where}{key}", f"one of {', '.join(labels)}", value))


def _get_name(record: dict[str, Any]) -> str:
    return get_id(record, NAME_KEYS) if any(record.get(key) is not None for key in NAME_KEYS) else ""


def get_id(record: dict[str, Any], keys: Sequence[str], where: str = "") -> str:
    """Get the id under the first of these keys that the record has. `ValueError` if it has none, or no id there."""
    key = next((key for key in keys if record.get(key) is not None), None)
    if key is None:
        found = ", ".join(record) or "none"
        raise ValueError(f"{where}expected an id under {' or '.join(keys)}, found the keys {found}")
    if not isinstance(record[key], str) and not is_integer(record[key]):
        raise ValueError(tell_expected(f"{where}{key}", "an id", record[key]))
    return str(record[key])


def write_nuggets(path: Path, banks: Iterable[NuggetBank], form: str = "nuggetizer") -> None:
    """Write one bank a line, in one of `FORMS`. The file appears when it is whole.

    `UserError` if a topic has banks of several runs, and the form holds no run.
    """
    banks = list(banks)
    topics = Counter(bank.topic_id for bank in banks)
    if form == "nuggetbank" and banks and max(topics.values()) > 1:
        raise UserError(f"{path}: topic {topics.most_common(1)[0][0]!r} has several runs; a NuggetBank holds none")
    write_json_lines(path, map(FORMS[form], banks))


def encode_for_nuggetizer(bank: NuggetBank) -> dict[str, Any]:
    """Encode a bank as nuggetizer does. A question becomes one text with its answers; documents have no place here."""
    answer = {"answer_text": bank.answer_text, "response_length": len(bank.answer_text.split()), "run_id": bank.run_id}
    nuggets = [
        _fill(
            text=one.describe(),
            mapped_sub_narrative=one.sub_narrative or None,
            importance=one.importance,
            assignment=one.assignment,
        )
        for one in bank.nuggets
    ]
    return {"query": bank.query, "qid": bank.topic_id, **(answer if bank.run_id else {}), "nuggets": nuggets}


def encode_as_nugget_bank(bank: NuggetBank) -> dict[str, Any]:
    """Encode a bank as auto-judge's NuggetBank, version 3. Labels of an answer's run have no place here."""
    questions = [one for one in bank.nuggets if one.answers is not None]
    claims = [one for one in bank.nuggets if one.answers is None]
    return _fill(
        query_id=bank.topic_id,
        title_query=bank.query,
        format_version="v3",
        nugget_bank=_key_by_text([(one.text, _encode_nugget(bank, one, "question")) for one in questions]),
        claim_bank=_key_by_text([(one.text, _encode_nugget(bank, one, "claim")) for one in claims]),
    )


def encode_for_ragtime(bank: NuggetBank) -> dict[str, Any]:
    """Encode a bank as a line of RAGTIME's third task. A claim becomes an answer to the question of its topic."""
    run_id = bank.run_id or "nuggets"
    team_id = bank.team_id or DEFAULT_TEAM
    metadata = {"team_id": team_id, "topic_id": bank.topic_id, "run_id": run_id, "run_desc": bank.description}
    nuggets = []
    for one in bank.nuggets:
        answers = (GoldAnswer(one.text, one.sources),) if one.answers is None else one.answers
        encoded = [{"answer": each.text, "references": [source.doc_id for source in each.sources]} for each in answers]
        question = (bank.query or bank.topic_id) if one.answers is None else one.text
        nuggets.append(
            _fill(
                question=question, aggregator_type=one.aggregator or "AND", answers=encoded, importance=one.importance
            )
        )
    return {"metadata": metadata, "nugget_bank": nuggets}


FORMS: Mapping[str, Callable[[NuggetBank], dict[str, Any]]] = {
    "nuggetizer": encode_for_nuggetizer,
    "nuggetbank": encode_as_nugget_bank,
    "ragtime": encode_for_ragtime,
}
"""The forms of files of nuggets."""


def _encode_nugget(bank: NuggetBank, nugget: Nugget, kind: str) -> dict[str, Any]:
    answers = None
    if nugget.answers is not None:
        encoded = [
            (one.text, _fill(answer=one.text, references=_encode_sources(one.sources))) for one in nugget.answers
        ]
        answers = _key_by_text(encoded)
    return _fill(
        **{kind: nugget.text, f"{kind}_id": nugget.name or None},
        query_id=bank.topic_id,
        importance=nugget.importance,
        aggregator_type=nugget.aggregator,
        answers=answers,
        references=_encode_sources(nugget.sources),
    )


def _encode_sources(sources: Sequence[Source]) -> list[dict[str, Any]] | None:
    """Encode sources as references, whose offsets count characters."""
    return [
        _fill(
            doc_id=one.doc_id,
            offsets=one.span and {"start_offset": one.span.start, "end_offset": one.span.end, "encoding": CODE_POINTS},
        )
        for one in sources
    ] or None


def _key_by_text(encoded: Sequence[tuple[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Key objects by their texts. A text that recurs gets a number."""
    found: dict[str, dict[str, Any]] = {}
    for text, one in encoded:
        key, number = text, 1
        while key in found:
            number += 1
            key = f"{text} ({number})"
        found[key] = one
    return found


def _fill(**values: Any) -> dict[str, Any]:
    """Make an object of the values that are there."""
    return {key: value for key, value in values.items() if value is not None}
