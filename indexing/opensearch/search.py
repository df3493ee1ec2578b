"""Searches of an index in OpenSearch: many in one request, and each one again until every shard has answered.

A load numbers documents by their rows. An update leaves the numbers of those that stay, and gives new ones to the
others. So the numbers are no longer in the order of ids. `numbers.npy` in the index folder has them by row.
"""

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import orjson
from numpy.typing import ArrayLike, NDArray

from keystone.indexing.errors import UserError
from keystone.indexing.index import Index
from keystone.indexing.io.error_text import describe_error
from keystone.indexing.io.retry import PATIENCE_S
from keystone.indexing.io.writing import map_array
from keystone.indexing.opensearch.cluster import Node, Place, Reply, Request, as_expected, close, place_at
from keystone.indexing.opensearch.index import DOCID, PASSAGES, ROW, VECTOR, held_at, name_held
from keystone.indexing.opensearch.nodes import connect_to_all
from keystone.indexing.opensearch.requests import NODE_REQUESTS, Dialogue, Read, ask, send_parts
from keystone.indexing.types import Tick, fill_batches

REQUEST_SEARCHES, REQUEST_HITS = 64, 16_384
"""The maximum numbers of searches and of hits in one request, so that an answer stays below a megabyte."""
ALL_SHARDS = {"allow_partial_search_results": False}
MOST_ROWS = 2**31 - 1
"""The maximum number of rows in an index, which the field `row` can hold."""
BY_SCORE = ["_score", {ROW: "asc"}]
"""A sort order without ties. A hit's sort keys are its whole answer, so OpenSearch loads no document."""
BY_SCORE_AND_ID = ["_score", {DOCID: "asc"}, {ROW: "asc"}]
"""The same for an updated index, whose numbers of documents are not in the order of ids."""

_ANSWERED = (
    "hits.hits.sort hits.hits.fields hits.total.value status error timed_out _shards.failed _shards.failures.reason"
)
_FILTER = ",".join(f"responses.{part}" for part in _ANSWERED.split())
_TURNED_AWAY = (408, 429)

R = TypeVar("R")


@dataclass(frozen=True, slots=True, weakref_slot=True, eq=False)
class Cluster:
    """The nodes of a cluster and the place of an index in it. Python closes the connections with the last reference."""

    nodes: Sequence[Node]
    place: Place
    version: tuple[int, ...]
    """The server's version, such as (3, 5, 0)."""
    shards: int
    window: int
    """The maximum number of hits that a search may ask for."""
    documents: int = MOST_ROWS
    patience: float = PATIENCE_S
    """The seconds without any success after which a search raises `GaveUp`."""
    numbers: NDArray[np.int32] | None = None
    """The number of each document in the field `row`, by row, int32[documents]; None if numbers are rows."""
    own_rows: NDArray[np.int32] | None = None
    """The row of the document of each number, or -1; None if numbers are rows."""

    @property
    def by_score(self) -> Sequence[Any]:
        """The sort order of rankings: by score, ties by document id."""
        return BY_SCORE if self.numbers is None else BY_SCORE_AND_ID

    @property
    def given(self) -> int:
        """A number above all those in the field `row`."""
        return self.documents if self.own_rows is None else len(self.own_rows)

    def to_numbers(self, rows: ArrayLike) -> NDArray[np.int64]:
        """Return the numbers in the field `row` of the documents in these rows (int[n]): int64[n]."""
        wanted = np.asarray(rows, np.int64)
        return wanted if self.numbers is None else self.numbers[wanted].astype(np.int64)

    def to_rows(self, numbers: ArrayLike) -> NDArray[np.int64]:
        """Return the rows of documents with these numbers (int[n]): int64[n]. `ValueError` if there is none."""
        wanted = np.asarray(numbers, np.int64)
        if wanted.size and not 0 <= wanted.min() <= wanted.max() < self.given:
            raise ValueError(f"found row {wanted.min()} or {wanted.max()}, expected 0 to {self.given - 1}")
        if self.own_rows is None:
            return wanted
        rows = self.own_rows[wanted].astype(np.int64)
        if wanted.size and rows.min() < 0:
            raise ValueError(f"found row {wanted[rows.argmin()]}, which no document of the index has")
        return rows

    def __post_init__(self) -> None:
        weakref.finalize(self, close, self.nodes)


@dataclass(frozen=True, slots=True)
class Search:
    """One search: its JSON, the number of hits that it asks for, and its name in an error."""

    body: bytes
    size: int
    name: str


def open_cluster(index: Index) -> Cluster:
    """Connect to the cluster of an index. `UserError` if no node answers, or it lacks this finished index."""
    place = place_at(index.at)
    nodes = connect_to_all(place.urls)
    try:
        held = held_at(nodes, place)
        if held is None or held.meta["key"] != index.key or not held.finished:
            raise UserError(
                f"{index.folder}: found {name_held(held)} at {place}, expected the one that it was made with"
            )
        server = ask(nodes, Request("GET", "/")).checked()
        wanted = {"flat_settings": "true", "include_defaults": "true"}
        settings = ask(nodes, Request("GET", f"{place.path}/_settings", params=wanted)).checked()
        with as_expected(place):
            version = version_of(server["version"]["number"])
            known = settings[held.place.name]["defaults"] | settings[held.place.name]["settings"]
            shards, window = (int(known[f"index.{name}"]) for name in ("number_of_shards", "max_result_window"))
            if shards < 1 or window < 1:
                raise ValueError(f"found {shards} shards and a window of {window}, expected at least 1")
    except BaseException:
        close(nodes)
        raise
    documents = MOST_ROWS if index.documents is None else index.documents
    numbers, own_rows = load_numbers(index)
    return Cluster(nodes, place, version, shards, window, documents, numbers=numbers, own_rows=own_rows)


