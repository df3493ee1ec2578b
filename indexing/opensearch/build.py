"""Index folders over documents, postings and vectors in OpenSearch, and the update of such an index.

An update sends only new and changed documents, to a copy that then takes the place of the index. The copy shares the
files of the index. Searches see the older index until an alias leads to the copy, in one step. Documents that stay keep
their numbers (`keystone.indexing.opensearch.search`).
"""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from keystone.indexing.attached.attach import AttachSettings
from keystone.indexing.errors import UserError
from keystone.indexing.index import FORMAT, ImpactSet, Index, open_index
from keystone.indexing.io.error_text import show_value
from keystone.indexing.io.json_values import digest
from keystone.indexing.io.staged import partial_folder, write_description
from keystone.indexing.io.writing import reserve_array
from keystone.indexing.opensearch.analysis import check_analyzers
from keystone.indexing.opensearch.cluster import Node, Place, as_expected, close, connect, place_of
from keystone.indexing.opensearch.index import (
    DOCID,
    ROW,
    Held,
    Target,
    check_possible,
    clone,
    count_deleted,
    delete_documents,
    describe,
    finish,
    held_at,
    index_body,
    name_held,
    purge,
    refresh,
    refuse_other,
    remove,
    switch,
    version_at,
)
from keystone.indexing.opensearch.load import Upload, send_rows
from keystone.indexing.opensearch.nodes import connect_to_all
from keystone.indexing.opensearch.requests import search_once
from keystone.indexing.opensearch.search import NUMBERS, Numbers
from keystone.indexing.types import LONGEST_DOCUMENT_ID, Embedding, Progress, is_id, silent
from keystone.indexing.vectors.embed import load_embedder

PREFIX = "opensearch:"


def check_cluster(target: Target, keys: Collection[str], meta: Mapping[str, Any], embedding: Embedding | None) -> None:
    """Raise `UserError` if the cluster cannot take the index, before Keystone reads or embeds anything for it.

    The index may have each of the `keys`. `meta` is the known part of its description of itself: `faiss`,
    `passages`, `impacts`, and its languages.
    """
    dimension = load_embedder(embedding).dimension if embedding and meta["faiss"] is not None else None
    body = index_body(meta, target.shards, dimension)
    nodes = connect(target.place.urls, 1)
    try:
        check_analyzers(nodes, meta)
        held = held_at(nodes, target.place)
        refuse_other(target.place, held, keys)
        if held is None:
            check_possible(nodes, target.place, body)
    finally:
        close(nodes)


def attach(corpus: str, out: Path, settings: AttachSettings, _progress: Progress) -> tuple[Index, bool]:
    """Make an index folder over `opensearch:URL/NAME`; see `adopt_loaded`."""
    key_env = settings.embedding.key_env if settings.embedding else None
    return adopt_loaded(place_of(corpus.removeprefix(PREFIX)), out, key_env)


def adopt_loaded(place: Place, out: Path, key_env: str | None = None) -> tuple[Index, bool]:
    """Make an index folder over an index that another folder has loaded to OpenSearch; also returns whether it is new.

    `key_env` is the environment variable with the key of the embedding model. Keystone never takes that name from the
    cluster, to which others may write. `UserError` if there is no finished index, or `out` holds another one.
    """
    nodes = connect(place.urls, 1)
    try:
        held = held_at(nodes, place)
        if held is None or not held.finished:
            found = "not yet finished" if held else "no such index"
            raise UserError(f"{place}: {found}; expected one that `keystone index CORPUS --opensearch` has made")
        if out.exists():
            existing = open_index(out)
            if (existing.key, existing.at) != (held.meta["key"], place.at):
                raise UserError(f"{out}: holds another index: remove it or choose another")
            return existing, False
        with as_expected(place):
            meta = _checked({**held.meta, "at": place.at}, key_env)
            parts_key = digest(meta)
        with partial_folder(out, parts_key, ("index.json", NUMBERS)) as folder:
            if "numbers" in meta:
                write_numbers(read_numbers(nodes, held.place, meta["documents"]), folder)
            write_description(folder, meta)
    finally:
        close(nodes)
    return open_index(out), True


def _checked(meta: dict[str, Any], key_env: str | None) -> dict[str, Any]:
    """Check a held description, and put `key_env` in. `ValueError`, `KeyError` or `TypeError` if it is not ours."""
    if meta["format"] != FORMAT:
        raise ValueError(f"index format {show_value(meta['format'])}, expected {FORMAT}: build it again")
    if not isinstance(meta["documents"], int) or meta["documents"] < 0 or not isinstance(meta["key"], str):
        raise ValueError(f"found {show_value(meta['documents'])} documents, expected their number, and a key")
    if missing := {"left_out", "cut", "faiss"} - meta.keys():
        raise ValueError(f"lacks {sorted(missing)}")
    if meta["embedding"]:
        meta["embedding"] = Embedding(**{**meta["embedding"], "key_env": key_env}).as_json()
        if not all(isinstance(value, str | int | None) for value in meta["embedding"].values()):
            raise ValueError(f"found the embedding model {show_value(meta['embedding'])}, expected names and a number")
    for one in meta.get("impacts", {}).values():
        if not all(isinstance(value, str | bool) for value in asdict(ImpactSet(**one)).values()):
            raise ValueError(f"found the impacts {show_value(one)}, expected names")
    return meta


PURGE_PATIENCE_S = 120.0
"""The time in which a merge must have dropped the deleted documents."""
PURGE_PAUSE_S = 5.0


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
    nodes = connect_to_all(place.urls)
    try:
        held = held_at(nodes, place)
        if held is None or not held.finished or held.meta["key"] not in (older_key, meta["key"]):
            raise UserError(f"{place}: found {name_held(held)}, expected the one that is to be updated")
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


PAGE_DOCUMENTS = 5_000
"""The documents of which one request brings number and id."""


def write_numbers(numbers: Numbers, folder: Path) -> None:
    """Write the numbers of documents by row, int32[documents], into an index folder."""
    file = reserve_array(folder / NUMBERS, np.int32, numbers.shape)
    file[:] = numbers
    file.flush()


def read_numbers(nodes: Sequence[Node], place: Place, count: int) -> Numbers:
    """Read the numbers of documents by row: int32[count]; memory 60 bytes each. `UserError` for another count."""
    numbers, names = list[int](), list[bytes]()
    after: list[int] = []
    while True:
        asked = {"size": PAGE_DOCUMENTS, "sort": [{ROW: "asc"}], "_source": False, "docvalue_fields": [DOCID]}
        asked |= {"search_after": after} if after else {}
        answer = search_once(nodes, place, asked)
        with as_expected(place):
            hits = answer["hits"]["hits"]
            for hit in hits:
                (number,), (name,) = hit["sort"], hit["fields"][DOCID]
                if type(number) is not int or not is_id(name, LONGEST_DOCUMENT_ID) or [number] <= after:
                    raise ValueError("found a document without a number and an id of its own")
                after = [number]
                numbers.append(number)
                names.append(name.encode())
        if len(hits) < PAGE_DOCUMENTS:
            break
    if len(set(names)) != count or len(names) != count:
        raise UserError(f"{place}: holds {len(names)} documents, expected {count}: load the index again")
    return np.array(numbers, np.int32)[np.argsort(np.array(names), kind="stable")]
