"""Counts of requests, and the paths `/health` and `/metrics`, which tell them to those who run the server.

`/metrics` has the text of Prometheus (exposition format 0.0.4).
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from itertools import accumulate
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from keystone.indexing.index import Index
from keystone.runs.serving.served import Served
from keystone.runs.serving.service import Service

BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""The upper bounds of the histogram of durations."""


class Metrics:
    """The requests of one process since it started.

    `ask_others` asks the other processes of the server for their counts, as `export` gives them.
    """

    def __init__(self, ask_others: Callable[[], Awaitable[list[Any]]] | None = None) -> None:
        self.ask_others = ask_others
        self.under_way = 0
        self._statuses: Counter[tuple[str, int]] = Counter()
        self._seconds: Counter[str] = Counter()
        self._durations: dict[str, list[int]] = {}

    def count(self, front: str, status: int, seconds: float) -> None:
        """Count a request that has been answered."""
        self._statuses[front, status] += 1
        self._seconds[front] += seconds  # type: ignore[assignment]
        self._durations.setdefault(front, [0] * (len(BOUNDS_S) + 1))[bisect_left(BOUNDS_S, seconds)] += 1

    def export(self, service: Service) -> list[Any]:
        """Export the counts, and those of the searches of a service, as JSON."""
        statuses = [[*key, number] for key, number in self._statuses.items()]
        batches = service.bm25.batches
        return [self.under_way, statuses, self._seconds, self._durations, batches.requests, batches.batches]

    def add(self, exported: list[Any]) -> None:
        """Add the exported counts of requests."""
        under_way, statuses, seconds, durations, *_ = exported
        self.under_way += under_way
        self._statuses.update({(front, status): number for front, status, number in statuses})
        self._seconds.update(seconds)
        for front, numbers in durations.items():
            before = self._durations.get(front, [0] * len(numbers))
            self._durations[front] = [one + other for one, other in zip(before, numbers, strict=True)]

    def format_lines(self) -> Iterator[str]:
        """Format all metrics, each with its help and type."""
        under_way = [("", self.under_way)]
        yield from _format("keystone_requests_under_way", "gauge", "Requests that have no answer yet.", under_way)
        statuses = (
            (f'{{front="{front}",status="{status}"}}', number)
            for (front, status), number in sorted(self._statuses.items())
        )
        yield from _format("keystone_requests_total", "counter", "Requests by front and status.", statuses)
        help = "Seconds from a request to the end of its answer."
        yield from _format("keystone_request_seconds", "histogram", help, self._list_durations())

    def _list_durations(self) -> Iterator[tuple[str, object]]:
        for front, counts in sorted(self._durations.items()):
            for bound, number in zip([*BOUNDS_S, "+Inf"], accumulate(counts), strict=True):
                yield f'_bucket{{front="{front}",le="{bound}"}}', number
            yield f'_sum{{front="{front}"}}', self._seconds[front]
            yield f'_count{{front="{front}"}}', sum(counts)


def make_routes(served: Served, metrics: Metrics) -> list[Route]:
    """List the routes that tell the state of a server."""

    async def show_health(_request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def show_metrics(_request: Request) -> Response:
        others = await metrics.ask_others() if metrics.ask_others else []
        with served.use() as service:
            counts = [metrics.export(service), *others]
            total = Metrics()
            for one in counts:
                total.add(one)
            queries, batches = (sum(one[place] for one in counts) for place in (-2, -1))
            lines = [*total.format_lines(), *_format_service(service.index, queries, batches, served.changes)]
        return PlainTextResponse("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4")

    return [Route("/health", show_health), Route("/metrics", show_metrics)]


def _format_service(index: Index, queries: int, batches: int, changes: int) -> Iterator[str]:
    """Format the searches by BM25, which index is served, and how often it was replaced."""
    documents = "NaN" if index.documents is None else index.documents
    for name, kind, help, value in (
        ("bm25_queries_total", "counter", "Queries searched by BM25.", ("", queries)),
        ("bm25_batches_total", "counter", "Batches that these queries came in.", ("", batches)),
        ("index_info", "gauge", "The index that new requests get, by its key.", (f'{{key="{index.key}"}}', 1)),
        ("index_documents", "gauge", "The documents of this index.", ("", documents)),
        ("index_changes_total", "counter", "Indexes that took the place of others.", ("", changes)),
    ):
        yield from _format(f"keystone_{name}", kind, help, [value])


def _format(name: str, kind: str, help: str, values: Iterable[tuple[str, object]]) -> Iterator[str]:
    """Format a metric. Each value comes with what follows the name, such as its labels."""
    yield f"# HELP {name} {help}"
    yield f"# TYPE {name} {kind}"
    yield from (f"{name}{labels} {value}" for labels, value in values)
