"""Search for the rows that an index of OpenSearch lacks: count ranges of rows, and split ranges that lack some."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import orjson

from keystone.indexing.errors import UserError
from keystone.indexing.opensearch.cluster import Node, Place, Request, as_expected
from keystone.indexing.opensearch.index import ROW
from keystone.indexing.opensearch.requests import ask

REQUEST_RANGES = 1_024
"""The number of ranges that one request counts."""
SPLIT_PARTS = 16
"""The number of parts into which Keystone splits a range that lacks rows."""
LISTED_ROWS = 1_000
"""The length up to which Keystone lists the rows of a range instead of splitting it."""

Span = tuple[int, int]
"""Rows from the first number up to, but not including, the second."""


def missing_rows(nodes: Sequence[Node], place: Place, count: int) -> list[int]:
    """Return the rows below `count` that the index lacks, ascending. `UserError` if it holds other documents too."""
    with as_expected(place):
        return _missing_rows(nodes, place, count)


def _missing_rows(nodes: Sequence[Node], place: Place, count: int) -> list[int]:
    held = _search(nodes, place, {"size": 0, "track_total_hits": True})["hits"]["total"]["value"]
    missing: list[int] = []
    suspected = [(0, count)]
    while suspected:
        incomplete = [
            span
            for start in range(0, len(suspected), REQUEST_RANGES)
            for span, found in _counted(nodes, place, suspected[start : start + REQUEST_RANGES])
            if found < span[1] - span[0]
        ]
        missing += [
            row for span in incomplete if span[1] - span[0] <= LISTED_ROWS for row in _listed(nodes, place, span)
        ]
        suspected = [part for span in incomplete if span[1] - span[0] > LISTED_ROWS for part in _parts(span)]
    if held > count - len(missing):
        raise UserError(f"{place}: holds {held} documents, expected {count}: others write to it: choose another name")
    return sorted(missing)


def _counted(nodes: Sequence[Node], place: Place, ranges: Sequence[Span]) -> Iterator[tuple[Span, int]]:
    asked = {"field": ROW, "ranges": [{"from": start, "to": stop} for start, stop in ranges]}
    found = _search(nodes, place, {"size": 0, "aggs": {"rows": {"range": asked}}})
    counts = [bucket["doc_count"] for bucket in found["aggregations"]["rows"]["buckets"]]
    return zip(ranges, counts, strict=True)


def _listed(nodes: Sequence[Node], place: Place, span: Span) -> list[int]:
    """List the missing rows of a range of at most `LISTED_ROWS`."""
    query = {"range": {ROW: {"gte": span[0], "lt": span[1]}}}
    asked = {"size": LISTED_ROWS, "query": query, "_source": False, "stored_fields": "_none_", "docvalue_fields": [ROW]}
    hits = _search(nodes, place, asked)["hits"]["hits"]
    there = {row for hit in hits for row in hit["fields"][ROW]}
    return [row for row in range(*span) if row not in there]


def _parts(span: Span) -> list[Span]:
    width = span[1] - span[0]
    return list(pairwise(span[0] + width * part // SPLIT_PARTS for part in range(SPLIT_PARTS + 1)))


def _search(nodes: Sequence[Node], place: Place, body: dict[str, Any]) -> Any:
    whole = {"allow_partial_search_results": "false"}
    return ask(nodes, Request("POST", f"{place.path}/_search", orjson.dumps(body), whole)).checked()
