"""The operations of the REST interface: each makes the bytes of its reply, for a request or for `keystone replay`."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import orjson

from keystone.indexing.errors import NotFound, UserError
from keystone.indexing.index import describe_languages
from keystone.indexing.types import document_id
from keystone.runs.report.passages import Passage
from keystone.runs.serving import service as operations
from keystone.runs.serving.call_log import Call, Reply
from keystone.runs.serving.rest.payloads import Form, StoredDocuments, cut_payload, make_segment_raw, parse_payload
from keystone.runs.serving.server.json_replies import make_error
from keystone.runs.serving.service import Hit, Service

Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Rest:
    """A service with its encoded documents."""

    service: Service
    documents: StoredDocuments


async def perform(rest: Rest, call: Call) -> Reply:
    """Perform a call. An error that the client can cause becomes a reply, too."""
    key = "detail" if call.operation.startswith("indexes.") else "error"
    try:
        return await OPERATIONS[call.operation](rest, call.arguments)
    except NotFound as error:
        return make_error(str(error), 404, key)
    except UserError as error:
        return make_error(str(error), 404 if key == "detail" else 400, key)


async def _search(rest: Rest, asked: Arguments) -> Reply:
    """Pyserini 2: `GET /v1/INDEX/search`. The scores are those of the index, unrounded.

    Beyond Pyserini, the reply tells the languages of an index that was made with `--language`.
    """
    given = {key: asked[key] for key in ("k1", "b", "feedback") if asked.get(key) is not None}
    bm25, most = replace(rest.service.bm25.default, **given), asked.get("max_doc_length")
    service, language = rest.service, asked.get("language")
    hits = await operations.search(service, asked["query"], asked["hits"], asked["method"], bm25, language)
    doc_ids = [hit.doc_id for hit in hits]
    form: Form = "parsed" if asked["parse"] else "raw"
    if most is None:
        payloads = await rest.documents.encode(doc_ids, form)
    else:
        raws = await rest.documents.read(doc_ids)
        payloads = [None if raw is None else orjson.dumps(cut_payload(parse_payload(raw), most)) for raw in raws]
    candidates = b",".join(
        b'{"docid":%b,"score":%a,"rank":%d,"doc":%b}'
        % (orjson.dumps(hit.doc_id), hit.score, hit.rank, payload or b"null")
        for hit, payload in zip(hits, payloads, strict=True)
    )
    told = describe_languages(service.index)
    head = orjson.dumps({"api": "v1", "index": asked["index"], **told, "query": {"text": asked["query"]}})
    return Reply(b'%b,"candidates":[%b]}' % (head[:-1], candidates), surfaced=doc_ids)


async def _fetch_document(rest: Rest, asked: Arguments) -> Reply:
    """Pyserini 2: `GET /v1/INDEX/doc/DOCID`."""
    raw = await _read(rest, asked["docid"])
    if raw is None:
        raise NotFound(f"Document not found: {asked['docid']}")
    payload: Any = parse_payload(raw) if asked["parse"] else raw
    if (most := asked.get("max_doc_length")) is not None:
        payload = cut_payload(payload, most)
    found = {"api": "v1", "index": asked["index"], "docid": asked["docid"], "doc": payload}
    return Reply(orjson.dumps(found), read=[asked["docid"]])


async def _list_segments(rest: Rest, asked: Arguments) -> Reply:
    """Beyond Pyserini: `GET /v1/INDEX/segments/DOCID`."""
    found = await operations.list_segments(rest.service, asked["docid"])
    shown = [_show_passage(one) for one in found]
    reply = {"api": "v1", "index": asked["index"], "docid": asked["docid"], "segments": shown}
    return Reply(orjson.dumps(reply), read=[one.id for one in found])


async def _fetch_segment(rest: Rest, asked: Arguments) -> Reply:
    """Beyond Pyserini: `GET /v1/INDEX/segment/ID`."""
    found = await operations.fetch_segment(rest.service, asked["id"])
    reply = {"api": "v1", "index": asked["index"], "segment": _show_passage(found)}
    return Reply(orjson.dumps(reply), read=[found.id])


async def _decompose(rest: Rest, asked: Arguments) -> Reply:
    """Beyond Pyserini: `GET /v1/INDEX/queries`."""
    queries = await operations.decompose(rest.service, asked["query"])
    shown = [{"id": query.id, "question": query.question} for query in queries]
    return Reply(orjson.dumps({"api": "v1", "index": asked["index"], "queries": shown}))


async def _search_first(rest: Rest, asked: Arguments) -> Reply:
    """Anserini's first server: `GET /api/v1.0/indexes/INDEX/search`."""
    hits = await operations.search(rest.service, asked["query"], asked["hits"])
    doc_ids = [hit.doc_id for hit in hits]
    objects = await rest.documents.encode(doc_ids, "object")
    candidates = b",".join(
        b'{"docid":%b,"score":%a,"doc":%b}' % (orjson.dumps(hit.doc_id), hit.score, found or b"null")
        for hit, found in zip(hits, objects, strict=True)
    )
    head = orjson.dumps({"query": {"text": asked["query"], "qid": asked["qid"]}})
    return Reply(b'%b,"candidates":[%b]}' % (head[:-1], candidates), surfaced=doc_ids)


