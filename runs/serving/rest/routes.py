"""The paths of the REST interface, below `/v1/` and `/api/v1.0/`: from a request to a call, and then to a response.

Paths are split before they are decoded, so an index may have a slash in its name. So may a document, as `/` or `%2F`.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote, unquote_plus

import orjson
import yaml
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from keystone.indexing.errors import UserError
from keystone.indexing.io.json_values import parse_json
from keystone.retrieval.bm25 import METHODS
from keystone.runs.report.html.markup import Html, element, join, make_policy, read_parts
from keystone.runs.serving.call_log import Call, Front, Reply, log_call
from keystone.runs.serving.rest.calls import StoredDocuments, perform
from keystone.runs.serving.server.json_replies import make_error, send_json
from keystone.runs.serving.service import MOST_HITS, Service

N = TypeVar("N", int, float)
LARGEST_K1 = 3.4e38
"""Lucene holds k1 as a float of 32 bits."""
_LINE = re.compile(r"(?:GET|POST) (/[^ ?#]*)(?:\?([^ #]*))? HTTP/1\.1")
LARGEST_CUT = 2**31 - 1
"""The largest `max_doc_length`. No document is longer."""


def parse_search(found: Mapping[str, str], index: str, methods: Sequence[str] = ("bm25",)) -> dict[str, Any]:
    """Parse the parameters of a search of Pyserini 2, and `feedback`, `language` and `method`, one of `methods`.

    `UserError` for values that its server refuses, too.
    """
    query = found.get("query", "")
    if not query.strip():
        raise UserError("Parameter 'query' is required")
    hits = _parse_positive(found, "hits", MOST_HITS)
    k1, b = (_parse_number(found, name, float, "a number") for name in ("k1", "b"))
    if (k1 is None) != (b is None):
        raise UserError("BM25 parameters k1 and b must be set together")
    if k1 is not None and not 0 <= k1 <= LARGEST_K1:
        raise UserError(f"BM25 parameter k1 must be a non-negative number of at most {LARGEST_K1:g}")
    if b is not None and not 0 <= b <= 1:
        raise UserError("BM25 parameter b must be between 0 and 1")
    method = found.get("method") or "bm25"
    if method not in methods:
        raise UserError(f"Parameter 'method' must be one of {', '.join(methods)}")
    if k1 is not None and method != "bm25":
        raise UserError("BM25 parameters k1 and b need method=bm25")
    feedback = found.get("feedback", "").strip() or None
    if feedback is not None and feedback not in METHODS:
        raise UserError(f"Parameter 'feedback' must be one of {', '.join(METHODS)}")
    if feedback is not None and method != "bm25":
        raise UserError("Parameter 'feedback' needs method=bm25")
    own: dict[str, Any] = {"hits": hits or 10, "method": method, "k1": k1, "b": b, "feedback": feedback}
    if language := found.get("language", "").strip():
        if method != "bm25":
            raise UserError("Parameter 'language' needs method=bm25")
        own["language"] = language
    return {"index": index, "query": query, **own, **_parse_form(found)}


def parse_first_search(found: Mapping[str, str], index: str) -> dict[str, Any]:
    """Parse the parameters of a search of Anserini's first server. `UserError` as from `parse_search`."""
    asked = parse_search({key: found[key] for key in ("query", "hits") if key in found}, index)
    return {"index": index, "query": asked["query"], "hits": asked["hits"], "qid": found.get("qid", "")}


def parse_document(found: Mapping[str, str], index: str, doc_id: str) -> dict[str, Any]:
    """Parse the parameters of a request for a document of Pyserini 2. `UserError` where its server refuses them."""
    if not doc_id.strip():
        raise UserError("Path parameter 'docid' is required")
    return {"index": index, "docid": doc_id, **_parse_form(found)}


