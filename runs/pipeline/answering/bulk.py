"""Answers to any number of narratives over an index. Each is written as soon as it is made."""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Semaphore, Thread
from typing import Any

from keystone.generation.ask import run_together
from keystone.generation.llm.model import Model
from keystone.generation.types import Answer, Fallback
from keystone.indexing.errors import UserError, Waits
from keystone.indexing.types import Progress, silent
from keystone.retrieval.types import Topic
from keystone.runs.config.run_config import RunConfig
from keystone.runs.pipeline.answering.answer_file import AnswerFile, open_answer_file
from keystone.runs.pipeline.answering.one_topic import answer_topic
from keystone.runs.pipeline.job import TOPICS_AT_ONCE, Job, open_job
from keystone.runs.pipeline.model_runner import RunWithModel, open_model_runner
from keystone.runs.pipeline.ranking.rerank import open_job_reranker
from keystone.runs.pipeline.searches import Searches
from keystone.runs.track_rules import set_topic_limits
from keystone.runs.tracks.answer_files import cite_by_track_ids, make_answer_record
from keystone.runs.trec.topics import read_topics, stream_topics


def answer_to_file(
    config: RunConfig, out: Path | None, threads: int = 1, progress: Progress = silent
) -> list[Fallback]:
    """Answer the configuration's topics to a file or to standard output. Answers that the file has already are kept.

    Topics of a pipe are answered as they come; topics of a file are all read first. Returns the fallbacks. `UserError`
    if the configuration asks for no answers.
    """
    if not config.has_answers:
        raise UserError("found track: none or answer.method: none, expected a track and a method of answers")
    piped = config.topics.exists() and not (config.topics.is_file() or config.topics.is_dir())
    topics = None if piped else read_topics(config.topics)
    job = open_job(config, threads, progress, topics or [])
    missed: list[Fallback] = []
    with open_answer_file(out, job) as file, open_model_runner(config, config.out) as run_with_model:

        def write(topic: Topic, record: dict[str, Any], fallbacks: list[Fallback]) -> None:
            file.append(topic, record)
            missed.extend(fallbacks)

        if topics is None:
            answer_topics(job, _skip_answered(stream_topics(config.topics), file), None, run_with_model, write)
        else:
            left = list(_skip_answered(topics, file))
            answer_topics(job, left, len(left), run_with_model, write)
    return missed


def _skip_answered(topics: Iterable[Topic], file: AnswerFile) -> Iterator[Topic]:
    return (topic for topic in topics if not file.has_answer(topic))


def answer_topics(
    job: Job,
    topics: Iterable[Topic],
    number: int | None,
    run_with_model: RunWithModel,
    write: Callable[[Topic, dict[str, Any], list[Fallback]], None],
) -> None:
    """Answer topics as they come, in any order. `number` is their number, or None if it is unknown.

    `write` receives each topic, its record for the track's answer file, and its fallbacks. If reading `topics` fails,
    the topics before the error are answered first.
    """
    at_once = TOPICS_AT_ONCE if job.config.model else job.threads

    async def work(model: Model | None) -> None:
        arrived = ArrivingTopics(topics, at_once)
        with job.progress("Answering", number) as tick:
            async with open_job_reranker(job, model) as rerank:
                searches = Searches(job, rerank)

                async def answer_some() -> None:
                    waits = None
                    while topic := await arrived.take():
                        try:
                            answer = await answer_topic(job, model, searches, topic)
                        except Waits as error:  # the requests of the other topics belong in the same file
                            waits = error
                        else:
                            write(topic, _make_record(job, topic, answer), list(answer.fallbacks))
                            tick(1)
                    if waits:
                        raise waits

                await run_together([answer_some] * at_once, at_once)
                arrived.raise_error()

    run_with_model(work)


def _make_record(job: Job, topic: Topic, answer: Answer) -> dict[str, Any]:
    track = set_topic_limits(job.track, [topic])
    return make_answer_record(topic, cite_by_track_ids(answer, track), track, job.author)


class ArrivingTopics:
    """Topics that a thread reads, at most `ahead` of them in advance. The process can end while the thread reads."""

    def __init__(self, topics: Iterable[Topic], ahead: int) -> None:
        self._topics: asyncio.Queue[Topic | None] = asyncio.Queue()
        self._room = Semaphore(ahead)
        self._error: Exception | None = None
        loop = asyncio.get_running_loop()

        def read() -> None:
            with suppress(RuntimeError):  # the loop has ended, and no caller waits for topics
                try:
                    for topic in topics:
                        self._room.acquire()
                        loop.call_soon_threadsafe(self._topics.put_nowait, topic)
                except Exception as error:
                    self._error = error
                loop.call_soon_threadsafe(self._topics.put_nowait, None)

        Thread(target=read, daemon=True).start()

    async def take(self) -> Topic | None:
        """Take the next topic; None if there is none left."""
        topic = await self._topics.get()
        self._room.release()
        if topic is None:
            self._topics.put_nowait(None)
        return topic

    def raise_error(self) -> None:
        """Raise the error that ended the reading, if there was one."""
        if self._error:
            raise self._error
