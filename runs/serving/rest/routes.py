"""The paths of the REST interface, below `/v1/` and `/api/v1.0/`: from a request to a call, and then to a response.

Paths are split before they are decoded, so an index may have a slash in its name. So may a document, as `/` or `%2F`.
"""

from collections.abc import Mapping
from contextlib import suppress
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote

import orjson
import yaml
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from keystone.indexing.errors import UserError
from keystone.indexing.io.json_values import parse_json
from keystone.runs.serving.call_log import Call, Reply, log_call
from keystone.runs.serving.front import Front
from keystone.runs.serving.rest.calls import Rest, perform
from keystone.runs.serving.rest.describe import render_paths
from keystone.runs.serving.rest.parameters import parse_document, parse_first_search, parse_search, parse_search_body
from keystone.runs.serving.rest.payloads import StoredDocuments
from keystone.runs.serving.server.json_replies import make_error, send_json
from keystone.runs.serving.service import Service

NAME = "rest"
ROUTE_ERROR = "Expected route /v1/{index}/search or /v1/{index}/doc/{docid}"
ONLY_GET = make_error("Only GET is supported", 405)
OF_A_TEXT, OF_AN_ID = ("search", "queries"), ("doc", "segments", "segment")
"""The last names of paths with a query, and the names before an id."""
SETTINGS = {"efSearch": None, "encoder": None, "queryGenerator": None}
"""The settings of an index for Pyserini 1. BM25 has none of them."""


def open_front(service: Service) -> Front:
    """Open the REST interface of a service."""
    rest = Rest(service, StoredDocuments(service))
    endpoint = _Endpoint(rest)
    routes = [
        Route("/openapi.yaml", _show_description),
        Route("/openapi.json", _show_description_as_json),
        Route("/docs", _show_paths),
    ]
    return Front(routes, partial(perform, rest), direct={"/v1/": endpoint, "/api/v1.0/": endpoint})


@cache
def _read_description() -> bytes:
    return files("keystone.runs.serving.rest").joinpath("openapi.yaml").read_bytes()


async def _show_description(_request: Request) -> Response:
    return Response(_read_description(), media_type="application/yaml")


async def _show_description_as_json(_request: Request) -> Response:
    return Response(orjson.dumps(yaml.safe_load(_read_description())), media_type="application/json")


async def _show_paths(_request: Request) -> Response:
    page, policy = render_paths(yaml.safe_load(_read_description()))
    return HTMLResponse(page, headers={"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff"})