def parse_search_body(found: Any, index: str) -> dict[str, Any]:
    """Parse the body of a search of Pyserini 1. `UserError` for another type, and for another generator of queries."""
    if not isinstance(found, dict):
        raise UserError("body: expected an object")
    query = found.get("query")
    if isinstance(query, dict):
        query = query.get("query_txt")
    hits, qid = found.get("hits", 10), found.get("qid", "")
    if not isinstance(query, str):
        raise UserError("query: expected a string, or an object with the string query_txt")
    if isinstance(hits, str) and hits.isdecimal() and len(hits) <= len(str(MOST_HITS)):
        hits = int(hits)
    if type(hits) is not int or not 1 <= hits <= MOST_HITS:
        raise UserError(f"hits: expected an integer from 1 to {MOST_HITS}")
    if not isinstance(qid, str):
        raise UserError("qid: expected a string")
    if str(found.get("query_generator") or "BagOfWords").lower() not in ("bagofwords", "bag_of_words"):
        raise UserError("query_generator: expected BagOfWords, the only one of this server")
    return {"index": index, "query": query, "hits": hits, "qid": qid}


def _parse_form(found: Mapping[str, str]) -> dict[str, Any]:
    parse = found.get("parse", "true").strip().lower()
    if parse not in ("true", "false"):
        raise UserError("Parameter 'parse' must be 'true' or 'false'")
    most = _parse_positive(found, "max_doc_length", LARGEST_CUT)
    if most is not None and parse == "false":
        raise UserError("Parameter 'max_doc_length' requires parse=true")
    return {"parse": parse == "true", "max_doc_length": most}


def _parse_number(found: Mapping[str, str], name: str, kind: type[N], expected: str) -> N | None:
    if not (text := found.get(name, "").strip()):
        return None
    try:
        return kind(text)
    except ValueError:
        raise UserError(f"Parameter '{name}' must be {expected}") from None


def _parse_positive(found: Mapping[str, str], name: str, most: int) -> int | None:
    value = _parse_number(found, name, int, "an integer")
    if value is None:
        return None
    if value <= 0:
        raise UserError(f"Parameter '{name}' must be positive")
    if value > most:
        raise UserError(f"Parameter '{name}' must be at most {most}")
    return value


REPORT = "keystone.runs.report.html"
"""The package of the report, from which the page has its style."""


def render_paths(description: Mapping[str, Any]) -> tuple[str, str]:
    """Render the paths of a description; returns the page, and the policy under which a browser has to show it."""
    title, style = description["info"]["title"], read_parts(REPORT, ["base.css"])
    server = description["servers"][0]["url"]
    links = [element("a", name, href=name) for name in ("openapi.json", "openapi.yaml")]
    paths = (
        _render_path(f"{method.upper()} {server}{path}", operation, description)
        for path, operations in description["paths"].items()
        for method, operation in operations.items()
    )
    head = join(
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"{title}: paths"),
        element("link", rel="icon", href="data:,"),
        element("style", Html(style)),
    )
    about = element("p", description["info"]["description"], " For programs: ", links[0], ", ", links[1])
    body = element("body", element("h1", title), about, *paths)
    page = f"<!doctype html>{element('html', element('head', head), body, lang='en')}"
    return page, f"{make_policy(style, '')}; img-src data:; frame-ancestors 'none'"


def _render_path(name: str, operation: Mapping[str, Any], description: Mapping[str, Any]) -> Html:
    rows = [_render_parameter(_follow(one, description)) for one in operation.get("parameters", ())]
    head = element("tr", *(element("th", name) for name in ("parameter", "value", "meaning")))
    table = element("table", element("thead", head), element("tbody", *rows))
    summary = element("p", operation.get("summary", ""))
    return join(element("h2", element("code", name)), summary, *([table] if rows else ()))


def _render_parameter(parameter: Mapping[str, Any]) -> Html:
    schema = parameter.get("schema", {})
    kind = " or ".join(map(str, schema.get("enum", ()))) or schema.get("type", "")
    notes = [f"{key} {schema[key]}" for key in ("minimum", "maximum", "default") if key in schema]
    required = ["required"] if parameter.get("required") else []
    cells = (parameter["name"], ", ".join([kind, *required, *notes]), parameter.get("description", ""))
    return element("tr", *(element("td", cell) for cell in cells))


