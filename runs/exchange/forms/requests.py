"""Requests with candidates as castorini's tools exchange them, and the judgments of umbrela.

Sources: castorini/rank_llm at 1b3cabb, umbrela at e2c4e41, nuggetizer at d00dc3e, ragnarok at 7233fa7, RAGDoll at
1f06719.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from keystone.indexing.errors import UserError
from keystone.indexing.io.writing import write_json_lines
from keystone.runs.exchange.records import drop_taken, fill, has, read_form, write_each
from keystone.runs.exchange.types import Candidate, Form, Handover, Request, get_text
from keystone.runs.parts import REQUIRED, Id, Listed, Part, first_of, text_as

QUERY_KEYS = ("qid", "id")
"""The keys of a query's id. The guidelines of 2024 write `id`, the tools `qid`."""


class _Query(Part):
    qid: Id = first_of(*QUERY_KEYS, exclude=True)
    text: str = ""


class _Asked(Part):
    query: Annotated[_Query, text_as("text")] = REQUIRED
    qid: Id = first_of(*QUERY_KEYS, exclude=True)


class _Document(Part, extra="allow"):
    docid: Id = ""


class _Candidate(Part):
    docid: Id = ""
    score: float | None = None
    judgment: int | None = None
    doc: Annotated[_Document, text_as("contents")] = _Document()
    text: str = first_of("text", exclude=True)
    subtopics: dict[str, int] = Field({})

    def make(self) -> Candidate:
        """Make the candidate. The text beside its document counts if the document has none."""
        own = self.doc.docid
        doc_id = self.docid or own
        parts = {**fill(docid="" if own == doc_id else own), **(self.doc.model_extra or {})}
        further = {} if get_text(parts) else fill(text=self.text)
        return Candidate(doc_id, self.score, self.judgment, parts | further, tuple(self.subtopics.items()))


class _Request(_Asked):
    candidates: Listed[Annotated[_Candidate, text_as("doc", "segment")]] = ()
    run_id: str = ""
    extra: dict[str, Any] = Field({})


class _Judged(_Asked):
    docid: Id = ""
    passage: str = ""
    judgment: int | None = None
    status: Any = None
    result_status: Any = None
    task_id: Any = None
    error: Any = None


def read_requests(path: Path) -> Handover:
    """Read a query and its candidates from each object.

    A query is a text, or an object with `text` and `qid`, which may also stand beside it. A candidate is a text, or an
    object with `docid`, `score` and `doc`; `doc` is a text or an object, which may hold the id. Its text may also stand
    beside it. `UserError` with file and line for another object.
    """

    def make(own: _Request, place: str, _: object) -> Request:
        found = tuple(one.make() for one in own.candidates)
        return Request(own.query.qid or own.qid, own.query.text, found, own.run_id, own.extra, place)

    requests, unread = read_form(path, _Request, make, _drop_kept)
    return Handover(tuple(requests), unread=unread)


def _drop_kept(record: dict[str, Any], made: Request) -> dict[str, Any]:
    """Drop the id, and a query and the texts of candidates, as far as they are kept, so that other values are left."""
    pairs = zip(record.get("candidates") or (), made.candidates, strict=True)
    texts = [drop_taken(one, {"text": own.text}) for one, own in pairs if isinstance(one, dict)]
    return {**_drop_query(record, made.topic_id), "candidates": texts}


def _drop_query(record: dict[str, Any], topic_id: str) -> dict[str, Any]:
    """Drop the id, and a query that is a text, as far as they are kept."""
    names = dict.fromkeys(QUERY_KEYS, topic_id)
    query = record["query"] if isinstance(record["query"], dict) else {}
    return {**drop_taken(record, names), "query": drop_taken(query, names)}


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

    def make(own: _Judged, place: str, record: dict[str, Any]) -> tuple[tuple[str, str, str], Candidate]:
        if "passage" not in record or "judgment" not in record:
            raise ValueError(f"expected passage and judgment, found the keys {', '.join(record) or 'none'}")
        grade = None if own.status == "failed" or own.result_status in (0, "failed") else own.judgment
        return (own.query.qid or own.qid, own.query.text, place), Candidate(
            own.docid, None, grade, fill(segment=own.passage)
        )

    found: dict[tuple[str, str], list[Candidate]] = {}
    places: dict[tuple[str, str], str] = {}
    rows, unread = read_form(path, _Judged, make, lambda record, made: _drop_query(record, made[0][0]))
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
