"""Files of Keystone's own runs: the evidence and the answers, with ids of documents or segments."""

from collections import Counter
from pathlib import Path
from typing import Any

from keystone.indexing.errors import UserError
from keystone.indexing.io.writing import write_json_lines
from keystone.indexing.types import document_id
from keystone.runs.evaluation.nuggets.cited import Citation, CitedAnswer, CitedText
from keystone.runs.exchange.records import Record, drop_repeated, fill, has, read_form, write_each
from keystone.runs.exchange.types import Candidate, Form, Handover, Request
from keystone.runs.tracks.answer_files import is_integer
from keystone.runs.tracks.violations import shorten_value

EVIDENCE_KEYS = ("query_id", "why", "segments")
KEPT_EVIDENCE = (
    *("topic_id", "notes", "stop", "reader", "by", "items[].span", "items[].text", "items[].score", "items[].heading"),
    *(f"items[].{key}" for key in EVIDENCE_KEYS),
)
KEPT_ANSWERS = ("topic_id", "sentences[].text", "sentences[].citations")


def read_evidence(path: Path) -> Handover:
    """Read `evidence.jsonl` of a run: each stretch of a document is a candidate, with its place in the document.

    A stretch has the id of the first segment that overlaps it, else that of its document. `UserError` with file and
    line for another object.
    """

    def parse(record: Record, place: str) -> Request:
        candidates = tuple(map(_parse_item, record.get_objects("items", required=True)))
        extra = {key: record[key] for key in ("notes", "stop", "reader", "by") if record.get(key)}
        return Request(_get_topic(record), candidates=candidates, extra=extra, place=place)

    requests, unread = read_form(path, parse, KEPT_EVIDENCE)
    return Handover(tuple(requests), unread=unread)


def _parse_item(item: Record) -> Candidate:
    span, segments = item.get_object("span"), item.get_ids("segments")
    doc_id, start, end = span.get_name("doc_id"), span.get_integer("start"), span.get_integer("end")
    if not doc_id or start is None or end is None or not 0 <= start <= end:
        raise ValueError(f"{item.where}span: expected doc_id, start and end, found {shorten_value(dict(span))}")
    parts = {"segment": item.get_string("text"), "doc_id": doc_id, "start_char": start, "end_char": end}
    heading = item.get_string("heading")
    further = {key: item[key] for key in EVIDENCE_KEYS if item.get(key)}
    return Candidate(
        segments[0] if segments else doc_id,
        item.get_number("score"),
        parts={**parts, **fill(headings=heading), **further},
    )


def write_evidence(path: Path, content: Handover) -> None:
    """Write evidence as a run does. `UserError` for a candidate without a text or without its place in its document."""
    write_json_lines(path, map(_encode_evidence, content.requests))


def _encode_evidence(one: Request) -> dict[str, Any]:
    set_of_items = {"notes": [], "stop": "done", "reader": "plain", "by": "rules"}
    items = [_encode_item(one, each) for each in one.candidates]
    further = {key: value for key, value in one.extra.items() if key in set_of_items}
    return {"topic_id": one.topic_id, "items": items, **set_of_items, **further}


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

    def parse(record: Record, place: str) -> CitedAnswer:
        sentences = []
        for one in record.get_objects("sentences", required=True):
            citations = drop_repeated(map(Citation, one.get_ids("citations")), lost)
            sentences.append(CitedText(one.get_string("text"), citations))
        return CitedAnswer(_get_topic(record), tuple(sentences), place=place)

    answers, unread = read_form(path, parse, KEPT_ANSWERS)
    return Handover(answers=tuple(answers), unread=unread + lost)


def _get_topic(record: Record) -> str:
    topic_id = record.get_name("topic_id")
    if not topic_id:
        raise ValueError(f"topic_id: expected an id, found the keys {', '.join(record) or 'none'}")
    return topic_id


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
