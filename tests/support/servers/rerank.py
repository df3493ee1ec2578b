"""A real HTTP server with `/rerank` and `/score` on a socket, with faults by script."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any

Fault = Callable[["Handler", Any], bool]
"""Answers a request itself and returns True, or returns False so that the server sends the right reply it is given."""


def count_shared_letters(query: str, passage: str) -> float:
    """A model without weights: the share of the query's letters that the passage has."""
    return sum(letter in passage for letter in query) / len(query)


@dataclass
class Server:
    """The settings and records of the server. Each request takes one of the `faults`; then answers are right."""

    faults: list[Fault] = field(default_factory=list)
    always: Fault | None = None
    requests: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """The path and the body of each request."""
    keys: set[str | None] = field(default_factory=set)
    scored: list[str] = field(default_factory=list)
    """The passages of all right replies."""
    root: str = ""
    lock: Any = field(default_factory=Lock)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: Server

    def log_message(self, *_: Any) -> None:
        pass

    def do_POST(self) -> None:
        asked, state = json.loads(self.rfile.read(int(self.headers["Content-Length"]))), self.state
        with state.lock:
            state.requests.append((self.path, asked))
            state.keys.add(self.headers.get("Authorization"))
            fault = state.faults.pop(0) if state.faults else state.always
        scores = self.path.endswith("/score")
        query, passages = (asked["text_1"], asked["text_2"]) if scores else (asked["query"], asked["documents"])
        found = [count_shared_letters(query, passage) for passage in passages]
        if scores:
            right: Any = {"data": [{"index": i, "score": score} for i, score in enumerate(found)]}
        else:
            items = [{"index": i, "relevance_score": score} for i, score in enumerate(found)]
            right = {"results": sorted(items, key=lambda item: -float(item["relevance_score"]))}
        if not (fault and fault(self, right)):
            with state.lock:
                state.scored += passages
            self.reply(right)

    def reply(self, value: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.send(json.dumps(value).encode(), status, headers or {})

    def send(self, body: bytes, status: int, headers: dict[str, str], length: int | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body) if length is None else length))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serving(**settings: Any) -> Iterator[Server]:
    state = Server(**settings)
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"state": state}))
    Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    state.root = f"http://127.0.0.1:{server.server_port}"
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()


def status(code: int, **headers: str) -> Fault:
    def fault(handler: Handler, _right: Any) -> bool:
        handler.reply({"error": "fault"}, code, {name.replace("_", "-"): value for name, value in headers.items()})
        return True

    return fault


def half(handler: Handler, right: Any) -> bool:
    """Promises a whole reply, sends half of it, and hangs up."""
    body = json.dumps(right).encode()
    handler.send(body[: len(body) // 2], 200, {}, len(body))
    handler.close_connection = True
    return True


def torn(handler: Handler, right: Any) -> bool:
    """Sends half of a reply with the length of the half."""
    body = json.dumps(right).encode()
    handler.send(body[: len(body) // 2], 200, {})
    return True


def says(value: Any) -> Fault:
    def fault(handler: Handler, _right: Any) -> bool:
        handler.reply(value)
        return True

    return fault


def refuses(wanted: Callable[[str, list[str]], bool]) -> Fault:
    """Refuses, as too large, requests whose query and passages the function wants refused."""

    def fault(handler: Handler, _right: Any) -> bool:
        _, asked = handler.state.requests[-1]
        if not wanted(asked["query"], asked["documents"]):
            return False
        handler.reply({"error": {"message": "too long"}}, 400)
        return True

    return fault
