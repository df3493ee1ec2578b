"""The MCP server: it lists the tools, checks the arguments of each call, performs and logs it, and replies.

Standard input may end before the calls in it are answered, for example if it is a file. The library cancels open calls
when its input ends. So this module ends the library's input only when all of them are answered.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from http import HTTPStatus
from importlib.metadata import version
from typing import Any
from uuid import uuid4

import anyio
import orjson
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import MCPError
from mcp import types as mcp_types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER
from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager
from mcp.shared.message import SessionMessage
from pydantic import ValidationError
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from keystone.generation.context.texts import clip
from keystone.indexing.errors import NotFound, UserError
from keystone.runs.serving.agents.tools import DATA, LEAST_REPLY_TOKENS, TOOLS
from keystone.runs.serving.call_log import Call, Front, Reply, log_call
from keystone.runs.serving.served import Served
from keystone.runs.serving.server.json_replies import run_until_left
from keystone.runs.serving.service import Service
from keystone.runs.tracks.violations import shorten_value

FRONT = "mcp"
"""The name of this front in the log of calls."""
INSTRUCTIONS = (
    "Search a collection of documents, read them, and answer questions from them with citations. "
    "Start with `search`; read with `fetch_segment` or `fetch_document`; cite the ids of segments. "
    "If a reply has the key `rest`, it was cut, and `rest` says how to get the rest. " + DATA
)
_LOGGER = logging.getLogger(__name__)


async def perform(service: Service, call: Call) -> Reply:
    """Perform a call whose arguments nobody has checked. An error becomes a short reply with the fitting HTTP status.

    The agent is told how to correct an error that it caused. A bug is logged with its traceback, and the agent is told
    only the name of the exception.
    """
    if call.operation not in TOOLS:
        return _make_error(f"tool: found {call.operation!r}, expected one of {', '.join(TOOLS)}")
    tool = TOOLS[call.operation]
    try:
        return await tool.run(service, tool.arguments.model_validate(dict(call.arguments)))
    except ValidationError as error:
        return _make_error("\n".join(_explain(one["loc"], one["msg"], one["input"]) for one in error.errors()))
    except NotFound as error:
        return _make_error(str(error), 404)
    except UserError as error:
        return _make_error(str(error))
    except Exception as error:
        _LOGGER.exception("the tool %s failed", call.operation)
        return _make_error(f"Keystone failed inside with {type(error).__name__}; the log of the server says more", 500)


def make_mcp_server(served: Served) -> Server[Any]:
    """Make the MCP server of what is served. Over stdio, all calls are one session."""
    own_session = uuid4().hex
    listed = mcp_types.ListToolsResult(
        tools=[
            mcp_types.Tool(
                name=name,
                title=tool.title,
                description=tool.description,
                input_schema=tool.arguments.model_json_schema(),
                annotations=mcp_types.ToolAnnotations(read_only_hint=True, open_world_hint=False),
            )
            for name, tool in TOOLS.items()
        ]
    )

    async def list_tools(_context: Any, _params: Any) -> mcp_types.ListToolsResult:
        return listed

    async def call_tool(context: Any, params: mcp_types.CallToolRequestParams) -> mcp_types.CallToolResult:
        session = context.request.headers.get(MCP_SESSION_ID_HEADER, "") if context.request else own_session
        call = Call(FRONT, params.name, params.arguments or {}, session)
        if not _is_writable([call.operation, call.arguments]):
            _LOGGER.warning("a call of the tool %r is refused: the log cannot hold its arguments", call.operation)
            raise MCPError(mcp_types.INVALID_PARAMS, "arguments: expected UTF-8, finite numbers of 64 bits, few levels")
        with served.use() as service:
            reply = await perform(service, call)
            log_call(service.log, call, reply)
        text = reply.body.decode()
        if call.operation not in TOOLS:
            raise MCPError(mcp_types.INVALID_PARAMS, text)
        content = mcp_types.TextContent(type="text", text=text)
        return mcp_types.CallToolResult(content=[content], is_error=reply.status != HTTPStatus.OK)

    return Server(
        "keystone",
        title="Keystone",
        version=version("keystone-rag"),
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _make_error(message: str, status: int = 400) -> Reply:
    return Reply(clip(message, LEAST_REPLY_TOKENS).encode(errors="backslashreplace"), status=status)


def _is_writable(value: Any) -> bool:
    """Tell whether a value is the same after it was written as JSON and read."""
    try:
        return bool(orjson.loads(orjson.dumps(value)) == value)
    except orjson.JSONEncodeError:
        return False


def _explain(place: tuple[int | str, ...], problem: str, found: Any) -> str:
    return f"{'.'.join(map(str, place))}: {problem}; found {shorten_value(found)}"


PATH = "/mcp"
"""The path of the front in the application."""


def open_front(service: Service) -> Front:
    """Open the MCP front of a service. Its calls come through the sessions of `open_sessions`, which outlast it."""
    return Front([], partial(perform, service))


def open_sessions(served: Served) -> tuple[Route, Callable[[], AbstractAsyncContextManager[None]]]:
    """Open MCP over streamable HTTP; returns its route, and a context that must be open as long as the server runs.

    A GET would open a stream of messages that the server begins. It begins none, so GET is refused. Replies are JSON:
    the library would break off a stream of events when the server is asked to stop.
    """
    manager = StreamableHTTPSessionManager(make_mcp_server(served), json_response=True)
    return Route(PATH, _Endpoint(StreamableHTTPASGIApp(manager)), methods=["POST", "DELETE"]), manager.run


class _Endpoint:
    """The application of the path. If an agent without a session closes its request, the work for it ends.

    With JSON replies, the library would not end it. An agent with a session may leave: it cancels calls by a message.
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


