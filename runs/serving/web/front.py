"""The front of the web page: the page, the answers that it shows, and the documents that answers cite.

An answer is one JSON object, or a stream of events that ends with the files to download.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import cache, partial
from typing import Any, TypeAlias

import orjson
from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route, request_response

from keystone.generation.rules.narratives import make_narratives
from keystone.generation.rules.support import DOUBT
from keystone.generation.types import Answer, Sentence
from keystone.generation.types import Step as ReaderStep
from keystone.indexing.corpora.languages import guess_languages
from keystone.indexing.errors import NotFound, UserError
from keystone.indexing.io.json_values import parse_json
from keystone.indexing.store import sample_documents
from keystone.indexing.types import Span
from keystone.retrieval.types import Topic
from keystone.runs.pipeline.answering import make_record
from keystone.runs.pipeline.grade_files import Judgment
from keystone.runs.pipeline.ranking.rank import Hits
from keystone.runs.pipeline.stage import Step
from keystone.runs.report.html.markup import make_policy, read_parts
from keystone.runs.serving import service as operations
from keystone.runs.serving.call_log import Call, Front, Reply, log_call
from keystone.runs.serving.server.json_replies import make_error, run_until_left, start
from keystone.runs.serving.server.listen import STOP_S
from keystone.runs.trec.run_files import render_run
from keystone.runs.trec.types import make_run

Titles: TypeAlias = Mapping[str, operations.Titled]
"""The documents, each by its own id and by the ids of its cited segments."""
TITLED_HITS = 20
"""How many documents of the narrative's ranking have titles. To read a title, Keystone reads the document."""


def describe_rankings(found: tuple[Mapping[str, Hits], Hits], titles: Titles) -> dict[str, Any]:
    """Describe the best documents of each query and of the narrative. The first ones of the narrative have titles."""
    rankings, fused = found
    ids = [doc_id for doc_id, _ in fused]
    return {
        "rankings": {name: [doc_id for doc_id, _ in hits] for name, hits in rankings.items()},
        "fused": ids,
        "documents": _name(ids[:TITLED_HITS], titles),
    }


def describe_grades(judgments: Sequence[Judgment], titles: Titles) -> dict[str, Any]:
    """Describe the grades of documents for queries."""
    grades = [{"query": one.query_id, "document": one.doc_id, "grade": one.grade} for one in judgments]
    return {"grades": grades, "documents": _name((one.doc_id for one in judgments), titles)}


def describe_research(step: ReaderStep, _titles: Titles) -> dict[str, Any]:
    """Describe a step of the research agent: its query, its action, the first line of the result, and its notes."""
    return {
        "query": step.query_id,
        "action": step.action,
        "result": step.observation.partition("\n")[0],
        "notes": len(step.added),
    }


def describe_sentence(sentence: Sentence, titles: Titles) -> dict[str, Any]:
    """Describe a sentence with its citations, best support first: each a segment and its document."""
    citations = [
        {"id": cited, "document": titles[cited].id, "title": titles[cited].title} for cited in sentence.citations
    ]
    return {"text": sentence.text, "citations": citations}


def add_quotes(described: dict[str, Any], quotes: Sequence[tuple[Span, str] | None]) -> None:
    """Add to each citation of a described sentence the stretch of its document that supports the sentence, or null."""
    for citation, quote in zip(described["citations"], quotes, strict=True):
        citation["quote"] = quote and {"start": quote[0].start, "end": quote[0].end, "text": quote[1]}


def _name(doc_ids: Iterable[str], titles: Titles) -> list[dict[str, str]]:
    return [{"id": doc_id, "title": titles[doc_id].title} for doc_id in dict.fromkeys(doc_ids)]


DESCRIPTIONS: Mapping[str, Callable[[Any, Titles], dict[str, Any]]] = {
    "queries": lambda queries, _: {"queries": [{"id": one.id, "question": one.question} for one in queries]},
    "rankings": describe_rankings,
    "grades": describe_grades,
    "chosen": lambda doc_ids, titles: {"documents": _name(doc_ids, titles)},
    "research": describe_research,
    "sentence": describe_sentence,
}
"""The events before the last one by name, each with the function that makes its object."""
SHOWN_IDS: Mapping[str, Callable[[Any], Iterable[str]]] = {
    "rankings": lambda found: (doc_id for doc_id, _ in found[1][:TITLED_HITS]),
    "grades": lambda judgments: (one.doc_id for one in judgments),
    "chosen": lambda doc_ids: doc_ids,
    "sentence": lambda sentence: sentence.citations,
}
"""The ids of the documents and the cited segments whose titles an event shows."""


def make_reply(service: operations.Service, narrative: str, found: Answer) -> Reply:
    """Make the JSON object of an answer: a line of the track's answer file, and the model's missing replies."""
    fallbacks = [asdict(one) for one in found.fallbacks]
    record = make_record(service.engine.job, Topic(operations.TOPIC_ID, narrative), found)
    body = orjson.dumps({"answer": record, "fallbacks": fallbacks})
    return Reply(body, cited=found.list_citations())


