"""The paths `/health` and `/metrics`, for those who run the server."""

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from keystone.runs.serving.server.metrics import Metrics, format_batches
from keystone.runs.serving.service import Service


def make_routes(service: Service, metrics: Metrics) -> list[Route]:
    """List the routes that tell the state of a server."""

    async def show_health(_request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def show_metrics(_request: Request) -> Response:
        batches = service.bm25.batches
        lines = [*metrics.format_lines(), *format_batches(batches.requests, batches.batches)]
        return PlainTextResponse("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4")

    return [Route("/health", show_health), Route("/metrics", show_metrics)]