async def _search_index(rest: Rest, asked: Arguments) -> Reply:
    """Pyserini 1: `POST /v1/indexes/INDEX/search`."""
    hits = await operations.search(rest.service, asked["query"], asked["hits"])
    doc_ids = [hit.doc_id for hit in hits]
    texts = await rest.documents.encode(doc_ids, "contents")
    query = {"qid": asked["qid"], "query_txt": asked["query"], "query_img_path": None, "query_modality": "text"}
    head = orjson.dumps({"query": {**query, "fp16": False}})
    return Reply(b'%b,"candidates":[%b]}' % (head[:-1], b",".join(_list_candidates(hits, texts))), surfaced=doc_ids)


def _list_candidates(hits: Sequence[Hit], texts: Sequence[bytes | None]) -> list[bytes]:
    return [
        b'{"docid":%b,"score":%a,"document_txt":%b,"document_img_path":null,"encoded_img":null}'
        % (orjson.dumps(hit.doc_id), hit.score, text or b'""')
        for hit, text in zip(hits, texts, strict=True)
    ]


async def _fetch_index_document(rest: Rest, asked: Arguments) -> Reply:
    """Pyserini 1: `GET /v1/indexes/INDEX/documents/DOCID`."""
    raw = await _read(rest, asked["docid"])
    if raw is None:
        raise NotFound(f"Document {asked['docid']} not found in index {asked['index']}")
    payload = raw if raw.lstrip().startswith("{") else orjson.dumps({"id": asked["docid"], "contents": raw}).decode()
    return Reply(payload.encode(), read=[asked["docid"]])


async def _read(rest: Rest, name: str) -> str | None:
    """Read the document with an id as it is stored, or else the segment with it; None if the index has neither.

    Answers cite segments, and an index of segments in Pyserini has each of them as a document.
    """
    (raw,) = await rest.documents.read([name])
    if raw is not None or document_id(name) == name:
        return raw
    with suppress(NotFound):
        return make_segment_raw(await operations.fetch_document(rest.service, document_id(name)), name)
    return None


def _show_passage(passage: Passage) -> dict[str, str]:
    return {"id": passage.id, "docid": passage.document, "title": passage.title, "text": passage.text}


OPERATIONS: dict[str, Callable[[Rest, Arguments], Awaitable[Reply]]] = {
    "search": _search,
    "document": _fetch_document,
    "segments": _list_segments,
    "segment": _fetch_segment,
    "queries": _decompose,
    "api.search": _search_first,
    "indexes.search": _search_index,
    "indexes.document": _fetch_index_document,
}
"""The operations by their names in the log."""
