"""The operations of the REST interface: each makes the bytes of its reply, in the form of Pyserini's servers."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal

import orjson

from keystone.indexing.attached.lucene_index import PrebuiltStore
from keystone.indexing.errors import NotFound, UserError
from keystone.indexing.index import describe_languages
from keystone.indexing.io.json_values import parse_json
from keystone.indexing.types import Document, document_id
from keystone.retrieval.backends import renew_store
from keystone.runs.report.passages import Passage
from keystone.runs.serving import service as operations
from keystone.runs.serving.bm25 import Batches
from keystone.runs.serving.call_log import Call, Reply
from keystone.runs.serving.server.json_replies import make_error
from keystone.runs.serving.service import Service

Form = Literal["parsed", "object", "raw", "contents"]
"""A document as its object without its id, as the string that the index stores, or as its text alone.

A parsed object with one value is that value. An `object` is always one.
"""
ID_KEYS = frozenset({"id", "_id", "docid"})
CUT_KEYS = frozenset({"body", "content", "contents", "headings", "segment", "text"})
"""The keys whose texts `max_doc_length` cuts, in lower case."""
CACHE_BYTES = 2**26
MOST_REQUESTS = 64
"""The most requests whose documents are read in one batch."""


class StoredDocuments:
    """A service, and its documents by id, each encoded once as long as the cache has room. Only one event loop may ask.

    The cache holds at most `CACHE_BYTES` of JSON, or a single longer document. If it is full, it begins anew.
    """

    def __init__(self, service: Service) -> None:
        self.service = service
        self._batches: Batches[Sequence[str], list[str | None]] = Batches(_open_reading(service), MOST_REQUESTS)
        self._encoded: dict[Form, dict[str, bytes]] = {form: {} for form in ENCODERS}
        self._bytes = 0

    async def encode(self, doc_ids: Sequence[str], form: Form) -> list[bytes | None]:
        """Encode documents, in order; None for an id that the index lacks."""
        found = list(map(self._encoded[form].get, doc_ids))
        if None in found:
            missing = [place for place, own in enumerate(found) if own is None]
            raws = await self.read([doc_ids[place] for place in missing])
            for place, raw in zip(missing, raws, strict=True):
                if raw is not None:
                    found[place] = self._keep(form, doc_ids[place], ENCODERS[form](raw))
        return found

    async def read(self, doc_ids: Sequence[str]) -> list[str | None]:
        """Read documents as they are stored, in order; None for an id that the index lacks."""
        return await self._batches.ask(doc_ids)

    def _keep(self, form: Form, doc_id: str, encoded: bytes) -> bytes:
        if self._bytes + len(encoded) > CACHE_BYTES:
            self._encoded, self._bytes = {form: {} for form in ENCODERS}, 0
        if doc_id not in self._encoded[form]:
            self._encoded[form][doc_id] = encoded
            self._bytes += len(encoded)
        return encoded


def _open_reading(service: Service) -> Callable[[Sequence[Sequence[str]]], list[list[str | None]]]:
    def read(asked: Sequence[Sequence[str]]) -> list[list[str | None]]:
        unique = list(dict.fromkeys(doc_id for doc_ids in asked for doc_id in doc_ids))
        store = renew_store(service.index, service.store)
        rows = store.rows(unique)
        known = rows[rows >= 0]
        raws = store.raws(known) if isinstance(store, PrebuiltStore) else map(_make_raw, store.get(known))
        by_row = dict(zip(known.tolist(), raws, strict=True))
        found = {doc_id: by_row.get(row) for doc_id, row in zip(unique, rows.tolist(), strict=True)}
        return [[found[doc_id] for doc_id in doc_ids] for doc_ids in asked]

    return read


def _make_raw(document: Document) -> str:
    """Make the JSON for a document of an index that Keystone made. A segment's text is under `segment`."""
    is_segment = [segment.id for segment in document.segments] == [document.id]
    fields = {name: getattr(document, name) for name in ("title", "url", "headings", "language")}
    record = {"id": document.id, **{key: value for key, value in fields.items() if value}}
    return orjson.dumps({**record, "segment" if is_segment else "contents": document.text}).decode()


def make_segment_raw(document: Document, segment_id: str) -> str | None:
    """Make the JSON for a segment of a document; None if the document lacks it."""
    for segment in document.segments:
        if segment.id == segment_id:
            text = document.segment_text(segment)
            return _make_raw(replace(document, id=segment_id, text=text, segments=(segment,)))
    return None


