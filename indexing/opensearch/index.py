"""An index in OpenSearch: its mapping, its description of itself, and its life from empty to finished.

A document's `_id` is its row, and `_meta.keystone` is the content of `index.json`. A finished index accepts no writes.

One field of a document holds the vectors of its passages, packed. Entries of vectors are whole steps of the grid
(`keystone.indexing.embedder`), so each takes two bytes.
"""

import re
import time
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from keystone.indexing.embedder import GRID_STEP, Vectors
from keystone.indexing.errors import ClusterRefused, UserError
from keystone.indexing.io.error_text import describe_error, show_value
from keystone.indexing.io.retry import PATIENCE_S
from keystone.indexing.opensearch.analysis import CONTENTS, make_analysis, make_contents_field
from keystone.indexing.opensearch.cluster import Node, Place, Request, as_expected
from keystone.indexing.opensearch.requests import administer, ask
from keystone.indexing.types import chunks

DOCID, ROW, DOCUMENT, VECTOR = "docid", "row", "document", "vector"
"""The fields: a document's id, its row, its record in a store, its embedding."""
IMPACTS = "impacts"
"""The field whose parts, by the names of sets, hold impacts by the numbers of entries of the vocabulary."""
GREATEST_IMPACT = 511
"""The greatest impact up to which all are exact: `rank_features` keep 9 binary digits of a number."""
SIMILARITY = {"type": "BM25", "k1": 0.9, "b": 0.4}
EF_CONSTRUCTION = 128
VERSION_DIGITS = 16
"""How many digits of its key end the name of an updated index."""
DELETED_AT_ONCE = 10_000
SHARD_TRIES, SHARD_PAUSE_S = 20, 0.5
"""How often in a row a shard may fail to start, and the pause between two looks."""
MERGE_TIMEOUT_S = 6 * 3600.0

_HNSW = re.compile(r"HNSW(\d+)(,Flat)?")


@dataclass(frozen=True, slots=True)
class Target:
    """The index that receives documents: its place, its primary shards, and the copies of each shard."""

    place: Place
    shards: int = 1
    replicas: int = 0


@dataclass(frozen=True, slots=True)
class Held:
    """The state of an index in the cluster. If somebody removes and makes it again, `uuid` changes."""

    place: Place
    """Its own place. An updated index has a longer name than the alias by which it is found."""
    uuid: str
    meta: dict[str, Any]
    finished: bool
    replicas: int = 0


def index_body(meta: Mapping[str, Any], shards: int, dimension: int | None, replicas: int = 0) -> dict[str, Any]:
    """Make settings and mapping of an empty index.

    `meta` is the index's description of itself; `meta["faiss"]` is the kind of search among vectors,
    `meta["passages"]` tells whether they are those of passages, and the keys of `meta["impacts"]` name sets of impacts.
    `meta["language"]` and `meta["languages"]` tell the languages of the documents, if they are not English.
    `dimension` is the number of entries in a vector; None for an index without vectors. The settings speed up loading:
    no refresh, `replicas` copies, and no waiting for the disk. Raises `UserError` as `make_contents_field`,
    `vector_field` and `passages_field` do.
    """
    fields: dict[str, Any] = {
        DOCID: {"type": "keyword"},
        ROW: {"type": "integer"},
        CONTENTS: make_contents_field(meta),
        DOCUMENT: {"type": "object", "enabled": False},
    }
    settings: dict[str, Any] = {
        "number_of_shards": shards,
        "number_of_replicas": replicas,
        "refresh_interval": "-1",
        "translog": {"durability": "async"},
        "similarity": {"default": SIMILARITY},
    }
    if dimension is not None and meta.get("passages"):
        fields[PASSAGES] = passages_field(meta["faiss"], dimension)
    elif dimension is not None:
        fields[VECTOR] = vector_field(meta["faiss"], dimension)
        settings |= {"knn": True} if "method" in fields[VECTOR] else {}
    excluded = [CONTENTS, VECTOR, PASSAGES]
    if sets := meta.get("impacts"):
        fields[IMPACTS] = {"properties": {name: {"type": "rank_features"} for name in sets}}
        excluded.append(IMPACTS)
    return {
        "settings": {"index": settings, "analysis": make_analysis(meta)},
        "mappings": {
            "dynamic": "strict",
            "_meta": {"keystone": dict(meta)},
            "_source": {"excludes": excluded},
            "properties": fields,
        },
    }


def vector_field(faiss: str, dimension: int) -> dict[str, Any]:
    """Make the field of vectors: with a graph if FAISS's factory string is HNSW, without for Flat; else `UserError`."""
    field: dict[str, Any] = {"type": "knn_vector", "dimension": dimension}
    if faiss == "Flat":
        return field
    if not (hnsw := _HNSW.fullmatch(faiss)):
        raise UserError(f"--faiss {faiss!r}: not in OpenSearch; expected Flat, or HNSW and a number, such as HNSW32")
    parameters = {"m": int(hnsw[1]), "ef_construction": EF_CONSTRUCTION}
    method = {"name": "hnsw", "engine": "lucene", "space_type": "innerproduct", "parameters": parameters}
    return field | {"method": method}


