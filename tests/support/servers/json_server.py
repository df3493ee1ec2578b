"""The frame of scripted HTTP servers that speak JSON on a socket: replies, torn replies, start and end."""

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseRequestHandler
from threading import Thread
from typing import Any


class JsonHandler(BaseHTTPRequestHandler):
    """Sends JSON. Each server has a subclass of its own, whose `state` is the server's."""

    protocol_version = "HTTP/1.1"
    state: Any

    def log_message(self, *_: Any) -> None:
        pass

    def read_json(self) -> Any:
        return json.loads(self.rfile.read(int(self.headers["Content-Length"])))

    def reply(self, value: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.send(json.dumps(value).encode(), status, headers)

    def send(
        self, body: bytes, status: int = 200, headers: dict[str, str] | None = None, length: int | None = None
    ) -> None:
        """Send the body. `length` is the announced length in bytes, if it is not the right one."""
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body) if length is None else length))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def send_half(self, value: Any) -> None:
        """Promise a whole reply, send half of it, and hang up."""
        body = json.dumps(value).encode()
        self.send(body[: len(body) // 2], length=len(body))
        self.close_connection = True

    def send_torn(self, value: Any) -> None:
        """Send half of a reply with the length of the half."""
        body = json.dumps(value).encode()
        self.send(body[: len(body) // 2])


def serve_json(handler: type[JsonHandler], state: Any) -> AbstractContextManager[str]:
    """Serve requests by a subclass of the handler that has this state; see `serve`."""
    return serve(type("Bound", (handler,), {"state": state}))


@contextmanager
def serve(handler: Callable[..., BaseRequestHandler]) -> Iterator[str]:
    """Serve requests in threads until the block ends, and give the server's address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
