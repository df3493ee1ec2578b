"""Counts of requests, and the paths `/health` and `/metrics`, which tell them to those who run the server.

`/metrics` has the text of Prometheus (exposition format 0.0.4).
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from itertools import accumulate

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from keystone.indexing.index import Index
from keystone.runs.serving.served import Served

BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""The upper bounds of the histogram of durations."""


class Metrics:
    """The requests of one server since it started."""

    def __init__(self) -> None:
        self.under_way = 0
        self._statuses: Counter[tuple[str, int]] = Counter()
        self._seconds: Counter[str] = Counter()
        self._durations: dict[str, list[int]] = {}

    def count(self, front: str, status: int, seconds: float) -> None:
        """Count a request that has been answered."""
        self._statuses[front, status] += 1
        self._seconds[front] += seconds  # type: ignore[assignment]
        self._durations.setdefault(front, [0] * (len(BOUNDS_S) + 1))[bisect_left(BOUNDS_S, seconds)] += 1

    def format_lines(self) -> Iterator[str]:
        """Format all metrics, each with its help and type."""
        yield from _format_head("keystone_requests_under_way", "gauge", "Requests that have no answer yet.")
        yield f"keystone_requests_under_way {self.under_way}"
        yield from _format_head("keystone_requests_total", "counter", "Requests by front and status.")
        for (front, status), number in sorted(self._statuses.items()):
            yield f'keystone_requests_total{{front="{front}",status="{status}"}} {number}'
        name = "keystone_request_seconds"
        yield from _format_head(name, "histogram", "Seconds from a request to the end of its answer.")
        for front, counts in sorted(self._durations.items()):
            for bound, number in zip([*BOUNDS_S, "+Inf"], accumulate(counts), strict=True):
                yield f'{name}_bucket{{front="{front}",le="{bound}"}} {number}'
            yield f'{name}_sum{{front="{front}"}} {self._seconds[front]}'
            yield f'{name}_count{{front="{front}"}} {sum(counts)}'


def make_routes(served: Served, metrics: Metrics) -> list[Route]:
    """List the routes that tell the state of a server."""

    async def show_health(_request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def show_metrics(_request: Request) -> Response:
        with served.use() as service:
            index, batches = format_index(service.index, served.changes), service.bm25.batches
        lines = [*metrics.format_lines(), *format_batches(batches.requests, batches.batches), *index]
        return PlainTextResponse("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4")

    return [Route("/health", show_health), Route("/metrics", show_metrics)]


def format_batches(requests: int, batches: int) -> Iterator[str]:
    """Format the numbers of searches by BM25 and of the batches that they came in."""
    yield from _format_head("keystone_bm25_queries_total", "counter", "Queries searched by BM25.")
    yield f"keystone_bm25_queries_total {requests}"
    yield from _format_head("keystone_bm25_batches_total", "counter", "Batches that these queries came in.")
    yield f"keystone_bm25_batches_total {batches}"


def format_index(index: Index, changes: int) -> Iterator[str]:
    """Format which index is served, and how often another one took the place of one."""
    yield from _format_head("keystone_index_info", "gauge", "The index that new requests get, by its key.")
    yield f'keystone_index_info{{key="{index.key}"}} 1'
    yield from _format_head("keystone_index_documents", "gauge", "The documents of this index.")
    yield f"keystone_index_documents {'NaN' if index.documents is None else index.documents}"
    yield from _format_head("keystone_index_changes_total", "counter", "Indexes that took the place of others.")
    yield f"keystone_index_changes_total {changes}"


def _format_head(name: str, kind: str, help: str) -> Iterator[str]:
    yield f"# HELP {name} {help}"
    yield f"# TYPE {name} {kind}"
