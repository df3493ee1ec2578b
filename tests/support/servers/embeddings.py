"""A real HTTP server with `/v1/embeddings` on a socket, with faults by script."""

import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.support.servers.json_server import JsonHandler, serve_json

Fault = Callable[["Handler", list[str]], bool]
"""Answers a request itself and returns True, or returns False so that the server answers."""


def letters(texts: Sequence[str]) -> NDArray[np.float32]:
    """A model without weights: the counts of eight letters, and one constant, so that no vector is zero."""
    return np.array([[text.count(letter) for letter in "aeinorst"] + [1] for text in texts], dtype=np.float32)


@dataclass
class Server:
    """The settings and records of the server. Each request takes one of the `faults`; later answers are right."""

    model: Callable[[Sequence[str]], NDArray[np.float32]] = letters
    name: str = "letters"
    faults: list[Fault] = field(default_factory=list)
    always: Fault | None = None
    window: int | None = None
    listed: Any = None
    """The answer of `/v1/models`, if it is not the right one."""
    as_lists: bool = False
    requests: list[list[str]] = field(default_factory=list)
    keys: set[str | None] = field(default_factory=set)
    at_once: int = 0
    most_at_once: int = 0
    url: str = ""
    lock: Any = field(default_factory=Lock)


class Handler(JsonHandler):
    state: Server
    asked: dict[str, Any]

    def do_GET(self) -> None:  # noqa: N802
        if self.state.listed is not None:
            self.reply(self.state.listed)
            return
        limit = {"max_model_len": self.state.window} if self.state.window else {}
        self.reply({"object": "list", "data": [{"id": self.state.name, "object": "model", **limit}]})

    def do_POST(self) -> None:  # noqa: N802
        asked = self.asked = self.read_json()
        texts, state = asked["input"], self.state
        with state.lock:
            state.requests.append(texts)
            state.keys.add(self.headers.get("Authorization"))
            fault = state.faults.pop(0) if state.faults else state.always
            state.at_once += 1
            state.most_at_once = max(state.most_at_once, state.at_once)
        try:
            if self.path != "/v1/embeddings" or asked["model"] != self.state.name:
                self.reply({"error": {"message": "no such model"}}, 404)
            elif not (fault and fault(self, texts)):
                self.reply(self.embeddings(state.model(texts)))
        finally:
            with state.lock:
                state.at_once -= 1

    def embeddings(self, vectors: NDArray[np.float32], indexes: Sequence[Any] | None = None) -> dict[str, Any]:
        def written(vector: NDArray[np.float32]) -> Any:
            return vector.tolist() if self.state.as_lists else b64encode(vector.astype("<f4").tobytes()).decode()

        numbers = range(len(vectors)) if indexes is None else indexes
        data = [
            {"object": "embedding", "index": i, "embedding": written(v)} for i, v in zip(numbers, vectors, strict=True)
        ]
        return {
            "object": "list",
            "data": data,
            "model": self.state.name,
            "usage": {"prompt_tokens": 1, "total_tokens": 1},
        }


@contextmanager
def serving(**settings: Any) -> Iterator[Server]:
    state = Server(**settings)
    with serve_json(Handler, state) as address:
        state.url = f"{address}/v1"
        yield state


def status(code: int, message: str = "fault", **headers: str) -> Fault:
    def fault(handler: Handler, _texts: list[str]) -> bool:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        handler.reply({"error": {"message": message}}, code, named)
        return True

    return fault


def half(handler: Handler, texts: list[str]) -> bool:
    """Promises a whole reply, sends half of it, and hangs up."""
    handler.send_half(handler.embeddings(handler.state.model(texts)))
    return True


def torn(handler: Handler, texts: list[str]) -> bool:
    """Sends half of a reply with the length of the half."""
    handler.send_torn(handler.embeddings(handler.state.model(texts)))
    return True


def slow(handler: Handler, _texts: list[str]) -> bool:
    time.sleep(4)
    handler.close_connection = True
    return True


def unhurried(_handler: Handler, _texts: list[str]) -> bool:
    """Waits, so that requests overlap."""
    time.sleep(0.1)
    return False


def more_than(texts: int, characters: int, tell: bool = False) -> Fault:
    """Refuses batches of more texts and texts of more characters. If `tell` is true, it names its limit in tokens."""

    def fault(handler: Handler, found: list[str]) -> bool:
        longest = max(map(len, found))
        if len(found) <= texts and longest <= characters:
            return False
        if tell and len(found) == 1:
            message = f"maximum context length is {characters} tokens. However, you requested {longest} tokens"
            handler.reply({"error": {"message": message}}, 400)
        else:
            handler.reply({"error": {"message": "too large"}}, 413)
        return True

    return fault


def wrong(change: Callable[[dict[str, Any]], Any]) -> Fault:
    """A reply of valid JSON with wrong content."""

    def fault(handler: Handler, texts: list[str]) -> bool:
        value = handler.embeddings(handler.state.model(texts))
        handler.reply(change(value) or value)
        return True

    return fault
