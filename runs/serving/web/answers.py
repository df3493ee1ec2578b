"""The answer to a narrative: as one JSON object, or as a stream of events that ends with the files to download."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import asdict, replace
from typing import Any

import orjson
from sse_starlette import ServerSentEvent

from keystone.generation.rules.quotes import DOUBT
from keystone.generation.types import Answer
from keystone.indexing.errors import UserError
from keystone.retrieval.ties import decrease_strictly
from keystone.retrieval.types import Topic
from keystone.runs.pipeline.ranking.rank import Hits
from keystone.runs.pipeline.stage import Step
from keystone.runs.serving.call_log import Call, Reply, log_call
from keystone.runs.serving.server.json_replies import make_error, start
from keystone.runs.serving.service import TOPIC_ID, Service, Titled, answer, doubt, find_quotes, find_titles
from keystone.runs.serving.web.steps import DESCRIPTIONS, add_quotes, list_shown_ids
from keystone.runs.track_rules import set_topic_limits
from keystone.runs.tracks.answer_files import cite_by_track_ids, make_answer_record
from keystone.runs.trec.render import render_rows
from keystone.runs.trec.types import make_run


def make_reply(service: Service, narrative: str, found: Answer) -> Reply:
    """Make the JSON object of an answer: a line of the track's answer file, and the model's missing replies."""
    fallbacks = [asdict(one) for one in found.fallbacks]
    body = orjson.dumps({"answer": _make_record(service, narrative, found), "fallbacks": fallbacks})
    cited = dict.fromkeys(citation for sentence in found.sentences for citation in sentence.citations)
    return Reply(body, cited=list(cited))


async def stream_events(service: Service, call: Call) -> AsyncIterator[ServerSentEvent]:
    """Answer the narrative of a call, and yield an event for each step as it is made; then log the call.

    Each event has the seconds since the start. If the caller closes the stream, the work is cancelled.
    """
    narrative, began = call.arguments["narrative"], time.monotonic()
    arrived: asyncio.Queue[tuple[str, Any, float] | None] = asyncio.Queue()
    run: Hits = []
    titles: dict[str, Titled] = {}

    def watch(step: Step, value: Any) -> None:
        arrived.put_nowait((step, value, time.monotonic() - began))

    with start(answer(service, narrative, watch)) as work:
        work.add_done_callback(lambda _: arrived.put_nowait(None))
        try:
            while one := await arrived.get():
                step, value, seconds = one
                if step == "run":
                    run = value
                    continue
                if missing := [name for name in list_shown_ids(step, value) if name not in titles]:
                    titles.update(zip(missing, await find_titles(service, missing), strict=True))
                told = DESCRIPTIONS[step](value, titles)
                if step == "sentence":
                    add_quotes(told, await find_quotes(service, value))
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
            "doubt": DOUBT if await doubt(service, narrative, found) else None,
        }
        yield _make_event("done", time.monotonic() - began, done)


def make_files(service: Service, narrative: str, found: Answer, hits: Hits) -> list[dict[str, str]]:
    """Make the run file, the answer file and the topics file of one narrative: names and texts."""
    track = service.engine.job.track
    run = make_run(service.config.run_id, {TOPIC_ID: hits})
    rows = render_rows(replace(run, scores=decrease_strictly(run.scores, run.offsets)))
    record = _make_record(service, narrative, found)
    topic = {"id": TOPIC_ID, "narrative": narrative}
    return [
        {"name": track.retrieval_file, "text": bytes(rows).decode()},
        {"name": track.answer_file, "text": _encode_line(record)},
        {"name": "topics.jsonl", "text": _encode_line(topic)},
    ]


def _make_event(name: str, seconds: float, value: dict[str, Any]) -> ServerSentEvent:
    return ServerSentEvent(orjson.dumps({"seconds": round(seconds, 3), **value}).decode(), event=name, sep="\n")


def _make_record(service: Service, narrative: str, found: Answer) -> dict[str, Any]:
    job, topic = service.engine.job, Topic(TOPIC_ID, narrative)
    track = set_topic_limits(job.track, [topic])
    return make_answer_record(topic, cite_by_track_ids(found, track), track, job.author)


def _encode_line(value: dict[str, Any]) -> str:
    return orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE).decode()
