"""The paths `/health` and `/metrics`, for those who run the server."""

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from keystone.runs.serving.served import Served
from keystone.runs.serving.server.metrics import Metrics, format_batches, format_index


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
