"""Requests with candidates as castorini's tools exchange them, and the judgments of umbrela.

Sources: castorini/rank_llm at 1b3cabb, umbrela at e2c4e41, nuggetizer at d00dc3e, ragnarok at 7233fa7, RAGDoll at
1f06719.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from keystone.indexing.errors import UserError
from keystone.indexing.io.writing import write_json_lines
from keystone.runs.exchange.records import Record, drop_taken, fill, has, read_form, write_each
from keystone.runs.exchange.types import Candidate, Form, Handover, Request, get_text
from keystone.runs.tracks.answer_files import is_integer
from keystone.runs.tracks.violations import shorten_value

QUERY_KEYS = ("qid", "id")
"""The keys of a query's id. The guidelines of 2024 write `id`, the tools `qid`."""
KEPT = (
    *("query.text", "extra", "run_id"),
    *(f"candidates[].{key}" for key in ("docid", "score", "judgment", "doc", "subtopics")),
)
KEPT_JUDGMENTS = ("query.text", "docid", "passage", "judgment", "status", "result_status", "task_id", "error")


def read_requests(path: Path) -> Handover:
    """Read a query and its candidates from each object.

    A query is a text, or an object with `text` and `qid`, which may also stand beside it. A candidate is a text, or an
    object with `docid`, `score` and `doc`; `doc` is a text or an object, which may hold the id. Its text may also stand
    beside it. `UserError` with file and line for another object.
    """

    def parse(record: Record, place: str) -> Request:
        topic_id, query = _parse_query(record)
        candidates = enumerate(record.get_list("candidates"))
        found = tuple(_parse_candidate(one, f"candidates[{number}]") for number, one in candidates)
        return Request(topic_id, query, found, record.get_string("run_id"), record.get_object("extra"), place)

    requests, unread = read_form(path, parse, KEPT, _drop_kept)
    return Handover(tuple(requests), unread=unread)


def _drop_kept(record: dict[str, Any]) -> dict[str, Any]:
    """Drop the id, and a query and the texts of candidates, as far as they are kept, so that other values are left."""
    objects = [one for one in record.get("candidates") or [] if isinstance(one, dict)]
    texts = [drop_taken(one, {"text": _parse_candidate(one, "").text}) for one in objects]
    return {**_drop_query(record), "candidates": texts}


def _drop_query(record: dict[str, Any]) -> dict[str, Any]:
    """Drop the id, and a query that is a text, as far as they are kept."""
    names = dict.fromkeys(QUERY_KEYS, _parse_query(Record(record))[0])
    query = record["query"] if isinstance(record["query"], dict) else {}
    return {**drop_taken(record, names), "query": drop_taken(query, names)}


def _parse_query(record: Record) -> tuple[str, str]:
    query = record.get("query")
    if isinstance(query, dict):
        own = record.get_object("query")
        return own.get_name(*QUERY_KEYS) or record.get_name(*QUERY_KEYS), own.get_string("text")
    if not isinstance(query, str):
        raise ValueError(f"query: expected a text, or an object with qid and text, found {shorten_value(query)}")
    return record.get_name(*QUERY_KEYS), query


def _parse_candidate(value: Any, where: str) -> Candidate:
    if isinstance(value, str):
        return Candidate("", parts={"segment": value})
    if not isinstance(value, dict):
        raise ValueError(f"{where}: expected a text or an object, found {shorten_value(value)}")
    own = Record(value, f"{where}.")
    doc = value.get("doc")
    parts = Record({"contents": doc}) if isinstance(doc, str) else own.get_object("doc")
    if not get_text(parts) and (text := own.get_string("text")):
        parts = Record({**parts, "text": text})
    doc_id = own.get_name("docid") or parts.get_name("docid")
    subtopics = own.get_object("subtopics")
    if other := [grade for grade in subtopics.values() if not is_integer(grade)]:
        raise ValueError(f"{where}.subtopics: expected whole numbers, found {shorten_value(other[0])}")
    texts = drop_taken(parts, {"docid": doc_id})
    return Candidate(doc_id, own.get_number("score"), own.get_integer("judgment"), texts, tuple(subtopics.items()))


def _encode_request(one: Request) -> dict[str, Any]:
    """Encode a query with its candidates. A grade has the key `judgment`; unknown values have no key."""
    return {
        "query": {"text": one.query, **fill(qid=one.topic_id)},
        "candidates": [
            fill(
                docid=each.doc_id,
                score=each.score,
                judgment=each.grade,
                doc=dict(each.parts),
                subtopics=dict(each.subtopics),
            )
            for each in one.candidates
        ],
        **fill(run_id=one.run_id, extra=dict(one.extra)),
    }


def read_judgments(path: Path) -> Handover:
    """Read a judged pair of query and passage from each object, as umbrela or RAGDoll writes it.

    Pairs with the same query are one request. A judgment that failed is no grade: umbrela marks it by the
    `result_status` 0, RAGDoll by the `status` failed. `UserError` with file and line for another object.
    """

    def parse(record: Record, place: str) -> tuple[tuple[str, str, str], Candidate]:
        topic_id, query = _parse_query(record)
        if "passage" not in record or "judgment" not in record:
            raise ValueError(f"expected passage and judgment, found the keys {', '.join(record) or 'none'}")
        failed = record.get("status") == "failed" or record.get("result_status") in (0, "failed")
        grade = None if failed else record.get_integer("judgment")
        passage = record.get_string("passage")
        parts = {"segment": passage} if passage else {}
        return (topic_id, query, place), Candidate(record.get_name("docid"), grade=grade, parts=parts)

    found: dict[tuple[str, str], list[Candidate]] = {}
    places: dict[tuple[str, str], str] = {}
    rows, unread = read_form(path, parse, KEPT_JUDGMENTS, _drop_query)
    for (topic_id, query, place), candidate in rows:
        found.setdefault((topic_id, query), []).append(candidate)
        places.setdefault((topic_id, query), place)
    requests = (Request(*key, tuple(own), place=places[key]) for key, own in found.items())
    return Handover(tuple(requests), unread=unread)


def write_judgments(path: Path, content: Handover) -> None:
    """Write a judged pair a line, as RAGDoll does. A pair without a grade has the judgment -1 and the status failed.

    `UserError` if no candidate has a grade.
    """
    if not any(each.grade is not None for one in content.requests for each in one.candidates):
        raise UserError(f"{path}: expected grades of candidates, found none")
    write_json_lines(path, (row for one in content.requests for row in _list_judgments(one)))


def _list_judgments(one: Request) -> Iterator[dict[str, Any]]:
    for each in one.candidates:
        graded = each.grade is not None
        yield {
            "query": one.query,
            "passage": each.text,
            "judgment": each.grade if graded else -1,
            "status": "completed" if graded else "failed",
            "result_status": int(graded),
            **fill(qid=one.topic_id, docid=each.doc_id),
        }


FORMS = (
    Form(
        "requests",
        "requests",
        "rank_llm, umbrela, nuggetizer, ragnarok, RAGDoll",
        read_requests,
        write_each("requests", _encode_request),
        lambda r: "query" in r and ("candidates" in r or isinstance(r["query"], dict)),
    ),
    Form(
        "umbrela",
        "requests",
        "judgments of umbrela and RAGDoll",
        read_judgments,
        write_judgments,
        has("passage", "judgment"),
    ),
)
