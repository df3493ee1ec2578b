"""A server on a socket that keeps documents as OpenSearch does, with faults by script. It searches only by rows.

Several of them may serve the same documents, as the nodes of a cluster do.
"""

import json
import re
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from pathlib import Path
from threading import Lock, Thread
from typing import Any
from urllib.parse import unquote, urlsplit

from tests.support.servers.json_server import JsonHandler
from tests.support.servers.ports import free_port
from tests.support.waiting import join

Fault = Callable[["Handler"], bool]
"""Answers a `_bulk` request itself and returns True, or returns False so that the server answers."""


@dataclass
class Kept:
    """An index: documents by `_id`, the documents that searches see, and how often each was created."""

    body: dict[str, Any]
    uuid: str
    documents: dict[str, Any] = field(default_factory=dict)
    seen: dict[str, Any] = field(default_factory=dict)
    created: dict[str, int] = field(default_factory=dict)
    merged: int = 0


@dataclass
class State:
    """The state of the cluster. Each `_bulk` request takes one of the `faults`; later, `always` applies."""

    indexes: dict[str, Kept] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    always: Fault | None = None
    item: Callable[[str], tuple[int, str, str] | None] = lambda _: None
    """The rejections of documents by `_id`: status, type and reason."""
    published: list[str] = field(default_factory=list)
    """The addresses that its nodes publish."""
    requests: list[tuple[str, str]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    sent: list[list[str]] = field(default_factory=list)
    at_once: int = 0
    most_at_once: list[int] = field(default_factory=list)
    lock: Any = field(default_factory=Lock)


class Handler(JsonHandler):
    wbufsize = 2**16  # head and body in one packet

    def act(self) -> None:
        self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = unquote(urlsplit(self.path).path)
        state = self.state
        bulk = path.endswith("/_bulk")
        with state.lock:
            state.requests.append((self.command, path))
            state.headers.append({name.lower(): value for name, value in self.headers.items()})
            fault = (state.faults.pop(0) if state.faults else state.always) if bulk else None
            if bulk:
                state.at_once += 1
                state.most_at_once.append(state.at_once)
                state.sent.append(re.findall(r'^{"create":{"_id":"(\d+)"}}$', self.body.decode(), re.MULTILINE))
        try:
            if not (fault and fault(self)):
                status, value = self.answer(path)
                self.reply(value, status)
        except OSError:
            self.close_connection = True
        finally:
            if bulk:
                with state.lock:
                    state.at_once -= 1

    do_GET = do_POST = do_PUT = do_DELETE = act  # noqa: N815

    def answer(self, path: str) -> tuple[int, Any]:
        with self.state.lock:
            if path == "/":
                return 200, {"version": {"number": "3.5.0"}, "cluster_uuid": f"cluster-{id(self.state)}"}
            if path == "/_nodes/http":
                nodes = [{"roles": ["data"], "http": {"publish_address": one}} for one in self.state.published]
                return 200, {"nodes": dict(enumerate(nodes))}
            if path.startswith(("/_index_template/", "/_cluster/health")):
                return 200, {"status": "green"}
            name, _, action = path[1:].partition("/")
            known = self.state.indexes.get(name)
            if self.command == "PUT" and not action:
                return self._create(name, known)
            if known is None:
                return 404, failed(404, "index_not_found_exception", f"no such index [{name}]")
            return self._of(name, known, action)

    def _create(self, name: str, known: Kept | None) -> tuple[int, Any]:
        if known:
            return 400, failed(400, "resource_already_exists_exception", f"index [{name}] already exists")
        self.state.indexes[name] = Kept(json.loads(self.body), f"uuid-{len(self.state.requests)}")
        return 200, {"acknowledged": True}

    def _of(self, name: str, known: Kept, action: str) -> tuple[int, Any]:
        match action:
            case "" if self.command == "DELETE":
                del self.state.indexes[name]
            case "":
                settings = {**known.body["settings"]["index"], "uuid": known.uuid}
                return 200, {name: {"settings": {"index": settings}, "mappings": known.body["mappings"]}}
            case "_bulk":
                items = [self._put(known, *pair) for pair in read_pairs(self.body)]
                return 200, {"errors": any("error" in item["create"] for item in items), "items": items}
            case "_refresh":
                known.seen = dict(known.documents)
            case "_forcemerge":
                known.merged += 1
            case "_settings":
                changed = json.loads(self.body)["index"]
                known.body["settings"]["index"] |= {"blocks": {"write": "true"}} if changed["blocks.write"] else {}
            case "_search":
                return 200, self._search(known, json.loads(self.body))
        return 200, {"acknowledged": True, "_shards": {"total": 1, "successful": 1, "failed": 0}}

    def _put(self, known: Kept, name: str, document: Any) -> dict[str, Any]:
        if wrong := self.state.item(name):
            return {"create": {"status": wrong[0], "error": {"type": wrong[1], "reason": wrong[2]}}}
        if name in known.documents:
            error = {"type": "version_conflict_engine_exception", "reason": f"[{name}]: document already exists"}
            return {"create": {"status": 409, "error": error}}
        known.documents[name] = document
        known.created[name] = known.created.get(name, 0) + 1
        return {"create": {"status": 201}}

    def _search(self, known: Kept, asked: dict[str, Any]) -> dict[str, Any]:
        rows = sorted(document["row"] for document in known.seen.values())
        hits: list[Any] = []
        if query := asked.get("query"):
            within = query["range"]["row"]
            rows = [row for row in rows if within["gte"] <= row < within["lt"]]
            hits = [{"fields": {"row": [row]}} for row in rows[: asked["size"]]]
        found: dict[str, Any] = {"hits": {"total": {"value": len(rows), "relation": "eq"}, "hits": hits}}
        if counts := asked.get("aggs"):
            ranges = counts["rows"]["range"]["ranges"]
            buckets = [{"doc_count": sum(part["from"] <= row < part["to"] for row in rows)} for part in ranges]
            found["aggregations"] = {"rows": {"buckets": buckets}}
        return found


def read_pairs(body: bytes) -> Iterator[tuple[str, Any]]:
    """The `_id` and the document of each pair of lines. A document that is not a line of its own fails here."""
    lines = body.split(b"\n")
    assert lines.pop() == b"", "the last line has no end"
    for action, document in zip(lines[::2], lines[1::2], strict=True):
        yield json.loads(action)["create"]["_id"], json.loads(document)


def failed(status: int, kind: str, reason: str) -> dict[str, Any]:
    """The body of an error as OpenSearch writes it."""
    return {"error": {"root_cause": [], "type": kind, "reason": reason}, "status": status}


@contextmanager
def start_keeper(
    state: State | None = None, port: int | None = None, certificate: tuple[Path, Path] | None = None
) -> Iterator[tuple[State, str]]:
    """Start a server of `state`; gives the state and the URL. With a certificate and its key, the server speaks TLS."""
    state = state or State()
    server = ThreadingHTTPServer(("127.0.0.1", port or free_port()), type("Bound", (Handler,), {"state": state}))
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield state, f"{'https' if certificate else 'http'}://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        join(thread, "the server to end")


def status(code: int, kind: str = "es_rejected_execution_exception", **headers: str) -> Fault:
    """An error for the whole request."""

    def fault(handler: Handler) -> bool:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        handler.reply(failed(code, kind, "rejected execution"), code, named)
        return True

    return fault


def cut(handler: Handler) -> bool:
    """Does the work, and sends half of the answer."""
    handler.send_half(handler.answer(unquote(urlsplit(handler.path).path))[1])
    return True


def torn(handler: Handler) -> bool:
    """Does the work, and sends half of the answer with the length of the half."""
    handler.send_torn(handler.answer(unquote(urlsplit(handler.path).path))[1])
    return True


def dropped(_: Handler) -> bool:
    """Does nothing, and closes the connection."""
    raise ConnectionResetError


def lost(handler: Handler) -> bool:
    """Does the work, and closes the connection without an answer."""
    handler.answer(unquote(urlsplit(handler.path).path))
    raise ConnectionResetError
