"""Nuggets, which a good answer should say, and their files: single nuggets, nuggetizer's files, and nugget banks.

Sources: castorini/nuggetizer 0.0.6; the NuggetBank of trec-auto-judge, version 3; RAGTIME 2026, task 3; NIST's
narratives of TREC RAG 2025 with their sub-narratives.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Self, get_args

from pydantic import BeforeValidator, Field, model_validator

from keystone.generation.grading.nuggets import Assignment, Importance
from keystone.indexing.errors import UserError
from keystone.indexing.io.reading import read_json_lines
from keystone.indexing.io.writing import write_json_lines
from keystone.indexing.types import Span, Store, document_id
from keystone.runs.evaluation.kept import Item, keep_items
from keystone.runs.parts import REQUIRED, Id, Listed, Objects, Part, filled, first_of
from keystone.runs.track_rules import DEFAULT_TEAM, Aggregator
from keystone.runs.tracks.answer_files import is_integer
from keystone.runs.tracks.violations import shorten_value


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


TOPIC_KEYS = ("topic_id", "topic", "qid", "narrative_id", "query_id")
KEYS_OF_BANK = (*TOPIC_KEYS, "id")
DOC_KEYS = ("doc_id", "docid")
SUB_NARRATIVES = "sub_narratives"
BANKS = ("nuggets", "nugget_bank", "claim_bank", SUB_NARRATIVES)
"""The keys of the nuggets of a topic."""
CODE_POINTS = "unicode code points"
"""The encoding of offsets that count characters. Other offsets are not read."""
Text = Annotated[str, filled("the text of a nugget")]
WITHOUT_SCALE = BeforeValidator(lambda value: None if is_integer(value) else value)
"""Numbers as labels, which the NuggetBank allows, have no scale."""


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
            own = choose_part(record).read(record)
            if isinstance(own, _Line):
                single.setdefault(own.topic_id, []).append(own.make(place))
                continue
            bank = own.make(place)
            if not bank.topic_id:
                keys = ", ".join(record)
                raise ValueError(f"expected an id under {' or '.join(KEYS_OF_BANK)}, found the keys {keys}")
            if banks.setdefault((bank.topic_id, bank.run_id), bank) is not bank:
                of_run = f" of run {bank.run_id!r}" if bank.run_id else ""
                raise ValueError(f"topic {bank.topic_id!r}{of_run} occurs more than once")
        except ValueError as error:
            raise UserError(f"{place}: {error}") from error
    found = [*banks.values(), *(NuggetBank(topic_id, tuple(own)) for topic_id, own in single.items())]
    if not found:
        raise UserError(f"{path}: holds no line, expected nuggets")
    return found


class _Offsets(Part):
    start_offset: Any = None
    end_offset: Any = None
    encoding: Any = CODE_POINTS


class _Reference(Part):
    doc_id: Id = first_of(*DOC_KEYS, default=...)
    offsets: _Offsets = _Offsets()

    @model_validator(mode="after")
    def _check(self) -> Self:
        self.make_source()
        return self

    def make_source(self) -> Source:
        own = self.offsets
        is_read = own.encoding == CODE_POINTS
        return _make_source(self.doc_id, *((own.start_offset, own.end_offset) if is_read else (None, None)))


def _make_source(doc_id: str, start: Any, end: Any) -> Source:
    if start is None and end is None:
        return Source(doc_id)
    if not (is_integer(start) and is_integer(end) and 0 <= start < end):
        found = f"{shorten_value(start)} and {shorten_value(end)}"
        raise ValueError(f"start, end: expected the nugget's place in its document in characters, found {found}")
    return Source(doc_id, Span(doc_id, start, end))


_AS_OBJECT = BeforeValidator(lambda value: value if isinstance(value, dict | None) else {"doc_id": value})


class _Sourced(Part):
    references: Listed[Annotated[_Reference, _AS_OBJECT]] = ()

    def list_sources(self) -> tuple[Source, ...]:
        return tuple(one.make_source() for one in self.references)


class _GoldAnswer(_Sourced):
    answer: Text = REQUIRED


class _Labelled(Part):
    importance: Annotated[Importance | None, WITHOUT_SCALE] = None
    name: Id = first_of("nugget_id", "claim_id", "question_id", "id", "_id")


class _Line(_Labelled):
    topic_id: Id = first_of(*TOPIC_KEYS, default=...)
    text: Text = REQUIRED
    doc_id: Id = first_of(*DOC_KEYS)
    start: Any = None
    end: Any = None

    def make(self, place: str) -> Nugget:
        number = re.split(": ?", place)[-1]
        name = self.name or (f"line {number}" if number.isdigit() else number)
        sources = (_make_source(self.doc_id, self.start, self.end),) if self.doc_id else ()
        return Nugget(self.text, self.importance, name=name, sources=sources, place=place)


class _Nugget(_Labelled, _Sourced):
    text: Text = first_of("text", "claim", "question", default=...)
    question: Any = None
    assignment: Annotated[Assignment | None, WITHOUT_SCALE] = None
    answers: Objects[_GoldAnswer] = Field({})
    aggregator_type: Any = None
    mapped_sub_narrative: Any = None
    query_id: Any = None
    sub_nuggets: "Objects[_Nugget]" = Field({})

    def make(self, place: str) -> Iterator[Nugget]:
        """Make the nugget, and then those within it. Some files quote its sub-narrative."""
        about = self.mapped_sub_narrative if isinstance(self.mapped_sub_narrative, str) else ""
        answers = (GoldAnswer(one.answer, one.list_sources()) for one in self.answers.values())
        yield Nugget(
            self.text,
            self.importance,
            self.assignment,
            self.name,
            self.list_sources(),
            tuple(answers) if self.text == self.question else None,
            self.aggregator_type if self.aggregator_type in get_args(Aggregator) else None,
            about[1:-1] if len(about) > 1 and about[0] == about[-1] == '"' else about,
            place,
        )
        for one in self.sub_nuggets.values():
            yield from one.make(place)


_TEXT_OF_OBJECT = BeforeValidator(lambda value: value.get("text") or "" if isinstance(value, dict) else value)


class _Metadata(Part):
    topic_id: Id = ""
    run_id: Id = ""
    team_id: Id = ""
    run_desc: str = ""


class _Bank(Part):
    topic_id: Id = first_of(*KEYS_OF_BANK)
    query: Annotated[str, _TEXT_OF_OBJECT] = first_of("query", "title_query", "narrative")
    metadata: _Metadata = _Metadata()
    run_id: Id = ""
    answer_text: str = ""
    response_length: Any = None
    format_version: Any = None
    nuggets: Objects[_Nugget] = Field({})
    nugget_bank: Objects[_Nugget] = Field({})
    claim_bank: Objects[_Nugget] = Field({})
    sub_narratives: Objects[_Nugget] = Field({})

    def make(self, place: str) -> NuggetBank:
        found = [one for key in BANKS for each in getattr(self, key).values() for one in each.make(place)]
        return NuggetBank(
            self.metadata.topic_id or self.topic_id,
            tuple(found),
            self.query,
            self.run_id or self.metadata.run_id,
            self.answer_text,
            "" if self.metadata.team_id == DEFAULT_TEAM else self.metadata.team_id,
            self.metadata.run_desc,
        )


def choose_part(record: Mapping[str, Any]) -> type[_Line] | type[_Bank]:
    """Choose the type of a record: one nugget, or the nuggets of a topic."""
    return _Line if record.keys().isdisjoint(BANKS) else _Bank


def write_nuggets(path: Path, banks: Iterable[NuggetBank], form: str = "nuggetizer") -> None:
    """Write one bank a line, in one of `FORMS`. The file appears when it is whole.

    `UserError` if a topic has banks of several runs, and the form holds no run.
    """
    banks = list(banks)
    topics = Counter(bank.topic_id for bank in banks)
    if form == "nuggetbank" and banks and max(topics.values()) > 1:
        raise UserError(f"{path}: topic {topics.most_common(1)[0][0]!r} has several runs; a NuggetBank holds none")
    write_json_lines(path, map(FORMS[form], banks))


def keep_nuggets(out: Path, banks: Iterable[NuggetBank], form: str) -> None:
    """Raise `UserError` if the file `out` has a nugget that these banks lack or change in their form."""
    encoded = ((str(out), FORMS[form](bank)) for bank in banks)
    keep_items(out, ("nugget", "nuggets"), _list_items, _list_items(out, encoded))


def _list_items(path: Path, records: Iterable[tuple[str, dict[str, Any]]] | None = None) -> Iterator[Item]:
    """List the nuggets of a file. One without an importance, since the model failed, may still get one."""
    for bank in read_nuggets(path, records):
        for one in bank.nuggets:
            yield (bank.run_id, bank.topic_id, one.describe()), None if one.importance == "failed" else one


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
