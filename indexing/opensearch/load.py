"""Documents of a store, and their vectors, into an index of OpenSearch: all of them, each once.

A document's `_id` is its row and it is created, never replaced, so that it can be sent again whenever an answer was
lost. What the cluster has acknowledged is noted in a file, so that a later try need not send it again; what the
cluster holds in the end is counted, whatever the note says.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from indexing.errors import GaveUp, UserError
from indexing.io.retry import PATIENCE_S
from indexing.opensearch.bulk import Batch, acknowledged, batches, gaps, read_bulk, spans
from indexing.opensearch.cluster import Node, Place, Reply, Request, as_expected, close, connect
from indexing.opensearch.index import Held, Target, create, finish, held_at, index_body, refresh, refuse_other, remove
from indexing.opensearch.missing import Span, missing_rows
from indexing.opensearch.requests import Read, Work, ask, exchange
from indexing.store import DocumentStore
from indexing.types import Progress, Tick, silent
from indexing.vectors.shards import Shards

AT_ONCE = 4
"""Requests at one time, for each node."""
NAMED = 10
"""Ids that an error names."""

_SHARD_SECONDS = "15s"
"""For which the cluster waits for a shard that is not there, before it turns its documents away."""


def load(
    target: Target,
    meta: dict[str, Any],
    store: DocumentStore,
    vectors: Shards | None,
    note: Path,
    progress: Progress = silent,
    patience: float = PATIENCE_S,
) -> None:
    """Bring the index to hold all documents of the store, finished; go on where an earlier try was stopped.

    `meta` is what it says of itself, `note` the file of what was acknowledged. `UserError` for an index of another
    key, documents that the cluster rejects, and documents that it has lost although they were sent twice.
    """
    place = target.place
    nodes = connect(place.urls, AT_ONCE * len(place.urls))
    try:
        held = _held(nodes, target, meta, vectors)
        if not held.finished:
            try:
                _fill(nodes, target, held, store, vectors, note, progress, patience)
            except GaveUp:
                if not _lost_a_shard(nodes, place):
                    raise
                remove(nodes, place)
                held = _held(nodes, target, meta, vectors, target.replicas)
                _fill(nodes, target, held, store, vectors, note, progress, patience)
            with progress("Merging segments", None):
                finish(nodes, place, target.replicas)
        if (now := held_at(nodes, place)) is None or now.uuid != held.uuid:
            raise UserError(f"{place}: was removed while it was loaded: run the same command again")
        if missing := missing_rows(nodes, place, len(store)):
            raise UserError(f"{place}: {_named(store, missing)}; remove the index and run the same command again")
    finally:
        close(nodes)


def _held(
    nodes: Sequence[Node], target: Target, meta: dict[str, Any], vectors: Shards | None, replicas: int = 0
) -> Held:
    """The index that is there, ours; made if there is none."""
    if (held := held_at(nodes, target.place)) is None:
        dimension = vectors.dimension if vectors else None
        create(nodes, target.place, index_body(meta, target.shards, dimension, replicas))
        held = held_at(nodes, target.place)
    if held is None:
        raise UserError(f"{target.place}: was removed while it was made: run the same command again")
    refuse_other(target.place, held, meta["key"])
    return held


def _fill(
    nodes: Sequence[Node],
    target: Target,
    held: Held,
    store: DocumentStore,
    vectors: Shards | None,
    note: Path,
    progress: Progress,
    patience: float,
) -> None:
    """Send what has not been acknowledged; then once more what the cluster does not hold."""
    place = target.place
    done = acknowledged(note, held.uuid)
    with progress("Loading OpenSearch", len(store)) as tick:
        tick(sum(stop - start for start, stop in done))
        send(nodes, place, store, vectors, gaps(done, len(store)), note, tick, patience)
    refresh(nodes, place)
    if missing := missing_rows(nodes, place, len(store)):
        with progress("Loading again what was lost", len(missing)) as tick:
            send(nodes, place, store, vectors, spans(missing), note, tick, patience)
        refresh(nodes, place)
        if missing := missing_rows(nodes, place, len(store)):
            raise UserError(f"{place}: {_named(store, missing)}, although they were acknowledged twice")


def send(
    nodes: Sequence[Node],
    place: Place,
    store: DocumentStore,
    vectors: Shards | None,
    wanted: Iterable[Span],
    note: Path,
    tick: Tick,
    patience: float,
) -> None:
    """Send the wanted rows; write to the note, and tell `tick`, what is acknowledged."""
    params = {"filter_path": "errors,items.*.status,items.*.error", "timeout": _SHARD_SECONDS}

    def request_of(batch: Batch) -> Request:
        return Request("POST", f"{place.path}/_bulk", batch.body, params)

    def read(batch: Batch, reply: Reply) -> Read[Batch, Sequence[int]]:
        return read_bulk(batch, reply, lambda row: f"{place}: document {store.ids([row])[0]!r}")

    with note.open("ab", buffering=0) as log:
        parts = batches(store, vectors, wanted)
        for rows in exchange(nodes, parts, Work(request_of, read), AT_ONCE * len(nodes), patience):
            log.write(b"".join(b"%d %d\n" % span for span in spans(rows)))
            tick(len(rows))


def _lost_a_shard(nodes: Sequence[Node], place: Place) -> bool:
    """Whether the only copy of a shard is gone with its node."""
    health = ask(nodes, Request("GET", f"/_cluster/health{place.path}")).checked()
    with as_expected(place):
        return bool(health["status"] == "red")


def _named(store: DocumentStore, missing: Sequence[int]) -> str:
    names = ", ".join(map(repr, store.ids(missing[:NAMED])))
    return f"{len(missing)} documents are missing: {names}{', ...' if len(missing) > NAMED else ''}"