def _follow(one: Mapping[str, Any], description: Mapping[str, Any]) -> Any:
    """Follow a reference such as `#/components/parameters/index`."""
    found: Any = description
    for part in one["$ref"].split("/")[1:] if "$ref" in one else ():
        found = found[part]
    return found if "$ref" in one else one


NAME = "rest"
ROUTE_ERROR = "Expected route /v1/{index}/search or /v1/{index}/doc/{docid}"
ONLY_GET = make_error("Only GET is supported", 405)
OF_A_TEXT, OF_AN_ID = ("search", "queries"), ("doc", "segments", "segment")
"""The last names of paths with a query, and the names before an id."""
SETTINGS = {"efSearch": None, "encoder": None, "queryGenerator": None}
"""The settings of an index for Pyserini 1. BM25 has none of them."""


def open_front(service: Service) -> Front:
    """Open the REST interface of a service."""
    documents = StoredDocuments(service)
    endpoint = _Endpoint(documents)
    routes = [
        Route("/openapi.yaml", _show_description),
        Route("/openapi.json", _show_description_as_json),
        Route("/docs", _show_paths),
    ]
    return Front(routes, partial(perform, documents), direct={"/v1/": endpoint, "/api/v1.0/": endpoint})


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


def needs_only_bm25(line: str) -> bool:
    """Tell whether the first line of a request asks for documents, or for a search by BM25, and so needs no model."""
    if (found := _LINE.fullmatch(line)) is None:
        return False
    path, names = unquote(found[1]), [unquote_plus(part.partition("=")[0]) for part in (found[2] or "").split("&")]
    asks_model = path == "/v1/answers" or path.endswith("/queries") or "method" in names
    return path.startswith(("/v1/", "/api/v1.0/")) and not asks_model


class _Endpoint:
    """The ASGI application of all paths. It works on the bare scope, since a search takes no longer than a router."""

    def __init__(self, documents: StoredDocuments) -> None:
        self._documents, self._names = documents, _list_names(documents.service)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        api, *parts = [unquote(part) for part in scope["raw_path"].decode("latin-1").split("/")[1:]]
        parts = parts or [""]
        try:
            found = await self._find(parts, scope, receive) if api == "v1" else self._find_first(parts, scope)
        except UserError as error:
            found = make_error(str(error), 422, "detail") if parts[0] == "indexes" else make_error(str(error), 400)
        if isinstance(found, Call):
            call, found = found, await perform(self._documents, found)
            log_call(self._documents.service.log, call, found)
        await send_json(send, found)

    async def _find(self, parts: list[str], scope: Scope, receive: Receive) -> Call | Reply:
        """Find the call that a request asks for, or the reply that needs none."""
        if scope["method"] != "GET":
            return await self._find_for_pyserini_1(parts[1:], scope, receive) if parts[0] == "indexes" else ONLY_GET
        at = self._find_id(parts)
        asks_text = parts[-1] in OF_A_TEXT and len(parts) > 1 and (at is None or self._has(parts[:-1]))
        is_newer = asks_text or (at is not None and at > 1)
        is_document = parts[2:3] == ["documents"] and not self._has(parts[: -1 if asks_text else at])
        if parts[0] == "indexes" and (is_document or not is_newer):
            return await self._find_for_pyserini_1(parts[1:], scope, receive)
        asked, session = _parse_query(scope["query_string"])
        if asks_text:
            index = self._name("/".join(parts[:-1]))
            arguments = parse_search(asked, index, self._documents.service.methods)
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
        service, method = self._documents.service, scope["method"]
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

    Every end of a path is a name. So a path works as the user gave it, wherever the server was started.
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
    """Read the JSON of a body, which the guard gives in one message."""
    try:
        return parse_json((await receive()).get("body", b""))
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