def parse_payload(raw: str) -> Any:
    """Parse a stored document as Pyserini 2 shows it: without its id, and with values as strings.

    If one value is left, it is the payload. A document that is no JSON object stays as it is.
    """
    parsed = _parse(raw)
    return next(iter(parsed.values())) if isinstance(parsed, dict) and len(parsed) == 1 else parsed


def parse_object(raw: str) -> dict[str, Any]:
    """Parse a stored document as an object without its id. Any other value is put under `contents`."""
    parsed = _parse(raw)
    return parsed if isinstance(parsed, dict) else {"contents": parsed if isinstance(parsed, str) else raw}


def _parse(raw: str) -> Any:
    try:
        record = parse_json(raw)
    except ValueError:
        return raw
    if not isinstance(record, dict):
        return record
    return {
        key: value if isinstance(value, dict | list) else str(value)
        for key, value in record.items()
        if key not in ID_KEYS
    }


def cut_payload(payload: Any, most: int) -> Any:
    """Cut the text of a parsed document to its first `most` characters."""
    if isinstance(payload, str):
        return payload[:most]
    if not isinstance(payload, dict):
        return payload
    return {
        key: value[:most] if key.lower() in CUT_KEYS and isinstance(value, str) else value
        for key, value in payload.items()
    }


def find_text(raw: str) -> str:
    """Find the text of a stored document, as Pyserini 1 shows it beside a hit."""
    try:
        record = parse_json(raw)
    except ValueError:
        return raw
    found = record if isinstance(record, dict) else {}
    return str(found.get("contents") or found.get("text") or found.get("segment") or "")


ENCODERS: dict[Form, Callable[[str], bytes]] = {
    "parsed": lambda raw: orjson.dumps(parse_payload(raw)),
    "object": lambda raw: orjson.dumps(parse_object(raw)),
    "raw": orjson.dumps,
    "contents": lambda raw: orjson.dumps(find_text(raw)),
}
"""The functions that encode a stored document in each form."""


Arguments = Mapping[str, Any]


async def perform(documents: StoredDocuments, call: Call) -> Reply:
    """Perform a call. An error that the client can cause becomes a reply, too."""
    key = "detail" if call.operation.startswith("indexes.") else "error"
    try:
        return await OPERATIONS[call.operation](documents, call.arguments)
    except NotFound as error:
        return make_error(str(error), 404, key)
    except UserError as error:
        return make_error(str(error), 404 if key == "detail" else 400, key)


async def _search(documents: StoredDocuments, asked: Arguments) -> Reply:
    """Pyserini 2: `GET /v1/INDEX/search`. The scores are those of the index, unrounded.

    Beyond Pyserini, the reply tells the languages of an index that was made with `--language`.
    """
    given = {key: asked[key] for key in ("k1", "b", "feedback") if asked.get(key) is not None}
    bm25, most = replace(documents.service.bm25.default, **given), asked.get("max_doc_length")
    service, language = documents.service, asked.get("language")
    hits = await operations.search(service, asked["query"], asked["hits"], asked["method"], bm25, language)
    doc_ids = [doc_id for doc_id, _ in hits]
    form: Form = "parsed" if asked["parse"] else "raw"
    if most is None:
        payloads = await documents.encode(doc_ids, form)
    else:
        raws = await documents.read(doc_ids)
        payloads = [None if raw is None else orjson.dumps(cut_payload(parse_payload(raw), most)) for raw in raws]
    candidates = [
        {"docid": doc_id, "score": score, "rank": rank, "doc": orjson.Fragment(payload or b"null")}
        for rank, ((doc_id, score), payload) in enumerate(zip(hits, payloads, strict=True), 1)
    ]
    told = describe_languages(service.index)
    head = {"api": "v1", "index": asked["index"], **told, "query": {"text": asked["query"]}}
    return Reply(orjson.dumps({**head, "candidates": candidates}), surfaced=doc_ids)


async def _fetch_document(documents: StoredDocuments, asked: Arguments) -> Reply:
    """Pyserini 2: `GET /v1/INDEX/doc/DOCID`."""
    raw = await _read(documents, asked["docid"])
    if raw is None:
        raise NotFound(f"Document not found: {asked['docid']}")
    payload: Any = parse_payload(raw) if asked["parse"] else raw
    if (most := asked.get("max_doc_length")) is not None:
        payload = cut_payload(payload, most)
    found = {"api": "v1", "index": asked["index"], "docid": asked["docid"], "doc": payload}
    return Reply(orjson.dumps(found), read=[asked["docid"]])


