"""A real HTTP server with `/rerank` and `/score` on a socket, with faults by script."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from tests.support.servers.json_server import JsonHandler, serve_json

Fault = Callable[["Handler", Any], bool]
"""Answers a request itself and returns True, or returns False so that the server sends the right reply it is given."""


def count_shared_letters(query: str, passage: str) -> float:
    """A model without weights: the share of the query's letters that the passage has."""
    return sum(letter in passage for letter in query) / len(query)


@dataclass
class Server:
    """The settings and records of the server. Each request takes one of the `faults`; later answers are right."""

    faults: list[Fault] = field(default_factory=list)
    always: Fault | None = None
    requests: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    """The path and the body of each request."""
    keys: set[str | None] = field(default_factory=set)
    scored: list[str] = field(default_factory=list)
    """The passages of all right replies."""
    root: str = ""
    lock: Any = field(default_factory=Lock)


class Handler(JsonHandler):
    state: Server

    def do_POST(self) -> None:  # noqa: N802
        asked, state = self.read_json(), self.state
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


@contextmanager
def serving(**settings: Any) -> Iterator[Server]:
    state = Server(**settings)
    with serve_json(Handler, state) as address:
        state.root = address
        yield state


def status(code: int, **headers: str) -> Fault:
    def fault(handler: Handler, _right: Any) -> bool:
        handler.reply({"error": "fault"}, code, {name.replace("_", "-"): value for name, value in headers.items()})
        return True

    return fault


def half(handler: Handler, right: Any) -> bool:
    """Promises a whole reply, sends half of it, and hangs up."""
    handler.send_half(right)
    return True


def torn(handler: Handler, right: Any) -> bool:
    """Sends half of a reply with the length of the half."""
    handler.send_torn(right)
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
