"""MCP over standard input and output. The input may end before the calls in it are answered, as that of a file does.

The library cancels open calls when its input ends. So its input ends here only when all of them are answered.
"""

from collections import Counter
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp import types as mcp_types
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage

from keystone.runs.serving.agents.server import make_mcp_server
from keystone.runs.serving.served import Served

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