def held_at(nodes: Sequence[Node], place: Place) -> Held | None:
    """Read the state of the index at a place, or None. `UserError` for an alias or index that Keystone has not made."""
    reply = ask(nodes, Request("GET", place.path))
    if reply.status == 404:
        return None
    found = reply.checked()
    with as_expected(place):
        names = list(found.keys())
    if names != [place.name] and not (len(names) == 1 and _is_version_of(place, names[0])):
        raise UserError(f"{place}: an alias of {show_value(', '.join(names))}, expected the name of an index")
    with as_expected(place):
        settings, mappings = found[names[0]]["settings"]["index"], found[names[0]]["mappings"]
        replicas = int(settings.get("number_of_replicas", 0))
        uuid, finished = str(settings["uuid"]), settings.get("blocks", {}).get("write") == "true"
        meta = mappings.get("_meta", {}).get("keystone")
    if not isinstance(meta, dict) or "key" not in meta:
        raise UserError(f"{place}: an index that keystone has not made: choose another name")
    return Held(Place(place.urls, names[0]), uuid, meta, finished, replicas)


def name_held(held: Held | None) -> str:
    """Name the index that a place holds, for an error about another one that is expected there."""
    return "no index" if held is None else "another index" if held.finished else "an index not yet finished"


def version_at(place: Place, key: str) -> Place:
    """Return the place of the version of an index that has this key, which is found by an alias, its `place`."""
    return Place(place.urls, f"{place.name}-{key[:VERSION_DIGITS]}")


def _is_version_of(place: Place, name: str) -> bool:
    return re.fullmatch(rf"{re.escape(place.name)}-[0-9a-f]{{{VERSION_DIGITS}}}", name) is not None


def refuse_other(place: Place, held: Held | None, keys: Collection[str]) -> None:
    """Raise `UserError` if the index at a place has another corpus or other settings than each of the keys."""
    if held and held.meta["key"] not in keys:
        raise UserError(
            f"{place}: holds an index of another corpus or other settings (of {show_value(held.meta.get('corpus'))}): "
            "remove it or choose another name"
        )


def check_possible(nodes: Sequence[Node], place: Place, body: Mapping[str, Any]) -> None:
    """Raise `UserError` if the cluster cannot make such an index, for example without k-NN. It makes nothing."""
    template = {"index_patterns": [f"{place.name}-{uuid4().hex}"], "priority": 2**30, "template": body}
    try:
        administer(nodes).indices.simulate_template(body=template)
    except ClusterRefused as refusal:
        if refusal.status == 400:
            raise UserError(f"{place}: cannot be made there: {refusal.reason}") from None


def create(nodes: Sequence[Node], place: Place, body: Mapping[str, Any]) -> None:
    """Create an index. If it exists, as after a lost answer, the function leaves it as it is."""
    with _unless_existing():
        administer(nodes).indices.create(index=place.name, body=body)


@contextmanager
def _unless_existing() -> Iterator[None]:
    try:
        yield
    except ClusterRefused as refusal:
        if "resource_already_exists_exception" not in refusal.reason:
            raise


def remove(nodes: Sequence[Node], place: Place) -> None:
    """Remove an index, if it exists."""
    administer(nodes).indices.delete(index=place.name, ignore=404)


def clone(nodes: Sequence[Node], place: Place, copy: Place) -> None:
    """Copy a finished index, sharing its files; the copy accepts writes. `UserError` if the cluster cannot."""
    settings = {
        "number_of_replicas": 0,
        "refresh_interval": "-1",
        "translog.durability": "async",
        "blocks.write": None,
    }
    body = {"settings": {"index": settings}}
    with _unless_existing():
        administer(nodes).indices.clone(index=place.name, target=copy.name, body=body, wait_for_active_shards="0")
    if not _has_all_shards(nodes, copy):
        remove(nodes, copy)
        raise UserError(f"{place}: the cluster cannot copy this index: load the whole corpus under a new name")


def _has_all_shards(nodes: Sequence[Node], place: Place) -> bool:
    """Wait until all shards of an index without replicas are there. False if the cluster fails to start one."""
    deadline, failures = time.monotonic() + PATIENCE_S, 0
    while failures < SHARD_TRIES and time.monotonic() < deadline:
        health = administer(nodes).cluster.health(index=place.name)
        with as_expected(place):
            starting, missing = int(health["initializing_shards"]), int(health["unassigned_shards"])
            failed = health["status"] == "red" and not starting
        if not starting and not missing:
            return True
        failures = failures + 1 if failed else 0
        time.sleep(SHARD_PAUSE_S)
    return False


def describe(nodes: Sequence[Node], place: Place, meta: Mapping[str, Any]) -> None:
    """Replace an index's description of itself, and make the fields of languages that are new in it."""
    fields = {CONTENTS: make_contents_field(meta)} if "languages" in meta else {}
    body = {"_meta": {"keystone": dict(meta)}, "properties": fields}
    administer(nodes).indices.put_mapping(index=place.name, body=body)


