"""The MCP front of a service over streamable HTTP."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial

from mcp.server.streamable_http import MCP_SESSION_ID_HEADER
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from keystone.runs.serving.agents.server import make_mcp_server, perform
from keystone.runs.serving.front import Front
from keystone.runs.serving.served import Served
from keystone.runs.serving.server.leaving import run_until_left
from keystone.runs.serving.service import Service

PATH = "/mcp"
"""The path of the front in the application."""


def open_front(service: Service) -> Front:
    """Open the MCP front of a service. Its calls come by the sessions of `open_sessions`, which outlast a service."""
    return Front([], partial(perform, service))


def open_sessions(served: Served) -> tuple[Route, Callable[[], AbstractAsyncContextManager[None]]]:
    """Open MCP over streamable HTTP; returns its route, and what has to be open as long as the server runs.

    A GET would open a stream of messages that the server begins. It begins none, so GET is refused. Replies are JSON:
    the library would break off a stream of events when the server is asked to stop.
    """
    manager = StreamableHTTPSessionManager(make_mcp_server(served), json_response=True)
    return Route(PATH, _Endpoint(StreamableHTTPASGIApp(manager)), methods=["POST", "DELETE"]), manager.run


class _Endpoint:
    """The application of the path. If an agent without a session closes its request, the work for it ends.

    With JSON replies, the library does not end it. An agent with a session may leave, and cancels by a message.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if MCP_SESSION_ID_HEADER in request.headers:
            await self._app(scope, receive, send)
            return
        whole: list[Message] = [{"type": "http.request", "body": await request.body(), "more_body": False}]

        async def receive_whole() -> Message:
            if not whole:
                await asyncio.Event().wait()
            return whole.pop()

        async def answer() -> None:
            await self._app(scope, receive_whole, send)

        await run_until_left(request, answer())
