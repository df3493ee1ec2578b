"""The application of one service: the routes of all its fronts. To add a front, add a line to the table `FRONTS`."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pkgutil import resolve_name

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from keystone.runs.serving.front import Front
from keystone.runs.serving.server.guard import Guard, GuardedApp
from keystone.runs.serving.server.metrics import Metrics
from keystone.runs.serving.server.state import make_routes
from keystone.runs.serving.service import Service

FRONTS = {
    "web": "keystone.runs.serving.web.front:open_front",
    "rest": "keystone.runs.serving.rest.routes:open_front",
    "mcp": "keystone.runs.serving.agents.open_front:open_front",
}
"""The fronts by their names in the log, each as the import path of a function of (service) that returns a `Front`.

A path below `/v1/` that belongs to no front before `rest` is a path of `rest`.
"""


def open_fronts(service: Service) -> dict[str, Front]:
    """Open every front of a service, by name."""
    return {name: resolve_name(path)(service) for name, path in FRONTS.items()}


def make_app(service: Service, guard: Guard) -> GuardedApp:
    """Make the application behind its guard, with the routes of every front in the order of the table."""
    fronts, metrics = open_fronts(service), Metrics()

    @asynccontextmanager
    async def open_all(_app: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for front in fronts.values():
                await stack.enter_async_context(front.lifespan())
            yield

    async def show_error(_request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return JSONResponse({"error": error.detail}, error.status_code, headers=dict(error.headers or {}))

    routes = [*(route for front in fronts.values() for route in front.routes), *make_routes(service, metrics)]
    app = Starlette(routes=routes, lifespan=open_all, exception_handlers={HTTPException: show_error})
    direct = [pair for front in fronts.values() for pair in front.direct.items()]

    async def dispatch(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            for path, own in direct:
                if scope["path"] == path or (path.endswith("/") and scope["path"].startswith(path)):
                    await own(scope, receive, send)
                    return
        await app(scope, receive, send)

    return GuardedApp(dispatch, guard, metrics)
