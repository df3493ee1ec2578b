"""Which rows an index of OpenSearch does not hold: ranges of rows are counted, and split where some are missing."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import orjson

from indexing.errors import UserError
from indexing.opensearch.cluster import Node, Place, Request, as_expected
from indexing.opensearch.index import ROW
from indexing.opensearch.requests import ask

RANGES = 1_024
"""That are counted by one request."""
SPLIT = 16
"""Parts of a range in which rows are missing."""
LISTED = 1_000
"""Rows of a range that is listed and not split further."""

Span = tuple[int, int]
"""Rows from the first up to, not including, the second."""


def missing_rows(nodes: Sequence[Node], place: Place, count: int) -> list[int]:
    """The rows below `count` of which the index holds no document, ascending. `UserError` if it holds others too."""
    with as_expected(place):
        return _missing_rows(nodes, place, count)


def _missing_rows(nodes: Sequence[Node], place: Place, count: int) -> list[int]:
    held = _search(nodes, place, {"size": 0, "track_total_hits": True})["hits"]["total"]["value"]
    missing: list[int] = []
    suspected = [(0, count)]
    while suspected:
        incomplete = [
            span
            for start in range(0, len(suspected), RANGES)
            for span, found in _counted(nodes, place, suspected[start : start + RANGES])
            if found < span[1] - span[0]
        ]
        missing += [row for span in incomplete if span[1] - span[0] <= LISTED for row in _listed(nodes, place, span)]
        suspected = [part for span in incomplete if span[1] - span[0] > LISTED for part in _parts(span)]
    if held > count - len(missing):
        raise UserError(f"{place}: holds {held} documents, expected {count}: others write to it: choose another name")
    return sorted(missing)


def _counted(nodes: Sequence[Node], place: Place, ranges: Sequence[Span]) -> Iterator[tuple[Span, int]]:
    asked = {"field": ROW, "ranges": [{"from": start, "to": stop} for start, stop in ranges]}
    found = _search(nodes, place, {"size": 0, "aggs": {"rows": {"range": asked}}})
    counts = [bucket["doc_count"] for bucket in found["aggregations"]["rows"]["buckets"]]
    return zip(ranges, counts, strict=True)


def _listed(nodes: Sequence[Node], place: Place, span: Span) -> list[int]:
    """The missing rows of a range of at most `LISTED`."""
    query = {"range": {ROW: {"gte": span[0], "lt": span[1]}}}
    asked = {"size": LISTED, "query": query, "_source": False, "stored_fields": "_none_", "docvalue_fields": [ROW]}
    hits = _search(nodes, place, asked)["hits"]["hits"]
    there = {row for hit in hits for row in hit["fields"][ROW]}
    return [row for row in range(*span) if row not in there]


def _parts(span: Span) -> list[Span]:
    width = span[1] - span[0]
    return list(pairwise(span[0] + width * part // SPLIT for part in range(SPLIT + 1)))


def _search(nodes: Sequence[Node], place: Place, body: dict[str, Any]) -> Any:
    whole = {"allow_partial_search_results": "false"}
    return ask(nodes, Request("POST", f"{place.path}/_search", orjson.dumps(body), whole)).checked()
