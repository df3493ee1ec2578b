"""The application of a server: the routes of all its fronts. To add a front, add a line to the table `FRONTS`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pkgutil import resolve_name

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from keystone.runs.serving.agents.server import open_sessions
from keystone.runs.serving.call_log import Front
from keystone.runs.serving.served import Served
from keystone.runs.serving.server import HEADERS
from keystone.runs.serving.server.guard import Guard, GuardedApp
from keystone.runs.serving.server.metrics import Metrics, make_routes
from keystone.runs.serving.service import Service

FRONTS = {
    "web": "keystone.runs.serving.web.front:open_front",
    "rest": "keystone.runs.serving.rest.routes:open_front",
    "mcp": "keystone.runs.serving.agents.server:open_front",
}
"""The fronts by their names in the log, each as the import path of a function of (service) that returns a `Front`.

A path below `/v1/` that belongs to no front before `rest` is a path of `rest`.
"""
INDEX_HEADER = b"keystone-index"
"""The header of a reply with the key of the index that it was made from."""


def open_fronts(service: Service) -> dict[str, Front]:
    """Open every front of a service, by name."""
    return {name: resolve_name(path)(service) for name, path in FRONTS.items()}


def make_app(served: Served, guard: Guard, metrics: Metrics | None = None) -> GuardedApp:
    """Make the application behind its guard, with the routes of every front in the order of the table.

    `metrics` counts its requests, and may know those of other processes.
    """
    metrics = metrics or Metrics()
    sessions, run_sessions = open_sessions(served)

    @asynccontextmanager
    async def open_all(_app: Starlette) -> AsyncIterator[None]:
        async with run_sessions(), served.follow():
            yield

    own_routes = [sessions, *make_routes(served, metrics)]
    own_paths = {route.path for route in own_routes}
    own = Starlette(routes=own_routes, lifespan=open_all, exception_handlers={HTTPException: _show_error})

    async def dispatch(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].rstrip("/") in own_paths:
            await own(scope, receive, send)
            return
        with served.use() as service:
            if "fronts" not in service.apps:
                service.apps["fronts"] = _make_app(service)
            scope[HEADERS].append((INDEX_HEADER, service.index.key.encode()))
            own_scope = dict(scope)  # else an idle connection would keep the routes, and so the service
            await service.apps["fronts"](own_scope, receive, send)

    return GuardedApp(dispatch, guard, metrics)


def _make_app(service: Service) -> ASGIApp:
    fronts = open_fronts(service).values()
    routes = [route for front in fronts for route in front.routes]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _show_error})
    direct = [pair for front in fronts for pair in front.direct.items()]

    async def dispatch(scope: Scope, receive: Receive, send: Send) -> None:
        for path, own in direct:
            if scope["path"] == path or (path.endswith("/") and scope["path"].startswith(path)):
                await own(scope, receive, send)
                return
        await app(scope, receive, send)

    return dispatch


async def _show_error(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, headers=dict(error.headers or {}))
