"""Searches of an index in OpenSearch, many in a request, each answered by every shard or asked again."""

import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import orjson

from indexing.errors import UserError
from indexing.index import Index
from indexing.io.error_text import error_text
from indexing.io.retry import PATIENCE_S
from indexing.opensearch.cluster import Node, Place, Reply, Request, as_expected, close, connect, place_at
from indexing.opensearch.index import held_at
from indexing.opensearch.requests import Read, Work, ask, exchange
from indexing.types import Tick

AT_ONCE = 4
"""Requests at one time, for each node, at most."""
SEARCHES, HITS = 64, 16_384
"""Of one request, at most: an answer then stays below a megabyte."""
PARTIAL = {"allow_partial_search_results": False}
MOST_ROWS = 2**31 - 1
"""Of an index: what the field `row` holds."""
BY_SCORE = ["_score", {"row": "asc"}]
"""An order without ties. Its keys are all that a hit has to say, so that nothing is loaded for one."""

_ANSWERED = "hits.hits.sort hits.total.value status error timed_out _shards.failed _shards.failures.reason"
_FILTER = ",".join(f"responses.{part}" for part in _ANSWERED.split())
_TURNED_AWAY = (408, 429)

R = TypeVar("R")


class Cluster:
    """The nodes of a cluster and the place of an index in it; the connections are closed when it is not used any more.

    `version` is the server's, `shards` the number of primary shards, `window` the hits that a search may ask for,
    `documents` those that the index holds.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        place: Place,
        version: tuple[int, ...],
        shards: int,
        window: int,
        documents: int = MOST_ROWS,
    ) -> None:
        self.nodes, self.place, self.version, self.shards, self.window = nodes, place, version, shards, window
        self.documents = documents
        weakref.finalize(self, close, nodes)


@dataclass(frozen=True, slots=True)
class Search:
    """One search: its JSON, the hits that it asks for, and what an error calls it."""

    body: bytes
    size: int
    name: str


def open_cluster(index: Index) -> Cluster:
    """The cluster that holds an index. `UserError` where it is not reached, or has lost the index or holds another."""
    place = place_at(index.at)
    nodes = connect(place.urls, AT_ONCE)
    try:
        held = held_at(nodes, place)
        if held is None or held.meta["key"] != index.key or not held.finished:
            found = "no index" if held is None else "another index" if held.finished else "an index not yet finished"
            raise UserError(f"{index.folder}: found {found} at {place}, expected the one that it was made with")
        server = ask(nodes, Request("GET", "/")).checked()
        wanted = {"flat_settings": "true", "include_defaults": "true"}
        settings = ask(nodes, Request("GET", f"{place.path}/_settings", params=wanted)).checked()
        with as_expected(place):
            version = version_of(server["version"]["number"])
            known = settings[place.name]["defaults"] | settings[place.name]["settings"]
            shards, window = (int(known[f"index.{name}"]) for name in ("number_of_shards", "max_result_window"))
            if shards < 1 or window < 1:
                raise ValueError(f"found {shards} shards and a window of {window}, expected at least 1")
    except BaseException:
        close(nodes)
        raise
    return Cluster(nodes, place, version, shards, window, MOST_ROWS if index.documents is None else index.documents)


def version_of(number: str) -> tuple[int, ...]:
    """A server's version as numbers: 3.5.0-SNAPSHOT is (3, 5, 0)."""
    return tuple(int(part) for part in number.split("-")[0].split("."))


def search_of(query: Any, size: int, name: str, sort: Any = BY_SCORE, **further: Any) -> Search:
    """A search that is answered by the sort keys of its hits alone."""
    fields = {"size": size, "query": query, "sort": sort, "_source": False, "stored_fields": "_none_"}
    body = {**fields, "track_total_hits": False, **further}
    return Search(orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY), size, name)


def search_each(
    cluster: Cluster,
    searches: Sequence[Search],
    take: Callable[[Any], R],
    header: dict[str, Any] | None = None,
    tick: Tick = lambda _: None,
    patience: float = PATIENCE_S,
) -> list[R]:
    """What `take` makes of the answer to each search.

    A search that not all shards have answered, in time, is asked again. `UserError` for one that cannot be answered,
    and if nothing has been for `patience` seconds: with the name of a search and the server's words.
    """
    found: dict[int, R] = {}
    head = orjson.dumps(PARTIAL | (header or {})) + b"\n"

    def request_of(part: list[int]) -> Request:
        lines = b"".join(head + searches[number].body + b"\n" for number in part)
        return Request("POST", f"{cluster.place.path}/_msearch", lines, {"filter_path": _FILTER})

    def read(part: list[int], reply: Reply) -> Read[list[int], int]:
        answers = reply.checked()["responses"]
        if len(answers) != len(part):
            raise ValueError(f"found answers to {len(answers)} of {len(part)} searches")
        left, why = [], ""
        for number, answer in zip(part, answers, strict=True):
            if fault := _fault(answer):
                why = f"{cluster.place}: {searches[number].name}: {fault}"
                left.append(number)
                if 400 <= answer["status"] < 500 and answer["status"] not in _TURNED_AWAY:
                    raise UserError(why)
            else:
                found[number] = take(answer)
        done = len(part) - len(left)
        return Read(done or None, [left] if left else [], why)

    for done in exchange(
        cluster.nodes, _batches(searches), Work(request_of, read), AT_ONCE * len(cluster.nodes), patience
    ):
        tick(done)
    return [found[number] for number in range(len(searches))]


def _fault(answer: Any) -> str:
    """Why the answer to a search is none, or not the whole; empty if it is."""
    if "error" in answer:
        return f"refused with status {answer['status']}: {_said(answer['error'])}"
    if answer.get("timed_out"):
        return "not answered in time by all shards"
    if failed := answer.get("_shards", {}).get("failed"):
        reasons = answer["_shards"].get("failures") or [{}]
        return f"not answered by {failed} of the shards: {error_text(reasons[0].get('reason'))}"
    return ""


def _said(error: Any) -> str:
    """An error's words and, where it only says that shards have failed, those of the first."""
    said, roots = error_text(error), error.get("root_cause") if isinstance(error, dict) else None
    root = error_text(roots[0]) if roots else ""
    return said if root in said else f"{said}: {root}"


def _batches(searches: Sequence[Search]) -> Iterator[list[int]]:
    batch: list[int] = []
    hits = 0
    for number, search in enumerate(searches):
        if batch and (len(batch) == SEARCHES or hits + search.size > HITS):
            yield batch
            batch, hits = [], 0
        batch.append(number)
        hits += search.size
    if batch:
        yield batch