def read_dimension(cluster: Cluster) -> int:
    """Read the number of entries in a vector of an index, whether of documents or of passages."""
    place = cluster.place
    mapping = ask(cluster.nodes, Request("GET", f"{place.path}/_mapping")).checked()
    with as_expected(place):
        (found,) = mapping.values()
        fields = found["mappings"]["properties"]
        return int(fields[VECTOR]["dimension"] if VECTOR in fields else fields[PASSAGES]["meta"]["dimension"])


def version_of(number: str) -> tuple[int, ...]:
    """Read a server's version as numbers: 3.5.0-SNAPSHOT is (3, 5, 0)."""
    return tuple(int(part) for part in number.split("-")[0].split("."))


def search_of(query: Any, size: int, name: str, sort: Any = BY_SCORE, **further: Any) -> Search:
    """Make a search whose answer holds only the sort keys of its hits; `further` adds fields to its JSON."""
    fields = {"size": size, "query": query, "sort": sort, "_source": False, "stored_fields": "_none_"}
    body = {**fields, "track_total_hits": False, **further}
    return Search(orjson.dumps(body, option=orjson.OPT_SERIALIZE_NUMPY), size, name)


def search_each(
    cluster: Cluster,
    searches: Sequence[Search],
    take: Callable[[Any], R],
    header: Mapping[str, Any] | None = None,
    tick: Tick = lambda _: None,
) -> list[R]:
    """Ask each search and return `take(answer)` for each, in the order of the searches.

    `header` holds options for `_msearch`, the same for all searches. If a shard does not answer in time, Keystone
    asks the search again. `UserError`, with the name of a search and the server's words, for a search that the
    cluster refuses, and if nothing succeeds for `cluster.patience` seconds.
    """
    found: dict[int, R] = {}
    head = orjson.dumps(ALL_SHARDS | {**(header or {})}) + b"\n"

    def request_of(part: list[int]) -> Request:
        lines = b"".join(head + searches[number].body + b"\n" for number in part)
        return Request("POST", f"{cluster.place.path}/_msearch", lines, {"filter_path": _FILTER})

    def read(part: list[int], reply: Reply) -> Read[list[int], int]:
        answers = reply.checked()["responses"]
        if len(answers) != len(part):
            raise ValueError(f"found answers to {len(answers)} of {len(part)} searches")
        left, why = [], ""
        for number, answer in zip(part, answers, strict=True):
            if fault := _describe_fault(answer):
                why = f"{cluster.place}: {searches[number].name}: {fault}"
                left.append(number)
                if 400 <= answer["status"] < 500 and answer["status"] not in _TURNED_AWAY:
                    raise UserError(why)
            else:
                found[number] = take(answer)
        done = len(part) - len(left)
        return Read(done or None, [left] if left else [], why)

    dialogue = Dialogue(request_of, read, NODE_REQUESTS * len(cluster.nodes), cluster.patience)
    batches = fill_batches(range(len(searches)), lambda number: searches[number].size, REQUEST_HITS, REQUEST_SEARCHES)
    for done in send_parts(cluster.nodes, batches, dialogue):
        tick(done)
    return [found[number] for number in range(len(searches))]


def _describe_fault(answer: Any) -> str:
    if "error" in answer:
        return f"refused with status {answer['status']}: {_error_words(answer['error'])}"
    if answer.get("timed_out"):
        return "not answered in time by all shards"
    if failed := answer.get("_shards", {}).get("failed"):
        reasons = answer["_shards"].get("failures") or [{}]
        return f"not answered by {failed} of the shards: {describe_error(reasons[0].get('reason'))}"
    return ""


def _error_words(error: Any) -> str:
    """Return an error's words; if it only says that shards have failed, also the words of the first failure."""
    said, roots = describe_error(error), error.get("root_cause") if isinstance(error, dict) else None
    root = describe_error(roots[0]) if roots else ""
    return said if root in said else f"{said}: {root}"


NUMBERS = "numbers.npy"
Numbers = NDArray[np.int32]


def load_numbers(index: Index) -> tuple[Numbers | None, Numbers | None]:
    """Load numbers by row and rows by number (-1 for none); None if they are equal. `UserError` if damaged."""
    path = index.folder / NUMBERS
    if not path.exists():
        return None, None
    try:
        numbers = np.asarray(map_array(path))
        if numbers.dtype != np.int32 or numbers.shape != (index.documents,) or numbers.min() < 0:
            raise ValueError(f"found {numbers.dtype} of the shape {numbers.shape}, expected {index.documents} numbers")
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: damaged: make the folder again from the cluster: {error}") from error
    rows = np.full(int(numbers.max()) + 1, -1, np.int32)
    rows[numbers] = np.arange(len(numbers), dtype=np.int32)
    return numbers, rows
