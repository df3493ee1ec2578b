"""Loading the documents of a store, and their vectors, into an index of OpenSearch: all of them, each once.

A document's `_id` is its row, and Keystone creates it but never replaces it. So Keystone can send a document again
whenever an answer was lost. A file notes the rows that the cluster has acknowledged, so that a later try skips them.
At the end Keystone counts the documents that the cluster holds, whatever the note says.
Rows that the index lacks are found by counting ranges of rows, and splitting those that lack some.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise, repeat
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from keystone.indexing.errors import GaveUp, UserError
from keystone.indexing.impacts import RowImpacts
from keystone.indexing.io.error_text import describe_error
from keystone.indexing.io.retry import PATIENCE_S, is_retryable
from keystone.indexing.opensearch.analysis import CONTENTS
from keystone.indexing.opensearch.cluster import Node, Place, Reply, Request, as_expected, close
from keystone.indexing.opensearch.index import (
    DOCID,
    DOCUMENT,
    IMPACTS,
    PASSAGES,
    ROW,
    VECTOR,
    Held,
    Target,
    create,
    finish,
    held_at,
    index_body,
    pack_vectors,
    refresh,
    refuse_other,
    remove,
)
from keystone.indexing.opensearch.nodes import connect_to_all
from keystone.indexing.opensearch.requests import NODE_REQUESTS, Dialogue, Read, administer, search_once, send_parts
from keystone.indexing.store import DocumentStore, from_record
from keystone.indexing.types import Progress, Tick, chunks, fill_batches, merge_spans, silent
from keystone.indexing.vectors.passages import Offsets
from keystone.indexing.vectors.shards import Shards

REQUEST_RANGES = 1_024
SPLIT_PARTS = 16
LISTED_ROWS = 1_000
"""The length up to which Keystone lists the rows of a range instead of splitting it."""

Span = tuple[int, int]
"""Rows from the first number up to, but not including, the second."""


def missing_rows(nodes: Sequence[Node], place: Place, count: int) -> list[int]:
    """Return the rows below `count` that the index lacks, ascending. `UserError` if it holds other documents too."""
    with as_expected(place):
        held = search_once(nodes, place, {"size": 0, "track_total_hits": True})["hits"]["total"]["value"]
        missing: list[int] = []
        suspected = [(0, count)]
        while suspected:
            incomplete = [
                span
                for some in chunks(suspected, REQUEST_RANGES)
                for span, found in _counted(nodes, place, some)
                if found < span[1] - span[0]
            ]
            missing += [
                row for span in incomplete if span[1] - span[0] <= LISTED_ROWS for row in _listed(nodes, place, span)
            ]
            suspected = [part for span in incomplete if span[1] - span[0] > LISTED_ROWS for part in _parts(span)]
        if held > count - len(missing):
            raise UserError(
                f"{place}: holds {held} documents, expected {count}: others write to it: choose another name"
            )
        return sorted(missing)


def _counted(nodes: Sequence[Node], place: Place, ranges: Sequence[Span]) -> Iterator[tuple[Span, int]]:
    asked = {"field": ROW, "ranges": [{"from": start, "to": stop} for start, stop in ranges]}
    found = search_once(nodes, place, {"size": 0, "aggs": {"rows": {"range": asked}}})
    counts = [bucket["doc_count"] for bucket in found["aggregations"]["rows"]["buckets"]]
    return zip(ranges, counts, strict=True)


def _listed(nodes: Sequence[Node], place: Place, span: Span) -> list[int]:
    query = {"range": {ROW: {"gte": span[0], "lt": span[1]}}}
    asked = {"size": LISTED_ROWS, "query": query, "_source": False, "stored_fields": "_none_", "docvalue_fields": [ROW]}
    hits = search_once(nodes, place, asked)["hits"]["hits"]
    there = {row for hit in hits for row in hit["fields"][ROW]}
    return [row for row in range(*span) if row not in there]


def _parts(span: Span) -> list[Span]:
    width = span[1] - span[0]
    return list(pairwise(span[0] + width * part // SPLIT_PARTS for part in range(SPLIT_PARTS + 1)))


NAMED_IDS = 10

_SHARD_TIMEOUT = "15s"
"""The time for which the cluster waits for a missing shard before it turns the shard's documents away."""