async def _list_segments(documents: StoredDocuments, asked: Arguments) -> Reply:
    """Beyond Pyserini: `GET /v1/INDEX/segments/DOCID`."""
    found = await operations.list_segments(documents.service, asked["docid"])
    shown = [_show_passage(one) for one in found]
    reply = {"api": "v1", "index": asked["index"], "docid": asked["docid"], "segments": shown}
    return Reply(orjson.dumps(reply), read=[one.id for one in found])


async def _fetch_segment(documents: StoredDocuments, asked: Arguments) -> Reply:
    """Beyond Pyserini: `GET /v1/INDEX/segment/ID`."""
    found = await operations.fetch_segment(documents.service, asked["id"])
    reply = {"api": "v1", "index": asked["index"], "segment": _show_passage(found)}
    return Reply(orjson.dumps(reply), read=[found.id])


async def _decompose(documents: StoredDocuments, asked: Arguments) -> Reply:
    """Beyond Pyserini: `GET /v1/INDEX/queries`."""
    queries = await operations.decompose(documents.service, asked["query"])
    shown = [{"id": query.id, "question": query.question} for query in queries]
    return Reply(orjson.dumps({"api": "v1", "index": asked["index"], "queries": shown}))


async def _search_first(documents: StoredDocuments, asked: Arguments) -> Reply:
    """Anserini's first server: `GET /api/v1.0/indexes/INDEX/search`."""
    hits = await operations.search(documents.service, asked["query"], asked["hits"])
    doc_ids = [doc_id for doc_id, _ in hits]
    objects = await documents.encode(doc_ids, "object")
    candidates = [
        {"docid": doc_id, "score": score, "doc": orjson.Fragment(found or b"null")}
        for (doc_id, score), found in zip(hits, objects, strict=True)
    ]
    query = {"text": asked["query"], "qid": asked["qid"]}
    return Reply(orjson.dumps({"query": query, "candidates": candidates}), surfaced=doc_ids)


async def _search_index(documents: StoredDocuments, asked: Arguments) -> Reply:
    """Pyserini 1: `POST /v1/indexes/INDEX/search`."""
    hits = await operations.search(documents.service, asked["query"], asked["hits"])
    doc_ids = [doc_id for doc_id, _ in hits]
    texts = await documents.encode(doc_ids, "contents")
    no_image = {"document_img_path": None, "encoded_img": None}
    candidates = [
        {"docid": doc_id, "score": score, "document_txt": orjson.Fragment(text or b'""'), **no_image}
        for (doc_id, score), text in zip(hits, texts, strict=True)
    ]
    query = {"qid": asked["qid"], "query_txt": asked["query"], "query_img_path": None, "query_modality": "text"}
    return Reply(orjson.dumps({"query": {**query, "fp16": False}, "candidates": candidates}), surfaced=doc_ids)


async def _fetch_index_document(documents: StoredDocuments, asked: Arguments) -> Reply:
    """Pyserini 1: `GET /v1/indexes/INDEX/documents/DOCID`."""
    raw = await _read(documents, asked["docid"])
    if raw is None:
        raise NotFound(f"Document {asked['docid']} not found in index {asked['index']}")
    payload = raw if raw.lstrip().startswith("{") else orjson.dumps({"id": asked["docid"], "contents": raw}).decode()
    return Reply(payload.encode(), read=[asked["docid"]])


async def _read(documents: StoredDocuments, name: str) -> str | None:
    """Read the document with an id as it is stored, or else the segment with it; None if the index has neither.

    Answers cite segments, and an index of segments in Pyserini has each of them as a document.
    """
    (raw,) = await documents.read([name])
    if raw is not None or document_id(name) == name:
        return raw
    with suppress(NotFound):
        return make_segment_raw(await operations.fetch_document(documents.service, document_id(name)), name)
    return None


def _show_passage(passage: Passage) -> dict[str, str]:
    return {"id": passage.id, "docid": passage.document, "title": passage.title, "text": passage.text}


OPERATIONS: dict[str, Callable[[StoredDocuments, Arguments], Awaitable[Reply]]] = {
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
