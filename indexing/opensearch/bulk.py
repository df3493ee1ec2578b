"""Documents as requests of OpenSearch's `_bulk`, its answers, and a note of the rows that it has acknowledged.

A document's `_id` is its row. Keystone creates documents and never replaces them: status 409 says that an answer was
lost.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise, repeat
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from keystone.indexing.errors import UserError
from keystone.indexing.io.error_text import describe_error
from keystone.indexing.io.retry import is_retryable
from keystone.indexing.opensearch.cluster import Reply
from keystone.indexing.opensearch.index import CONTENTS, DOCID, DOCUMENT, ROW, VECTOR
from keystone.indexing.opensearch.missing import Span
from keystone.indexing.opensearch.passages import PASSAGES, pack_vectors
from keystone.indexing.opensearch.requests import Read
from keystone.indexing.store import DocumentStore, from_record
from keystone.indexing.vectors.passages import Offsets
from keystone.indexing.vectors.shards import Shards

REQUEST_BYTES, REQUEST_DOCUMENTS = 5_000_000, 5_000
"""The maximum size of a request; a single document may be larger."""
CHUNK_VECTORS = 256
"""The number of vectors that Keystone reads at once."""

FieldsOf = Callable[[range], Iterator[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Batch:
    """Documents to create: their rows, the lines of `_bulk`, and the end of each document's lines in bytes."""

    rows: Sequence[int]
    body: bytes
    ends: Sequence[int]

    def only(self, positions: Sequence[int]) -> "Batch":
        """Return a batch of the documents at these positions."""
        lines = [self.body[self.ends[i - 1] if i else 0 : self.ends[i]] for i in positions]
        return Batch([self.rows[i] for i in positions], b"".join(lines), np.cumsum(list(map(len, lines))).tolist())


def batches(
    store: DocumentStore, vectors: Shards | None, wanted: Iterable[Span], offsets: Offsets | None = None
) -> Iterator[Batch]:
    """Yield the documents of the wanted rows in batches for `_bulk`, each made on demand.

    If there are `offsets`, the vectors are those of passages, and `offsets` say whose they are.
    """
    rows, lines, size = list[int](), list[bytes](), 0
    for row, line in _lines(store, _bind_fields(vectors, offsets), wanted):
        if rows and (size + len(line) > REQUEST_BYTES or len(rows) == REQUEST_DOCUMENTS):
            yield Batch(rows, b"".join(lines), np.cumsum(list(map(len, lines))).tolist())
            rows, lines, size = [], [], 0
        rows.append(row)
        lines.append(line)
        size += len(line)
    if rows:
        yield Batch(rows, b"".join(lines), np.cumsum(list(map(len, lines))).tolist())


def _bind_fields(vectors: Shards | None, offsets: Offsets | None) -> FieldsOf:
    """Return a function that makes the fields with the vectors of consecutive documents, one after the other."""

    def fields_of(rows: range) -> Iterator[dict[str, Any]]:
        if vectors is None:
            yield from repeat({}, len(rows))
        elif offsets is None:
            yield from ({VECTOR: vector} for vector in vectors.of(rows.start, rows.stop))
        else:
            for start, stop in pairwise(offsets[rows.start : rows.stop + 1].tolist()):
                yield {PASSAGES: pack_vectors(vectors.of(start, stop))} if start < stop else {}

    return fields_of


def _lines(store: DocumentStore, fields_of: FieldsOf, wanted: Iterable[Span]) -> Iterator[tuple[int, bytes]]:
    for first, last in wanted:
        for start in range(first, last, CHUNK_VECTORS):
            rows = range(start, min(start + CHUNK_VECTORS, last))
            for row, record, fields in zip(rows, store.records(rows), fields_of(rows), strict=True):
                document = from_record(orjson.loads(record))
                source = {
                    DOCID: document.id,
                    ROW: row,
                    CONTENTS: document.contents,
                    DOCUMENT: orjson.Fragment(record.rstrip()),
                    **fields,
                }
                written = orjson.dumps(source, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE)
                yield row, b'{"create":{"_id":"%d"}}\n' % row + written


def read_bulk(batch: Batch, reply: Reply, name: Callable[[int], str]) -> Read[Batch, Sequence[int]]:
    """Read the rows of a batch that the cluster has now, and the batches to send again; `name` names a row.

    `UserError` for a document that the cluster rejects, and for a batch that it refuses.
    """
    if reply.status == 413:
        if len(batch.rows) == 1:
            raise UserError(f"{name(batch.rows[0])}: {len(batch.body)} bytes, refused with status {reply.reason}")
        middle = len(batch.rows) // 2
        return Read(None, [batch.only(range(middle)), batch.only(range(middle, len(batch.rows)))], turned_away=False)
    said = reply.checked()
    items = [next(iter(item.values())) for item in said["items"]]
    if len(items) != len(batch.rows):
        raise UserError(f"{reply.url}: answered {len(items)} of {len(batch.rows)} documents of a request")
    if not said["errors"]:
        return Read(batch.rows)
    again, why = list[int](), ""
    for position, item in enumerate(items):
        status = item["status"]
        if is_retryable(status):
            again.append(position)
            why = f"{status}: {describe_error(item.get('error'))}"
        elif status >= 300 and status != 409:
            raise UserError(
                f"{name(batch.rows[position])}: rejected with status {status}: {describe_error(item.get('error'))}"
            )
    left = set(again)
    done = [row for position, row in enumerate(batch.rows) if position not in left]
    return Read(done or None, [batch.only(again)] if again else [], why)


def spans(rows: Iterable[int]) -> list[Span]:
    """Merge ascending rows into spans."""
    found = np.fromiter(rows, np.int64)
    cuts = np.flatnonzero(np.diff(found) != 1) + 1
    return [(int(part[0]), int(part[-1]) + 1) for part in np.split(found, cuts) if len(part)]


def gaps(done: Iterable[Span], count: int) -> list[Span]:
    """Return the spans of the first `count` rows that the ascending spans in `done` leave."""
    ends = [0, *(end for span in done for end in span), count]
    return [(start, stop) for start, stop in zip(ends[::2], ends[1::2], strict=True) if start < stop]


def acknowledged(note: Path, uuid: str) -> list[Span]:
    """Read the spans that the index `uuid` has acknowledged, ascending. A note of another index begins anew."""
    with suppress(OSError):
        first, *lines = note.read_bytes().split(b"\n")
        if first == uuid.encode():
            found = sorted((int(start), int(stop)) for start, stop in map(bytes.split, lines[:-1]))
            merged: list[Span] = []
            for start, stop in found:
                if merged and start <= merged[-1][1]:
                    merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
                else:
                    merged.append((start, stop))
            return merged
    note.write_bytes(uuid.encode() + b"\n")
    return []