@dataclass(frozen=True, slots=True)
class Upload:
    """The documents to load, and the index that receives them."""

    target: Target
    meta: dict[str, Any]
    """The description that the index holds of itself: the content of `index.json`, without `at`."""
    store: DocumentStore
    vectors: Shards | None
    """The documents' vectors, by row, or those of their passages; None for an index without vectors."""
    note: Path
    """The file of the acknowledged rows."""
    patience: float = PATIENCE_S
    """The seconds without any success after which `load` gives up."""
    offsets: Offsets | None = None
    """The passages of the documents, if the vectors are those of passages."""
    first: int = 0
    """The number of the first document in the index: that of each document is this one and its row."""
    impacts: Mapping[str, RowImpacts] = field(default_factory=dict)
    """The impacts of the documents, by the names of the sets."""


def load(upload: Upload, progress: Progress = silent) -> None:
    """Load all documents of the store into the index and finish it; go on from where an earlier try stopped.

    If the place holds an index of another key, the function raises `UserError`. It also raises `UserError` for
    documents that the cluster rejects, or loses although Keystone has sent them twice. `GaveUp` if nothing succeeds for
    `upload.patience` seconds.
    """
    target, store = upload.target, upload.store
    place = target.place
    nodes = connect_to_all(place.urls)
    try:
        held = _find_or_create(nodes, upload)
        if not held.finished:
            try:
                _send_documents(nodes, upload, held, progress)
            except GaveUp:
                if not _lost_a_shard(nodes, place):
                    raise
                remove(nodes, place)
                held = _find_or_create(nodes, upload, target.replicas)
                _send_documents(nodes, upload, held, progress)
            with progress("Merging segments", None):
                finish(nodes, place, target.replicas)
        if (now := held_at(nodes, place)) is None or now.uuid != held.uuid:
            raise UserError(f"{place}: was removed while it was loaded: run the same command again")
        if missing := missing_rows(nodes, place, len(store)):
            raise UserError(
                f"{place}: {_name_missing(store, missing)}; remove the index and run the same command again"
            )
    finally:
        close(nodes)


def _find_or_create(nodes: Sequence[Node], upload: Upload, replicas: int = 0) -> Held:
    """Return the index at the target's place; create it if there is none. `UserError` for an index of another key."""
    target, meta, vectors = upload.target, upload.meta, upload.vectors
    if (held := held_at(nodes, target.place)) is None:
        dimension = vectors.dimension if vectors else None
        create(nodes, target.place, index_body(meta, target.shards, dimension, replicas))
        held = held_at(nodes, target.place)
    if held is None:
        raise UserError(f"{target.place}: was removed while it was made: run the same command again")
    refuse_other(target.place, held, [meta["key"]])
    return held


def _send_documents(nodes: Sequence[Node], upload: Upload, held: Held, progress: Progress) -> None:
    """Send the rows that the cluster has not acknowledged; then send the rows that it lacks once more."""
    place, store = upload.target.place, upload.store
    done = acknowledged(upload.note, held.uuid)
    with progress("Loading OpenSearch", len(store)) as tick:
        tick(sum(stop - start for start, stop in done))
        send_rows(nodes, upload, gaps(done, len(store)), tick)
    refresh(nodes, place)
    if missing := missing_rows(nodes, place, len(store)):
        with progress("Loading again what was lost", len(missing)) as tick:
            send_rows(nodes, upload, spans(missing), tick)
        refresh(nodes, place)
        if missing := missing_rows(nodes, place, len(store)):
            raise UserError(f"{place}: {_name_missing(store, missing)}, although they were acknowledged twice")


def send_rows(nodes: Sequence[Node], upload: Upload, wanted: Iterable[Span], tick: Tick) -> None:
    """Send documents; the note and `tick` get acknowledged rows. `UserError` if one is rejected, `GaveUp` as `load`."""
    place, store = upload.target.place, upload.store
    params = {"filter_path": "errors,items.*.status,items.*.error", "timeout": _SHARD_TIMEOUT}

    def request_of(batch: Batch) -> Request:
        return Request("POST", f"{place.path}/_bulk", batch.body, params)

    def read(batch: Batch, reply: Reply) -> Read[Batch, Sequence[int]]:
        return read_bulk(batch, reply, lambda row: f"{place}: document {store.ids([row])[0]!r}")

    dialogue = Dialogue(request_of, read, NODE_REQUESTS * len(nodes), upload.patience)
    with upload.note.open("ab", buffering=0) as log:
        for rows in send_parts(nodes, batches(upload, wanted), dialogue):
            log.write(b"".join(b"%d %d\n" % span for span in spans(rows)))
            tick(len(rows))


