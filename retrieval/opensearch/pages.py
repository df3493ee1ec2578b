"""Rankings from searches in OpenSearch, page by page, with every hit checked."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keystone.indexing.opensearch.cluster import as_expected
from keystone.indexing.opensearch.search import Cluster, search_each, search_of
from keystone.indexing.types import Tick
from keystone.retrieval.types import Rankings, ranked


@dataclass(frozen=True, slots=True)
class HitReading:
    """How a search asks for hits, and how it turns the server's scores float64[hits] into float32[hits]."""

    convert_scores: Callable[[NDArray[np.float64]], NDArray[np.float32]]
    """Raises `ValueError` for impossible scores."""
    header: Mapping[str, Any] = field(default_factory=dict)
    """Options that `_msearch` takes beside each search."""


def search_pages(
    cluster: Cluster,
    reading: HitReading,
    query_ids: Sequence[str],
    queries: Sequence[Any],
    depth: int,
    tick: Tick = lambda _: None,
) -> Rankings:
    """Rank the top `depth` hits of each query, a JSON value of OpenSearch's query language; ties by row.

    If `depth` exceeds the hits that one search may ask for, the function fetches page by page. `UserError` for an
    answer that is not one of OpenSearch's, or that holds documents that the index lacks.
    """
    pages: list[list[NDArray[np.float64]]] = [[] for _ in queries]
    after: dict[int, Any] = dict.fromkeys(range(len(queries)))
    done = 0
    while after and done < depth:
        size = min(cluster.window, depth - done)
        searches = [
            search_of(
                queries[number],
                size,
                f"query {query_ids[number]}",
                cluster.by_score,
                **({"search_after": last} if last else {}),
            )
            for number, last in after.items()
        ]
        first = not done
        found = search_each(
            cluster,
            searches,
            partial(_read_hits, size, len(cluster.by_score)),
            reading.header,
            tick if first else lambda _: None,
        )
        done += size
        for number, (page, _) in zip(after, found, strict=True):
            pages[number].append(page)
        after = {number: last for number, (page, last) in zip(list(after), found, strict=True) if len(page) == size}
    columns = [np.concatenate([np.empty((0, 2)), *own]) for own in pages]
    scores = []
    for name, own in zip(query_ids, columns, strict=True):
        with as_expected(f"{cluster.place}: query {name}"):
            own[:, 1] = cluster.to_rows(own[:, 1])
            _check_hits(own)
            scores.append(reading.convert_scores(own[:, 0]))
    docs = [own[:, 1].astype(np.int32) for own in columns]
    return ranked(query_ids, docs, scores, depth)


def _read_hits(size: int, count: int, answer: Any) -> tuple[NDArray[np.float64], Any]:
    """Read score and number of hits, float64[hits, 2], and the last hit's sort keys. `ValueError` for other answers."""
    keys = [hit["sort"] for hit in answer.get("hits", {}).get("hits", ())]
    if len(keys) > size:
        raise ValueError(f"found {len(keys)} hits, expected at most {size}")
    if lengths := {len([*own]) for own in keys} - {count}:
        raise ValueError(f"found a hit with {min(lengths)} sort keys, expected {count}")
    pairs = [(own[0], own[-1]) for own in keys]
    if not all(type(row) is int and type(score) in (int, float) for score, row in pairs):
        raise ValueError("found a hit whose sort keys are not a score and a row")
    return np.array(pairs, dtype=np.float64).reshape(len(keys), 2), keys[-1] if keys else None


def _check_hits(hits: NDArray[np.float64]) -> None:
    """Raise `ValueError` if scores of float64[hits, 2] ascend or exceed float32, or if a document occurs twice."""
    scores, rows = hits.T
    if not np.all(np.abs(scores) <= np.finfo(np.float32).max) or np.any(np.diff(scores) > 0):
        raise ValueError("found scores that are too large or ascend")
    if len(np.unique(rows)) < len(rows):
        raise ValueError("found a document twice")
