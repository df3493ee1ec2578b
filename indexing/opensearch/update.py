"""The update of an index in OpenSearch: only new and changed documents are sent, to a copy that then takes its place.

The copy shares the files of the index. Searches see the older index until an alias leads to the copy, in one step.
Documents that stay keep their numbers (`keystone.indexing.opensearch.numbers`).
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from keystone.indexing.errors import UserError
from keystone.indexing.opensearch.analysis import check_analyzers
from keystone.indexing.opensearch.cluster import Node, Place, close, connect
from keystone.indexing.opensearch.index import (
    Held,
    clone,
    count_deleted,
    delete_documents,
    describe,
    finish,
    held_at,
    purge,
    refresh,
    remove,
    switch,
    version_at,
)
from keystone.indexing.opensearch.load import NODE_REQUESTS, Upload, send_rows
from keystone.indexing.opensearch.numbers import Numbers, read_numbers
from keystone.indexing.types import Progress, silent

PURGE_PATIENCE_S = 120.0
"""The time in which a merge must have dropped the deleted documents."""
PURGE_PAUSE_S = 5.0
"""The pause between two merges."""


def replace_documents(
    place: Place,
    meta: Mapping[str, Any],
    older_key: str,
    removed: Sequence[int],
    added: Upload | None,
    progress: Progress = silent,
) -> Numbers:
    """Remove the documents with these numbers from the index at a place, and add those of an upload.

    Returns the numbers of all documents by row, int32[documents]. `meta` is the new description of the index, with
    another key than `older_key`. If an earlier try has come to its end, the function only reads the numbers. A stopped
    one begins with a new copy. `UserError` if the place holds neither of the two indexes, or if the cluster cannot copy
    it.
    """
    nodes = connect(place.urls, NODE_REQUESTS * len(place.urls))
    try:
        held = held_at(nodes, place)
        if held is None or not held.finished or held.meta["key"] not in (older_key, meta["key"]):
            found = "no index" if held is None else "another index" if held.finished else "an index not yet finished"
            raise UserError(f"{place}: found {found}, expected the one that is to be updated")
        if held.meta["key"] != meta["key"]:
            new = version_at(place, meta["key"])
            remove(nodes, new)  # a stopped try has left it
            try:
                numbers = _fill(nodes, held, new, meta, removed, added, progress)
            except UserError:
                remove(nodes, new)
                raise
            switch(nodes, place, held.place, new)
            return numbers
        return read_numbers(nodes, held.place, meta["documents"])
    finally:
        close(nodes)


def _fill(
    nodes: Sequence[Node],
    held: Held,
    new: Place,
    meta: Mapping[str, Any],
    removed: Sequence[int],
    added: Upload | None,
    progress: Progress,
) -> Numbers:
    """Make the new index from a copy of the one that is held; returns the numbers of its documents by row."""
    check_analyzers(nodes, meta)
    clone(nodes, held.place, new)
    describe(nodes, new, meta)
    delete_documents(nodes, new, removed)
    if added:
        upload = replace(added, target=replace(added.target, place=new))
        with progress("Loading OpenSearch", len(upload.store)) as tick:
            send_rows(nodes, upload, [(0, len(upload.store))], tick)
    refresh(nodes, new)
    with progress("Merging segments", None):
        _drop_deleted(nodes, new, held.replicas)
    return read_numbers(nodes, new, meta["documents"])


def _drop_deleted(nodes: Sequence[Node], new: Place, replicas: int) -> None:
    """Merge until no segment holds a deleted document, and refuse further writes."""
    purge(nodes, new)
    finish(nodes, new, replicas)
    deadline = time.monotonic() + PURGE_PATIENCE_S
    while deleted := count_deleted(nodes, new):
        if time.monotonic() > deadline:
            raise UserError(f"{new}: the cluster keeps {deleted} deleted documents, which would change rankings")
        time.sleep(PURGE_PAUSE_S)
        finish(nodes, new, replicas)