async def stream_events(service: operations.Service, call: Call) -> AsyncIterator[ServerSentEvent]:
    """Answer the narrative of a call, and yield an event for each step as it is made; then log the call.

    Each event has the seconds since the start. If the caller closes the stream, the work is cancelled.
    """
    narrative, began = call.arguments["narrative"], time.monotonic()
    arrived: asyncio.Queue[tuple[str, Any, float] | None] = asyncio.Queue()
    run: Hits = []
    titles: dict[str, operations.Titled] = {}

    def watch(step: Step, value: Any) -> None:
        arrived.put_nowait((step, value, time.monotonic() - began))

    with start(operations.answer(service, narrative, watch)) as work:
        work.add_done_callback(lambda _: arrived.put_nowait(None))
        try:
            while one := await arrived.get():
                step, value, seconds = one
                if step == "run":
                    run = value
                    continue
                shown = SHOWN_IDS[step](value) if step in SHOWN_IDS else ()
                if missing := [name for name in dict.fromkeys(shown) if name not in titles]:
                    titles.update(zip(missing, await operations.find_titles(service, missing), strict=True))
                told = DESCRIPTIONS[step](value, titles)
                if step == "sentence":
                    add_quotes(told, await operations.find_quotes(service, value))
                yield _make_event(step, seconds, told)
            found = await work
        except UserError as error:
            log_call(service.log, call, make_error(str(error), 400))
            yield _make_event("error", time.monotonic() - began, {"message": str(error)})
            return
        log_call(service.log, call, make_reply(service, narrative, found))
        done = {
            "files": make_files(service, narrative, found, run),
            "fallbacks": [asdict(f) for f in found.fallbacks],
            "doubt": DOUBT if await operations.doubt(service, narrative, found) else None,
        }
        yield _make_event("done", time.monotonic() - began, done)


def make_files(service: operations.Service, narrative: str, found: Answer, hits: Hits) -> list[dict[str, str]]:
    """Make the run file, the answer file and the topics file of one narrative: names and texts."""
    track = service.engine.job.track
    run = make_run(service.config.run_id, {operations.TOPIC_ID: hits})
    rows = render_run(run)
    record = make_record(service.engine.job, Topic(operations.TOPIC_ID, narrative), found)
    topic = {"id": operations.TOPIC_ID, "narrative": narrative}
    return [
        {"name": track.retrieval_file, "text": bytes(rows).decode()},
        {"name": track.answer_file, "text": _encode_line(record)},
        {"name": "topics.jsonl", "text": _encode_line(topic)},
    ]


def _make_event(name: str, seconds: float, value: dict[str, Any]) -> ServerSentEvent:
    return ServerSentEvent(orjson.dumps({"seconds": round(seconds, 3), **value}).decode(), event=name, sep="\n")


def _encode_line(value: dict[str, Any]) -> str:
    return orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE).decode()


PACKAGE = "keystone.runs.serving.web"
REPORT = "keystone.runs.report.html"
"""The package of the report, from which the page has its colours, its table, and the tips of its cells."""
ABOUT = {
    True: "Keystone makes queries from a narrative, ranks documents, and lets a language model write a cited answer.",
    False: "Keystone makes queries from a narrative, and ranks documents. This server asks no language model: rules "
    "choose sentences from the documents, and nothing is graded.",
}
"""The page's words about its answers, with a language model and without one."""
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


def describe_index(service: operations.Service) -> dict[str, Any]:
    """Describe the index of a service, as the JSON object of `/page/index`.

    An index whose documents are on another server may have no languages and no narratives, because nobody knows the ids
    of its documents.
    """
    documents = sample_documents(service.store)
    languages = guess_languages(document.text for document in documents)
    model = service.config.model
    return {
        "name": service.name,
        "documents": service.index.documents,
        "languages": languages,
        "model": model and model.name,
        "answers": service.config.has_answers,
        "narratives": make_narratives(documents, NARRATIVES, not languages or languages[0] == "English"),
    }


NAME = "web"
EVENTS = "text/event-stream"
REPLACED = "the index has been replaced since the answer: ask again to read its documents"


def open_front(service: operations.Service) -> Front:
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


async def perform(service: operations.Service, call: Call) -> Reply:
    """Perform a call. An error that the client can cause becomes a reply, too."""
    try:
        if call.operation == "answer":
            narrative = call.arguments["narrative"]
            return make_reply(service, narrative, await operations.answer(service, narrative))
        return await {"document": _read_document}[call.operation](service, call.arguments["id"])
    except UserError as error:
        return make_error(str(error), 404 if isinstance(error, NotFound) else 400)


async def _read_document(service: operations.Service, doc_id: str) -> Reply:
    """Read a document with the places of its segments, in characters of its text."""
    document = await operations.fetch_document(service, doc_id)
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
    operations.check_text("narrative", value["narrative"])
    return str(value["narrative"])


def _send_json(reply: Reply) -> Response:
    return Response(reply.body, reply.status, {"X-Content-Type-Options": "nosniff"}, "application/json")
