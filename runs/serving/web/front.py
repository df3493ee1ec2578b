"""The front of the web page: the page, the answers that it shows, and the documents that answers cite."""

import asyncio
from functools import cache, partial
from typing import Any

import orjson
from sse_starlette import EventSourceResponse
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route, request_response

from keystone.generation.rules.narratives import READ_CHARACTERS, make_narratives
from keystone.indexing.corpora.languages import guess_languages
from keystone.indexing.errors import NotFound, UserError
from keystone.indexing.io.json_values import parse_json
from keystone.indexing.store import sample_documents
from keystone.runs.report.html.markup import make_policy, read_parts
from keystone.runs.serving.call_log import Call, Front, Reply, log_call
from keystone.runs.serving.server.json_replies import make_error, run_until_left
from keystone.runs.serving.server.listen import STOP_S
from keystone.runs.serving.service import Service, answer, check_text, fetch_document
from keystone.runs.serving.web.answers import make_reply, stream_events

PACKAGE = "keystone.runs.serving.web"
REPORT = "keystone.runs.report.html"
"""The package of the report, from which the page has its colours, its table, and the tips of its cells."""
ABOUT = {
    True: "Keystone makes queries from a narrative, ranks documents, and lets a language model write a cited answer.",
    False: "Keystone makes queries from a narrative, and ranks documents. This server asks no language model: rules "
    "choose sentences from the documents, and nothing is graded.",
}
"""The page's words about its answers, with a language model and without one."""
SAMPLED_DOCUMENTS = 120
"""The most documents, evenly spread over the index, by which its languages and its narratives are found."""
NARRATIVES = 3
SCRIPTS = ("events.js", "documents.js", "answer.js", "start.js", "page.js")


@cache
def render_page(has_model: bool) -> tuple[str, str]:
    """Render the page; returns it with the Content-Security-Policy under which a browser has to show it."""
    style = read_parts(REPORT, ["base.css"]) + read_parts(PACKAGE, ["page.css"])
    script = read_parts(REPORT, ["elements.js"]) + read_parts(PACKAGE, SCRIPTS)
    page = read_parts(PACKAGE, ["page.html"])
    page = page.replace('id="about">', f'id="about">{ABOUT[has_model]}')
    page = page.replace("<style></style>", f"<style>{style}</style>")
    page = page.replace("<script></script>", f"<script>{script}</script>")
    return page, f"{make_policy(style, script)}; connect-src 'self'; img-src data:; frame-ancestors 'none'"


def show_page(has_model: bool) -> HTMLResponse:
    """Reply with the page of a server with a language model, or without one."""
    page, policy = render_page(has_model)
    headers = {
        "Content-Security-Policy": policy,
        "Cache-Control": "no-cache",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }
    return HTMLResponse(page, headers=headers)


def describe_index(service: Service) -> dict[str, Any]:
    """Describe the index of a service, as the JSON object of `/page/index`.

    An index whose documents are on another server may have no languages and no narratives, because nobody knows the ids
    of its documents.
    """
    documents = sample_documents(service.store, SAMPLED_DOCUMENTS)
    languages = guess_languages(document.text[:READ_CHARACTERS] for document in documents)
    model = service.config.model
    return {
        "name": service.name,
        "documents": service.index.documents,
        "languages": languages,
        "model": model and model.name,
        "answers": service.answers,
        "narratives": make_narratives(documents, NARRATIVES, not languages or languages[0] == "English"),
    }


NAME = "web"
EVENTS = "text/event-stream"
REPLACED = "the index has been replaced since the answer: ask again to read its documents"


def open_front(service: Service) -> Front:
    """Open the web page of a service."""

    async def reply(request: Request, call: Call) -> Response:
        found = await run_until_left(request, perform(service, call))
        if found is None:
            return Response(status_code=499)  # the client has left
        log_call(service.log, call, found)
        return _send_json(found)

    async def answer_narrative(request: Request) -> Response:
        if request.method != "POST":
            return _send_json(make_error("Only POST is supported", 405))
        try:
            narrative = _parse_narrative(await request.body())
        except UserError as error:
            return _send_json(make_error(str(error), 400))
        call = Call(NAME, "answer", {"narrative": narrative})
        if EVENTS not in request.headers.get("accept", ""):
            return await reply(request, call)
        return EventSourceResponse(stream_events(service, call), shutdown_grace_period=STOP_S)

    async def show(_request: Request) -> Response:
        return show_page(service.config.model is not None)

    describe = cache(partial(describe_index, service))

    async def show_index(_request: Request) -> Response:
        try:
            return _send_json(Reply(orjson.dumps(await asyncio.to_thread(describe))))
        except UserError as error:  # of the server that holds the documents
            return _send_json(make_error(str(error), 400))

    async def show_document(request: Request) -> Response:
        if request.query_params.get("index", service.index.key) != service.index.key:
            return _send_json(make_error(REPLACED, 409))
        return await reply(request, Call(NAME, "document", {"id": request.query_params.get("id", "")}))

    routes = [Route("/", show), Route("/page/index", show_index), Route("/page/document", show_document)]
    return Front(routes, partial(perform, service), direct={"/v1/answers": request_response(answer_narrative)})


async def perform(service: Service, call: Call) -> Reply:
    """Perform a call. An error that the client can cause becomes a reply, too."""
    try:
        if call.operation == "answer":
            narrative = call.arguments["narrative"]
            return make_reply(service, narrative, await answer(service, narrative))
        return await {"document": _read_document}[call.operation](service, call.arguments["id"])
    except UserError as error:
        return make_error(str(error), 404 if isinstance(error, NotFound) else 400)


async def _read_document(service: Service, doc_id: str) -> Reply:
    """Read a document with the places of its segments, in characters of its text."""
    document = await fetch_document(service, doc_id)
    segments = [{"id": one.id, "start": one.span.start, "end": one.span.end} for one in document.segments]
    value = {"id": doc_id, "title": document.title, "url": document.url, "text": document.text, "segments": segments}
    return Reply(orjson.dumps(value), read=[doc_id])


def _parse_narrative(body: bytes) -> str:
    """Read the narrative of a request. `UserError` names the key, the value found and the value expected."""
    try:
        value = parse_json(body)
    except ValueError as error:
        raise UserError(f"body: expected JSON: {error}") from error
    if not isinstance(value, dict) or set(value) != {"narrative"} or not isinstance(value["narrative"], str):
        raise UserError('body: expected an object with only the key narrative and a text, such as {"narrative": "..."}')
    check_text("narrative", value["narrative"])
    return str(value["narrative"])


def _send_json(reply: Reply) -> Response:
    return Response(reply.body, reply.status, {"X-Content-Type-Options": "nosniff"}, "application/json")