def _lost_a_shard(nodes: Sequence[Node], place: Place) -> bool:
    health = administer(nodes).cluster.health(index=place.name)
    with as_expected(place):
        return bool(health["status"] == "red")


def _name_missing(store: DocumentStore, missing: Sequence[int]) -> str:
    names = ", ".join(map(repr, store.ids(missing[:NAMED_IDS])))
    return f"{len(missing)} documents are missing: {names}{', ...' if len(missing) > NAMED_IDS else ''}"


REQUEST_BYTES, REQUEST_DOCUMENTS = 5_000_000, 5_000
"""The maximum size of a request; a single document may be larger."""
CHUNK_VECTORS = 256


@dataclass(frozen=True, slots=True)
class Batch:
    """Documents to create: their rows, the lines of `_bulk`, and the end of each document's lines in bytes."""

    rows: Sequence[int]
    body: bytes
    ends: Sequence[int]

    @classmethod
    def of(cls, rows: Sequence[int], lines: Sequence[bytes]) -> "Batch":
        """Make a batch of the lines of each document."""
        return cls(rows, b"".join(lines), np.cumsum(list(map(len, lines))).tolist())

    def only(self, positions: Sequence[int]) -> "Batch":
        """Return a batch of the documents at these positions."""
        lines = [self.body[self.ends[i - 1] if i else 0 : self.ends[i]] for i in positions]
        return Batch.of([self.rows[i] for i in positions], lines)


def batches(upload: Upload, wanted: Iterable[Span]) -> Iterator[Batch]:
    """Yield the documents of the wanted rows in batches for `_bulk`, each made on demand."""
    for batch in fill_batches(_lines(upload, wanted), lambda one: len(one[1]), REQUEST_BYTES, REQUEST_DOCUMENTS):
        yield Batch.of([row for row, _ in batch], [line for _, line in batch])


def _make_fields(upload: Upload, rows: range) -> Iterator[dict[str, Any]]:
    """Yield the fields with vectors and impacts of consecutive documents."""
    sets = {name: own.of(rows) for name, own in upload.impacts.items()}
    for place, fields in enumerate(_make_vector_fields(upload, rows)):
        yield fields | ({IMPACTS: {name: own[place] for name, own in sets.items()}} if sets else {})


def _make_vector_fields(upload: Upload, rows: range) -> Iterator[dict[str, Any]]:
    vectors, offsets = upload.vectors, upload.offsets
    if vectors is None:
        yield from repeat({}, len(rows))
    elif offsets is None:
        yield from ({VECTOR: vector} for vector in vectors.of(rows.start, rows.stop))
    else:
        for start, stop in pairwise(offsets[rows.start : rows.stop + 1].tolist()):
            yield {PASSAGES: pack_vectors(vectors.of(start, stop))} if start < stop else {}


def _lines(upload: Upload, wanted: Iterable[Span]) -> Iterator[tuple[int, bytes]]:
    for first, last in wanted:
        for rows in chunks(range(first, last), CHUNK_VECTORS):
            for row, record, fields in zip(rows, upload.store.records(rows), _make_fields(upload, rows), strict=True):
                document = from_record(orjson.loads(record))
                source = {
                    DOCID: document.id,
                    ROW: upload.first + row,
                    CONTENTS: {document.language: document.contents} if document.language else document.contents,
                    DOCUMENT: orjson.Fragment(record.rstrip()),
                    **fields,
                }
                written = orjson.dumps(source, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_APPEND_NEWLINE)
                yield row, b'{"create":{"_id":"%d"}}\n' % (upload.first + row) + written


def read_bulk(batch: Batch, reply: Reply, name: Callable[[int], str]) -> Read[Batch, Sequence[int]]:
    """Read the rows that the cluster has now, and the batches to send again. `UserError` for what it rejects."""
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
            return merge_spans([(int(start), int(stop)) for start, stop in map(bytes.split, lines[:-1])])
    note.write_bytes(uuid.encode() + b"\n")
    return []
