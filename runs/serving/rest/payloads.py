"""Stored documents as JSON, in the forms of Pyserini's servers, with a cache of the encoded ones."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

import orjson

from keystone.indexing.attached.lucene_index import PrebuiltStore
from keystone.indexing.io.json_values import parse_json
from keystone.indexing.types import Document
from keystone.retrieval.backends import renew_store
from keystone.runs.serving.batches import Batches
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
    """The documents of a service by id, each encoded once as long as the cache has room. Only one event loop may ask.

    The cache holds at most `CACHE_BYTES` of JSON. If it is full, the document that was used longest ago leaves it.
    """

    def __init__(self, service: Service) -> None:
        self._batches: Batches[Sequence[str], list[str | None]] = Batches(_open_reading(service), MOST_REQUESTS)
        self._encoded: OrderedDict[tuple[Form, str], bytes] = OrderedDict()
        self._bytes = 0

    async def encode(self, doc_ids: Sequence[str], form: Form) -> list[bytes | None]:
        """Encode documents, in order; None for an id that the index lacks."""
        cache, found = self._encoded, list[bytes | None]()
        missing = list[int]()
        for place, doc_id in enumerate(doc_ids):
            own = cache.get(key := (form, doc_id))
            found.append(own)
            if own is None:
                missing.append(place)
            else:
                cache.move_to_end(key)
        if missing:
            raws = await self.read([doc_ids[place] for place in missing])
            for place, raw in zip(missing, raws, strict=True):
                if raw is not None:
                    found[place] = self._keep((form, doc_ids[place]), ENCODERS[form](raw))
        return found

    async def read(self, doc_ids: Sequence[str]) -> list[str | None]:
        """Read documents as they are stored, in order; None for an id that the index lacks."""
        return await self._batches.ask(doc_ids)

    def _keep(self, key: tuple[Form, str], encoded: bytes) -> bytes:
        if key not in self._encoded:
            self._encoded[key] = encoded
            self._bytes += len(encoded)
            while self._bytes > CACHE_BYTES:
                _, oldest = self._encoded.popitem(last=False)
                self._bytes -= len(oldest)
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
    """Make the JSON that stands for a document of an index of Keystone's own. A segment's text is under `segment`."""
    is_segment = [segment.id for segment in document.segments] == [document.id]
    fields = {name: getattr(document, name) for name in ("title", "url", "headings", "language")}
    record = {"id": document.id, **{key: value for key, value in fields.items() if value}}
    return orjson.dumps({**record, "segment" if is_segment else "contents": document.text}).decode()


def make_segment_raw(document: Document, segment_id: str) -> str | None:
    """Make the JSON that stands for a segment of a document; None if the document lacks it."""
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
    """Parse a stored document as an object without its id. Any other value stands under `contents`."""
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
