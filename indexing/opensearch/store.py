"""The document store of an index in OpenSearch."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np
import orjson
from numpy.typing import ArrayLike, NDArray

from keystone.indexing.embedder import Vectors
from keystone.indexing.errors import UserError
from keystone.indexing.index import Index
from keystone.indexing.io.error_text import describe_error, show_value
from keystone.indexing.opensearch.cluster import Reply, Request
from keystone.indexing.opensearch.index import DOCID, DOCUMENT, PASSAGES, ROW, unpack_vectors
from keystone.indexing.opensearch.requests import NODE_REQUESTS, Dialogue, Read, send_parts
from keystone.indexing.opensearch.search import (
    REQUEST_HITS,
    open_cluster,
    read_dimension,
    search_each,
    search_of,
)
from keystone.indexing.store import from_record
from keystone.indexing.types import Document, Store, chunks, is_id

SEARCH_IDS = 4_096
REQUEST_DOCUMENTS = 128
DOCUMENTS_LIMIT_BYTES = 2**28
"""The maximum length of the answer to such a request: 2 MB a document."""
PASSAGES_OF_DOCUMENTS = 32


class OpenSearchStore(Store):
    """Documents in a cluster. `UserError` as from `open_cluster`, also if it loses the index or a document."""

    def __init__(self, index: Index) -> None:
        self._cluster = open_cluster(index)
        self._size = index.documents or 0

    def __len__(self) -> int:
        return self._size

    def ids(self, rows: ArrayLike) -> list[str]:
        """Return the document ids of rows (int[n]). `IndexError` for a row that is not in the store."""
        wanted = self._checked(rows)
        known = dict(self._pairs(ROW, self._cluster.to_numbers(np.unique(wanted)).tolist()))
        for row in wanted.tolist():
            if row not in known:
                raise UserError(f"{self._cluster.place}: row {row} is not there any more: load the index again")
        return [known[row] for row in wanted.tolist()]

    def rows(self, ids: Sequence[str]) -> NDArray[np.int32]:
        """Return the rows (int32[n]) of document ids; -1 for an id that is not in the store."""
        known = {name: row for row, name in self._pairs(DOCID, sorted({name for name in ids if is_id(name)}))}
        return np.array([known.get(name, -1) for name in ids], dtype=np.int32)

    def _pairs(self, field: str, values: Sequence[Any]) -> Iterator[tuple[int, str]]:
        size = min(SEARCH_IDS, self._cluster.window)
        searches = [
            search_of({"terms": {field: some}}, size, f"{field}s", [ROW, DOCID]) for some in chunks(values, size)
        ]
        asked, given = set(values), self._cluster.given

        def take(answer: Any) -> list[tuple[int, str]]:
            found = [(row, name) for row, name in (hit["sort"] for hit in answer.get("hits", {}).get("hits", []))]
            for row, name in found:
                if type(row) is not int or not 0 <= row < given or not isinstance(name, str) or not is_id(name):
                    raise ValueError(f"expected a row below {given} and an id, found {show_value([row, name])}")
                if (row if field == ROW else name) not in asked:
                    raise ValueError(f"found {show_value([row, name])}, which was not asked for")
            rows = self._cluster.to_rows([row for row, _ in found]).tolist()
            return [(row, name) for row, (_, name) in zip(rows, found, strict=True)]

        yield from chain.from_iterable(search_each(self._cluster, searches, take))

    def get(self, rows: ArrayLike) -> list[Document]:
        """Return the documents of rows (int[n]). `IndexError` for a row that is not in the store."""
        wanted = self._checked(rows)
        parts = chunks(np.unique(wanted).tolist(), REQUEST_DOCUMENTS)
        known: dict[int, Document] = {}
        nodes = self._cluster.nodes
        dialogue = Dialogue(self._request, self._read, NODE_REQUESTS * len(nodes))
        for found in send_parts(nodes, parts, dialogue):
            known.update(found)
        return [known[row] for row in wanted.tolist()]

    def _request(self, part: Sequence[int]) -> Request:
        body = orjson.dumps({"ids": [str(number) for number in self._cluster.to_numbers(part).tolist()]})
        params = {"realtime": "false", "_source_includes": DOCUMENT, "filter_path": "docs._id,docs._source,docs.error"}
        return Request("POST", f"{self._cluster.place.path}/_mget", body, params, limit=DOCUMENTS_LIMIT_BYTES)

    def _read(self, part: Sequence[int], reply: Reply) -> Read[list[int], dict[int, Document]]:
        found: dict[int, Document] = {}
        left, why = [], ""
        numbers = self._cluster.to_numbers(part).tolist()
        for row, number, answer in zip(part, numbers, reply.checked()["docs"], strict=True):
            if answer["_id"] != str(number):
                raise ValueError(f"found document {show_value(answer['_id'])}, expected {number}")
            if "error" in answer:
                left.append(row)
                why = f"{self._cluster.place}: row {row}: {describe_error(answer['error'])}"
            elif "_source" in answer:
                found[row] = _document(answer["_source"][DOCUMENT])
            else:
                raise UserError(f"{self._cluster.place}: row {row} is not there any more: load the index again")
        return Read(found or None, [left] if left else [], why)

    def passage_vectors(self, rows: Sequence[int]) -> dict[int, Vectors]:
        """Read the vectors of the passages of documents, float32[passages, dimension], by row."""
        wanted, dimension = np.unique(self._checked(rows)).tolist(), read_dimension(self._cluster)
        size = min(PASSAGES_OF_DOCUMENTS, self._cluster.window)
        searches = [
            replace(
                search_of(
                    {"terms": {ROW: self._cluster.to_numbers(part).tolist()}},
                    size,
                    "passages",
                    [ROW],
                    docvalue_fields=[PASSAGES],
                ),
                size=REQUEST_HITS,  # so that a request holds one search
            )
            for part in chunks(wanted, size)
        ]

        def take(answer: Any) -> dict[int, Vectors]:
            hits = answer.get("hits", {}).get("hits", [])
            rows = self._cluster.to_rows([hit["sort"][0] for hit in hits]).tolist()
            vectors = (unpack_vectors(hit["fields"][PASSAGES][0], dimension) for hit in hits)
            return dict(zip(rows, vectors, strict=True))

        found = dict(chain.from_iterable(own.items() for own in search_each(self._cluster, searches, take)))
        if lost := set(wanted) - found.keys():
            raise UserError(f"{self._cluster.place}: row {min(lost)} is not there any more: load the index again")
        return found

    def _checked(self, rows: ArrayLike) -> NDArray[np.int64]:
        wanted = np.asarray(rows, dtype=np.int64)
        for row in (wanted.min(), wanted.max()) if wanted.size else ():
            if not 0 <= row < self._size:
                raise IndexError(f"row {row} is not in the store")
        return wanted


def _document(record: Any) -> Document:
    """Read the document of a record. `ValueError` for a record that no store has written."""
    found = from_record(record)
    texts = found.id, found.title, found.url, found.headings, found.text, found.language
    if not all(isinstance(text, str) for text in texts) or not is_id(found.id):
        raise ValueError(f"found a document of id {show_value(found.id)}, expected an id and texts")
    for segment in found.segments:
        start, end = segment.span.start, segment.span.end
        spanned = type(start) is int and type(end) is int and 0 <= start <= end <= len(found.text)
        if not spanned or not isinstance(segment.id, str) or not is_id(segment.id):
            raise ValueError(f"found a segment of id {show_value(segment.id)}, expected one of its text")
    return found
