"""The pool of a test collection: the documents of each topic that assessors are to judge."""

import random
from collections.abc import Collection, Mapping, Sequence


def pool_documents(
    rankings: Mapping[str, Mapping[str, Sequence[str]]],
    depth: int,
    judged: Mapping[str, Collection[str]] | None = None,
    seed: int = 0,
) -> dict[str, list[str]]:
    """Pool the first `depth` documents of each run (run -> topic -> document ids, best first).

    Documents that `judged` has for a topic are left out. The order is random, so that it tells an assessor nothing of
    ranks or runs. It depends only on the seed, the topic and the documents. A depth below 1 raises a ValueError.
    """
    if depth < 1:
        raise ValueError(f"depth is {depth}, expected at least 1")
    pool: dict[str, list[str]] = {}
    for topic in sorted({topic for topics in rankings.values() for topic in topics}):
        found = {doc for topics in rankings.values() for doc in topics.get(topic, ())[:depth]}
        pool[topic] = sorted(found - set((judged or {}).get(topic, ())))
        random.Random(f"{seed} {topic}").shuffle(pool[topic])
    return pool
