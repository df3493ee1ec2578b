"""Files of Keystone's own runs: the evidence and the answers, with ids of documents or segments."""

from collections import Counter
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from keystone.indexing.errors import UserError
from keystone.indexing.io.writing import write_json_lines
from keystone.indexing.types import document_id
from keystone.runs.evaluation.nuggets.cited import Citation, CitedAnswer, CitedText
from keystone.runs.exchange.records import drop_repeated, fill, has, read_form, write_each
from keystone.runs.exchange.types import Candidate, Form, Handover, Request
from keystone.runs.parts import REQUIRED, Id, Listed, Name, Part
from keystone.runs.tracks.answer_files import is_integer
from keystone.runs.tracks.violations import shorten_value

ABOUT = {"notes": [], "stop": "done", "reader": "plain", "by": "rules"}
"""What is known about the evidence of a topic, with the values that we write if a file names none."""


class _Span(Part):
    doc_id: Name = REQUIRED
    start: int = REQUIRED
    end: int = REQUIRED

    @model_validator(mode="after")
    def _check(self) -> "_Span":
        if not 0 <= self.start <= self.end:
            raise ValueError(f"expected 0 <= start <= end, found {self.start} and {self.end}")
        return self


class _Item(Part):
    span: _Span = REQUIRED
    text: str = ""
    score: float | None = None
    heading: str = ""
    query_id: Any = None
    why: Any = None
    segments: list[Id] = Field([])


class _Evidence(Part):
    topic_id: Name = REQUIRED
    items: Listed[_Item] = REQUIRED
    notes: Any = None
    stop: Any = None
    reader: Any = None
    by: Any = None


class _Sentence(Part):
    text: str = ""
    citations: Listed[Id] = ()


class _Answer(Part):
    topic_id: Name = REQUIRED
    sentences: Listed[_Sentence] = REQUIRED


def read_evidence(path: Path) -> Handover:
    """Read `evidence.jsonl` of a run: each stretch of a document is a candidate, with its place in the document.

    A stretch has the id of the first segment that overlaps it, else that of its document. `UserError` with file and
    line for another object.
    """

    def make(own: _Evidence, place: str, _: object) -> Request:
        extra = {key: value for key in ABOUT if (value := getattr(own, key))}
        return Request(own.topic_id, candidates=tuple(map(_make_candidate, own.items)), extra=extra, place=place)

    requests, unread = read_form(path, _Evidence, make)
    return Handover(tuple(requests), unread=unread)


def _make_candidate(item: _Item) -> Candidate:
    parts = {"segment": item.text, "doc_id": item.span.doc_id, "start_char": item.span.start, "end_char": item.span.end}
    further = {key: value for key in ("query_id", "why", "segments") if (value := getattr(item, key))}
    doc_id = item.segments[0] if item.segments else item.span.doc_id
    return Candidate(doc_id, item.score, parts={**parts, **fill(headings=item.heading), **further})


def write_evidence(path: Path, content: Handover) -> None:
    """Write evidence as a run does. `UserError` for a candidate without a text or without its place in its document."""
    write_json_lines(path, map(_encode_evidence, content.requests))


def _encode_evidence(one: Request) -> dict[str, Any]:
    items = [_encode_item(one, each) for each in one.candidates]
    further = {key: value for key, value in one.extra.items() if key in ABOUT}
    return {"topic_id": one.topic_id, "items": items, **ABOUT, **further}


def _encode_item(one: Request, each: Candidate) -> dict[str, Any]:
    start, end = each.parts.get("start_char"), each.parts.get("end_char")
    if not (is_integer(start) and is_integer(end) and 0 <= start <= end and each.text):
        place = one.place or "the input"
        raise UserError(
            f"{place}: candidate {each.doc_id!r}: expected a text, start_char and end_char, since evidence names its "
            f"place, found {shorten_value(start)} and {shorten_value(end)}"
        )
    doc_id = each.parts.get("doc_id") or document_id(each.doc_id)
    headings = each.parts.get("headings")
    segments = [each.doc_id] if each.doc_id != doc_id else []
    return {
        "span": {"doc_id": doc_id, "start": start, "end": end},
        "text": each.text,
        "score": each.score or 0.0,
        "query_id": each.parts.get("query_id", one.topic_id),
        "heading": headings if isinstance(headings, str) else "",
        "why": each.parts.get("why", ""),
        "segments": each.parts.get("segments", segments),
    }


def read_answers(path: Path) -> Handover:
    """Read `answers.jsonl` of a run. `UserError` with file and line for another object."""
    lost = Counter[str]()

    def make(own: _Answer, place: str, _: object) -> CitedAnswer:
        cited = (CitedText(one.text, drop_repeated(map(Citation, one.citations), lost)) for one in own.sentences)
        return CitedAnswer(own.topic_id, tuple(cited), place=place)

    answers, unread = read_form(path, _Answer, make)
    return Handover(answers=tuple(answers), unread=unread + lost)


def _encode_answer(one: CitedAnswer) -> dict[str, Any]:
    """Encode an answer as a run does, without the steps that made it."""
    sentences = [
        {"text": each.text, "citations": list(dict.fromkeys(cited.doc_id for cited in each.citations))}
        for each in one.sentences
    ]
    return {"topic_id": one.topic_id, "sentences": sentences, "fallbacks": []}


FORMS = (
    Form("evidence", "requests", "evidence.jsonl of our runs", read_evidence, write_evidence, has("items", "topic_id")),
    Form(
        "answers",
        "answers",
        "answers.jsonl of our runs",
        read_answers,
        write_each("answers", _encode_answer),
        lambda r: isinstance(r.get("sentences"), list) and "topic_id" in r,
    ),
)