class _Endpoint:
    """The ASGI application of all paths. It works on the bare scope, since a search takes no longer than a router."""

    def __init__(self, rest: Rest) -> None:
        self._rest, self._names = rest, _list_names(rest.service)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        api, *parts = [unquote(part) for part in scope["raw_path"].decode("latin-1").split("/")[1:]]
        parts = parts or [""]
        try:
            found = await self._find(parts, scope, receive) if api == "v1" else self._find_first(parts, scope)
        except UserError as error:
            found = make_error(str(error), 422, "detail") if parts[0] == "indexes" else make_error(str(error), 400)
        if isinstance(found, Call):
            call, found = found, await perform(self._rest, found)
            log_call(self._rest.service.log, call, found)
        await send_json(send, found)

    async def _find(self, parts: list[str], scope: Scope, receive: Receive) -> Call | Reply:
        """Find the call that a request asks for, or the reply that needs none."""
        method = scope["method"]
        at = self._find_id(parts)
        asks_text = parts[-1] in OF_A_TEXT and len(parts) > 1 and (at is None or self._has(parts[:-1]))
        is_newer = method == "GET" and (asks_text or (at is not None and at > 1))
        is_document = parts[2:3] == ["documents"] and not self._has(parts[: -1 if asks_text else at])
        if parts[0] == "indexes" and (is_document or not is_newer):
            return await self._find_for_pyserini_1(parts[1:], scope, receive)
        if method != "GET":
            return ONLY_GET
        asked, session = _parse_query(scope["query_string"])
        if asks_text:
            index = self._name("/".join(parts[:-1]))
            arguments = parse_search(asked, index, self._rest.service.methods)
            return self._known(index) or Call(NAME, parts[-1], arguments, session)
        if at is not None:
            index, kind, name = self._name("/".join(parts[:at])), parts[at], "/".join(parts[at + 1 :])
            if kind == "doc":
                return self._known(index) or Call(NAME, "document", parse_document(asked, index, name), session)
            key = "docid" if kind == "segments" else "id"
            return self._known(index) or Call(NAME, kind, {"index": index, key: name}, session)
        return make_error(ROUTE_ERROR, 404)

    def _find_first(self, parts: list[str], scope: Scope) -> Call | Reply:
        """Find the call for a request to Anserini's first server, whose only path here is that of a search."""
        if scope["method"] != "GET":
            return ONLY_GET
        match parts:
            case ["v1.0", "indexes", index, "search"]:
                asked, session = _parse_query(scope["query_string"])
                arguments = parse_first_search(asked, index)
                return self._known(index) or Call(NAME, "api.search", arguments, session)
        return make_error(ROUTE_ERROR, 404)

    async def _find_for_pyserini_1(self, parts: list[str], scope: Scope, receive: Receive) -> Call | Reply:
        service, method = self._rest.service, scope["method"]
        if parts in ([], [""]):
            return _show([service.name]) if method == "GET" else make_error("Method Not Allowed", 405, "detail")
        if parts[0] not in self._names:
            what = "not available" if parts[1:] == ["settings"] else "not currently supported in prebuilt indexes."
            return make_error(f"Index {parts[0]} {what}", 404, "detail")
        match method, parts[1:]:
            case "POST", ["search"]:
                return Call(NAME, "indexes.search", parse_search_body(await _read_json(receive), parts[0]))
            case "GET", ["documents", first, *more]:
                return Call(NAME, "indexes.document", {"index": parts[0], "docid": "/".join([first, *more])})
            case "GET", ["status"]:
                return _show({"downloaded": True, "size_bytes": str(_measure_bytes(service.index.folder))})
            case "GET", ["settings"]:
                return _show(SETTINGS)
            case "POST", ["settings"]:
                raise UserError("settings: expected none, because those of this server are fixed when it starts")
        return make_error("Not Found", 404, "detail")

    def _find_id(self, parts: list[str]) -> int | None:
        """Find the place of the name before an id with any slashes: the first after a known index, else the last."""
        places = [place for place in range(1, len(parts) - 1) if parts[place] in OF_AN_ID]
        known = (place for place in places if self._has(parts[:place]))
        return next(known, places[-1] if places else None)

    def _has(self, parts: list[str]) -> bool:
        """Return whether these parts of a path are a name of the index."""
        return self._name("/".join(parts)) in self._names

    def _name(self, index: str) -> str:
        """Return the name of an index below `/v1/`, where it may stand below `indexes/` as in Pyserini 1."""
        return index if index in self._names else index.removeprefix("indexes/")

    def _known(self, index: str) -> Reply | None:
        """Return None for the name of the index, and the reply to a request for any other, in Pyserini's words."""
        return None if index in self._names else make_error(f"Unable to open index: {index}", 400)


def _list_names(service: Service) -> frozenset[str]:
    """List the names of the index: the paths of its folder and of the index that the folder was made over.

    Every end of a path is a name. So a path works as it was given, wherever the server was started.
    """
    folder, at = service.index.folder, service.index.at
    paths = [folder.absolute(), folder.resolve(), *(Path(at[key]) for key in ("index", "name") if at.get(key))]
    ends = ("/".join(path.parts[start:]) for path in paths for start in range(bool(path.root), len(path.parts)))
    return frozenset({*map(str, paths), *ends})


def _parse_query(query: bytes) -> tuple[dict[str, str], str]:
    """Parse a query string; returns its parameters, and the session that it names, or nothing."""
    try:
        asked = dict(parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict"))
    except ValueError as error:
        raise UserError(f"query string: expected percent-encoded UTF-8: {error}") from error
    return asked, asked.get("run_id") or asked.get("qid") or ""


async def _read_json(receive: Receive) -> Any:
    body, more = b"", True
    while more:
        message: Mapping[str, Any] = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    try:
        return parse_json(body)
    except ValueError as error:
        raise UserError(f"body: expected JSON: {error}") from error


def _show(value: Any) -> Reply:
    return Reply(orjson.dumps(value))


def _measure_bytes(folder: Path) -> int:
    found = 0
    for file in folder.rglob("*"):
        with suppress(FileNotFoundError):  # another index takes the place of this one
            found += file.stat().st_size if file.is_file() else 0
    return found
