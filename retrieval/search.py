"""The search of a batch of queries by several systems at once, and the table of the kinds of systems.

To add a kind, write its file after the class `keystone.retrieval.system.System`, and add it to `AnySystem`.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, get_args

import numpy as np
from pydantic import Discriminator

from keystone.retrieval.bm25 import Bm25System
from keystone.retrieval.dense import DenseSystem
from keystone.retrieval.system import OpenIndex, Rows, System
from keystone.retrieval.types import Query, Rankings, offsets_of

AnySystem = Annotated[Bm25System | DenseSystem, Discriminator("kind")]
"""The settings of a system of any kind."""
KINDS: Mapping[str, type[System]] = {one.model_fields["kind"].default: one for one in get_args(get_args(AnySystem)[0])}
"""The kinds of systems by their names."""


def search_all(
    systems: Mapping[str, System], opened: OpenIndex, queries: Sequence[Query], candidates: System
) -> dict[str, Rankings]:
    """Search a batch of queries with each system; the result is keyed by the names of the systems.

    Systems of different lanes run in parallel. A query without a passage finds nothing by a system that reads passages.
    A system that ranks what another one finds ranks the documents that this one found for any query. If the index has
    no vectors of all documents, the documents are those that `candidates` finds. `UserError` as from the systems.
    """
    known: dict[System, Rankings] = {}

    def find_base(system: System) -> System | None:
        if system.base is not None:
            return systems[system.base]
        return candidates if system.needs_candidates(opened.index) else None

    def rank(system: System) -> Rankings:
        if system not in known:
            base = find_base(system)
            within = None if base is None else np.unique(rank(base).docs)
            known[system] = _search_one(system, opened, queries, within)
        return known[system]

    def rank_in_turn(lane: str) -> dict[str, Rankings]:
        return {name: rank(system) for name, system in systems.items() if system.lane == lane}

    for base in map(find_base, systems.values()):
        if base is not None:
            rank(base)
    lanes = dict.fromkeys(system.lane for system in systems.values())
    with ThreadPoolExecutor(len(lanes) or 1) as pool:
        found = {name: rankings for own in pool.map(rank_in_turn, lanes) for name, rankings in own.items()}
    return {name: found[name] for name in systems}


def _search_one(system: System, opened: OpenIndex, queries: Sequence[Query], within: Rows | None) -> Rankings:
    """Search with one system. If it reads passages, only the queries with a passage are searched."""
    if system.reads == "query":
        return system.search(opened, queries, within)
    places = [place for place, query in enumerate(queries) if query.passage]
    found = system.search(opened, [queries[place] for place in places], within)
    counts = np.zeros(len(queries), dtype=np.int64)
    counts[places] = np.diff(found.offsets)
    return Rankings(tuple(query.id for query in queries), offsets_of(counts), found.docs, found.scores)