CANCELLED = "notifications/cancelled"
"""The message after which a call gets no answer."""


async def serve_stdio(served: Served) -> None:
    """Serve MCP over standard input and output until the input ends and all of its calls are answered."""
    async with served.follow(), stdio_server() as (incoming, outgoing):
        await answer_all(make_mcp_server(served), incoming, outgoing)


async def answer_all(server: Server[Any], incoming: Any, outgoing: Any) -> None:
    """Serve the messages of a stream, until it ends and all of its calls are answered."""
    calls = _OpenCalls()
    to_server, read = anyio.create_memory_object_stream[SessionMessage | Exception]()
    write, from_server = anyio.create_memory_object_stream[SessionMessage]()
    async with anyio.create_task_group() as group:
        group.start_soon(_pass_in, incoming, to_server, calls)
        group.start_soon(_pass_out, from_server, outgoing, calls)
        await server.run(read, write, server.create_initialization_options())


class _OpenCalls:
    """The calls that were read and not answered, by id."""

    def __init__(self) -> None:
        self._ids: Counter[int | str] = Counter()
        self._settled = anyio.Event()

    def note_incoming(self, message: mcp_types.JSONRPCMessage) -> None:
        """Note a call. One that is cancelled gets no answer."""
        if isinstance(message, mcp_types.JSONRPCRequest):
            self._ids[message.id] += 1
        elif isinstance(message, mcp_types.JSONRPCNotification) and message.method == CANCELLED:
            self._settle((message.params or {}).get("requestId"))

    def note_outgoing(self, message: mcp_types.JSONRPCMessage) -> None:
        """Note an answer."""
        if isinstance(message, mcp_types.JSONRPCResponse | mcp_types.JSONRPCError):
            self._settle(message.id)

    def _settle(self, of: Any) -> None:
        if isinstance(of, int | str) and self._ids[of] > 0:
            self._ids[of] -= 1
            self._settled.set()

    async def wait_for_answers(self) -> None:
        """Wait until no call is open."""
        while self._ids.total():
            self._settled = anyio.Event()
            await self._settled.wait()


async def _pass_in(
    incoming: Any, to_server: MemoryObjectSendStream[SessionMessage | Exception], calls: _OpenCalls
) -> None:
    async with to_server, incoming:
        async for item in incoming:
            if isinstance(item, SessionMessage):
                calls.note_incoming(item.message)
            await to_server.send(item)
        await calls.wait_for_answers()


async def _pass_out(from_server: MemoryObjectReceiveStream[SessionMessage], outgoing: Any, calls: _OpenCalls) -> None:
    async with from_server, outgoing:
        async for item in from_server:
            await outgoing.send(item)
            calls.note_outgoing(item.message)
