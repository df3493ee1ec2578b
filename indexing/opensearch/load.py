"""Loading the documents of a store, and their vectors, into an index of OpenSearch: all of them, each once.

A document's `_id` is its row, and Keystone creates it but never replaces it. So Keystone can send a document again
whenever an answer was lost. A file notes the rows that the cluster has acknowledged, so that a later try skips them.
At the end Keystone counts the documents that the cluster holds, whatever the note says.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from keystone.indexing.errors import GaveUp, UserError
from keystone.indexing.io.retry import PATIENCE_S
from keystone.indexing.opensearch.bulk import Batch, acknowledged, batches, gaps, read_bulk, spans
from keystone.indexing.opensearch.cluster import Node, Place, Reply, Request, as_expected, close, connect
from keystone.indexing.opensearch.index import (
    Held,
    Target,
    create,
    finish,
    held_at,
    index_body,
    refresh,
    refuse_other,
    remove,
)
from keystone.indexing.opensearch.missing import Span, missing_rows
from keystone.indexing.opensearch.requests import Dialogue, Read, ask, send_parts
from keystone.indexing.store import DocumentStore
from keystone.indexing.types import Progress, Tick, silent
from keystone.indexing.vectors.passages import Offsets
from keystone.indexing.vectors.shards import Shards

NODE_REQUESTS = 4
"""The maximum number of requests to one node at a time."""
NAMED_IDS = 10
"""The maximum number of ids that an error names."""

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


def load(upload: Upload, progress: Progress = silent) -> None:
    """Load all documents of the store into the index and finish it; go on from where an earlier try stopped.

    If the place holds an index of another key, the function raises `UserError`. It also raises `UserError` for
    documents that the cluster rejects, or loses although Keystone has sent them twice. `GaveUp` if nothing succeeds for
    `upload.patience` seconds.
    """
    target, store = upload.target, upload.store
    place = target.place
    nodes = connect(place.urls, NODE_REQUESTS * len(place.urls))
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
    """Send the documents of the wanted rows. The note and `tick` receive the rows that the cluster acknowledges.

    `UserError` for a document that the cluster rejects; `GaveUp` as from `load`.
    """
    place, store = upload.target.place, upload.store
    params = {"filter_path": "errors,items.*.status,items.*.error", "timeout": _SHARD_TIMEOUT}

    def request_of(batch: Batch) -> Request:
        return Request("POST", f"{place.path}/_bulk", batch.body, params)

    def read(batch: Batch, reply: Reply) -> Read[Batch, Sequence[int]]:
        return read_bulk(batch, reply, lambda row: f"{place}: document {store.ids([row])[0]!r}")

    dialogue = Dialogue(request_of, read, NODE_REQUESTS * len(nodes), upload.patience)
    with upload.note.open("ab", buffering=0) as log:
        for rows in send_parts(nodes, batches(store, upload.vectors, wanted, upload.offsets), dialogue):
            log.write(b"".join(b"%d %d\n" % span for span in spans(rows)))
            tick(len(rows))


def _lost_a_shard(nodes: Sequence[Node], place: Place) -> bool:
    """Tell whether the only copy of a shard is gone with its node."""
    health = ask(nodes, Request("GET", f"/_cluster/health{place.path}")).checked()
    with as_expected(place):
        return bool(health["status"] == "red")


def _name_missing(store: DocumentStore, missing: Sequence[int]) -> str:
    """Write the number of missing rows and the first of their ids."""
    names = ", ".join(map(repr, store.ids(missing[:NAMED_IDS])))
    return f"{len(missing)} documents are missing: {names}{', ...' if len(missing) > NAMED_IDS else ''}"