def delete_documents(nodes: Sequence[Node], place: Place, numbers: Sequence[int]) -> None:
    """Delete the documents with these numbers, and make that visible. `UserError` if the cluster cannot."""
    for some in chunks(numbers, DELETED_AT_ONCE):
        query = {"query": {"terms": {ROW: some}}}
        answer = administer(nodes).delete_by_query(
            index=place.name, body=query, refresh=True, conflicts="proceed", request_timeout=MERGE_TIMEOUT_S
        )
        with as_expected(place):
            failures = answer["failures"]
        if failures:
            raise UserError(f"{place}: could not delete documents: {describe_error(failures[0])}")


def purge(nodes: Sequence[Node], place: Place) -> None:
    """Let the next merge drop deleted documents, which would count in the statistics of BM25.

    An open index keeps them for half a minute after its last flush, and drops that claim when it is closed.
    """
    indices = administer(nodes).indices
    _check_all_shards(place, "flush", indices.flush(index=place.name, wait_if_ongoing=True))
    indices.close(index=place.name)
    indices.open(index=place.name, wait_for_active_shards="0")
    if not _has_all_shards(nodes, place):
        raise UserError(f"{place}: has lost a shard, which the cluster does not start again")


def count_deleted(nodes: Sequence[Node], place: Place) -> int:
    """Count the deleted documents that the segments of an index still hold."""
    answer = administer(nodes).indices.stats(index=place.name, metric="docs")
    with as_expected(place):
        return int(answer["_all"]["primaries"]["docs"]["deleted"])


def switch(nodes: Sequence[Node], place: Place, old: Place, new: Place) -> None:
    """Let the alias `place` lead to `new`, and remove `old`, in one step. `UserError` if the cluster refuses it."""
    actions = [{"remove_index": {"index": old.name}}, {"add": {"index": new.name, "alias": place.name}}]
    refusal: UserError = UserError(f"{place}: leads to another index than {new}, which was made to replace it")
    try:
        administer(nodes).indices.update_aliases(body={"actions": actions})
    except ClusterRefused as error:
        refusal = error
    held = held_at(nodes, place)
    if held is None or held.place != new:  # otherwise, an answer may have been lost
        raise refusal


def refresh(nodes: Sequence[Node], place: Place) -> None:
    """Make all sent documents visible to searches."""
    _check_all_shards(place, "refresh", administer(nodes).indices.refresh(index=place.name))


def finish(nodes: Sequence[Node], place: Place, replicas: int) -> None:
    """Merge each shard into one segment, write it to the disk, ask for copies, and refuse further writes."""
    indices = administer(nodes).indices
    merged = indices.forcemerge(index=place.name, max_num_segments=1, request_timeout=MERGE_TIMEOUT_S)
    _check_all_shards(place, "forcemerge", merged)
    refresh(nodes, place)
    _check_all_shards(place, "flush", indices.flush(index=place.name, wait_if_ongoing=True))
    settings = {
        "number_of_replicas": replicas,
        "refresh_interval": None,
        "translog.durability": None,
        "blocks.write": True,
    }
    indices.put_settings(index=place.name, body={"index": settings})


def _check_all_shards(place: Place, work: str, answer: Any) -> None:
    """Raise `UserError` if a shard could not do the work to which this is the answer."""
    with as_expected(place):
        shards = answer["_shards"]
        failed, reason = int(shards["failed"]), describe_error((shards.get("failures") or [{}])[0].get("reason"))
    if failed:
        raise UserError(f"{place}: {work} failed on {failed} shards: {reason}")


PASSAGES = "passages"
"""The field of the packed vectors. A document without passages lacks it."""


def passages_field(faiss: str, dimension: int) -> dict[str, Any]:
    """Make the field, which keeps the dimension for searches. `UserError` for any FAISS factory string but Flat."""
    if faiss != "Flat":
        raise UserError(f"--faiss {faiss!r}: OpenSearch searches passages exactly; expected Flat, or --dense all")
    return {"type": "binary", "doc_values": True, "meta": {"dimension": str(dimension)}}


def pack_vectors(vectors: Vectors) -> str:
    """Pack vectors on the grid, float32[passages, dimension], one after the other; the text is base64."""
    return b64encode(count_steps(vectors).tobytes()).decode()


def unpack_vectors(packed: str, dimension: int) -> Vectors:
    """Read packed vectors: float32[passages, dimension]. `ValueError` for a text that holds none."""
    vectors: Vectors = np.frombuffer(b64decode(packed), "<i2").reshape(-1, dimension) * np.float32(GRID_STEP)
    if not len(vectors):
        raise ValueError("found no vectors of passages")
    return vectors


def count_steps(vectors: Vectors) -> NDArray[np.int16]:
    """Turn entries on the grid into numbers of its steps: int16 of the same shape, little-endian."""
    steps: NDArray[np.int16] = np.rint(vectors / GRID_STEP).astype("<i2")
    return steps
