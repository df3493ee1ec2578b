"""The search of a batch of queries by several systems at once, and the table of the kinds of systems.

To add a kind, write its file after the class `keystone.retrieval.system.System`, and add it to `KINDS`.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Annotated, Any

import numpy as np
from pydantic import PlainSerializer, PlainValidator
from pydantic_core import PydanticCustomError

from keystone.indexing.plugins import OpenTable
from keystone.indexing.settings import read_settings
from keystone.indexing.types import Store
from keystone.retrieval.bm25 import Bm25System
from keystone.retrieval.dense import DenseSystem
from keystone.retrieval.impact import ImpactSystem
from keystone.retrieval.late import LateSystem, PlaidSystem
from keystone.retrieval.system import OpenIndex, Rows, System
from keystone.retrieval.types import Query, Rankings, offsets_of

KINDS: OpenTable[type[System]] = OpenTable(
    "keystone.systems",
    System,
    {"bm25": Bm25System, "dense": DenseSystem, "impact": ImpactSystem, "late": LateSystem, "plaid": PlaidSystem},
    classes=True,
    name_of=lambda one: str(one.model_fields["kind"].default),
)
"""The kinds of systems by their names, those of other packages included."""


def _read_system(value: Any) -> System:
    if isinstance(value, System):
        return value
    kind = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(kind, str) or kind not in KINDS:
        raise PydanticCustomError("unknown_kind", "unknown kind")
    return read_settings(KINDS[kind], value, kind)


AnySystem = Annotated[
    System,
    PlainValidator(_read_system),
    PlainSerializer(lambda system, info: system.model_dump(mode=info.mode)),
]
"""The settings of a system of any kind."""


def search_all(
    systems: Mapping[str, System], opened: OpenIndex, queries: Sequence[Query], candidates: System
) -> dict[str, Rankings]:
    """Search a batch of queries with each system; the result is keyed by the names of the systems.

    Systems of different lanes run in parallel. A query without a passage finds nothing by a system that reads passages.
    If a system ranks what another one finds, it ranks the documents that the other one found for any query. If the
    index has no vectors of all documents, the documents are those that `candidates` finds. `UserError` as from the
    systems.
    """
    known: list[tuple[System, Rankings]] = []  # a setting may be a list, so that a system has no hash
    search = partial(_search_one, opened=opened, queries=queries)

    def find_base(system: System) -> System | None:
        if system.base is not None:
            return systems[system.base]
        return candidates if system.needs_candidates(opened.index) else None

    def rank_in_turn(lane: str) -> dict[str, Rankings]:
        return {name: _rank(one, find_base, search, known) for name, one in systems.items() if one.lane == lane}

    for base in filter(None, map(find_base, systems.values())):
        _rank(base, find_base, search, known)
    lanes = dict.fromkeys(system.lane for system in systems.values())
    with ThreadPoolExecutor(len(lanes) or 1) as pool:
        found = {name: rankings for own in pool.map(rank_in_turn, lanes) for name, rankings in own.items()}
    return {name: found[name] for name in systems}


def _rank(
    system: System,
    find_base: Callable[[System], System | None],
    search: Callable[..., Rankings],
    known: list[tuple[System, Rankings]],
) -> Rankings:
    """The rankings by one system, after those of its base. Each system searches once: its rankings are then `known`."""
    for other, rankings in known:
        if other == system:
            return rankings
    base = find_base(system)
    within = None if base is None else np.unique(_rank(base, find_base, search, known).docs)
    known.append((system, found := search(system, within=within)))
    return found


def _search_one(system: System, opened: OpenIndex, queries: Sequence[Query], within: Rows | None) -> Rankings:
    """Search with one system. If it reads passages, only the queries with a passage are searched."""
    places = [place for place, query in enumerate(queries) if system.reads == "query" or query.passage]
    asked = [queries[place] for place in places]
    found = system.search(opened, asked, within)
    if system.kind not in KINDS.own:
        _check_rankings(system.kind, found, asked, opened.store)
    if len(asked) == len(queries):
        return found
    counts = np.zeros(len(queries), dtype=np.int64)
    counts[places] = np.diff(found.offsets)
    return Rankings(tuple(query.id for query in queries), offsets_of(counts), found.docs, found.scores)


def _check_rankings(kind: str, found: Rankings, asked: Sequence[Query], store: Store) -> None:
    """Raise `ValueError` unless a package's system ranked each query in its place, and rows of `store`, none twice."""
    if tuple(found.query_ids) != (ids := tuple(query.id for query in asked)):
        raise ValueError(
            f"system {kind!r}: ranked the queries {found.query_ids!r:.200}, expected {ids!r:.200}, "
            f"{len(found)} and {len(ids)} in all, each in its place"
        )
    for place, name in enumerate(ids):
        rows = found.of(place)
        if len(np.unique(rows[rows >= 0])) < len(rows):
            raise ValueError(f"system {kind!r}: query {name}: ranked a document twice, or a row below 0")
    try:
        store.ids(np.sort(found.docs)[-1:])
    except IndexError as error:
        raise ValueError(f"system {kind!r}: ranked row {found.docs.max()}, expected a row of the index") from error
