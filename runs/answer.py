"""Batch answering: any number of narratives over an index, each answer written as soon as it is made."""

import asyncio
import fcntl
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Any

import orjson

from fusion.rrf import fuse_systems
from generation.model import Model, together
from generation.types import Fallback
from indexing.document_vectors import contents
from indexing.errors import NotWritten, UserError
from indexing.files import append, reason_of
from indexing.stores import open_store
from indexing.types import Document, Progress, silent
from retrieval.types import Query, Rankings, Topic
from runs.answering import answer_topic
from runs.config import RunConfig
from runs.config_file import read_config
from runs.grading import grade_topic
from runs.job import Job, open_job
from runs.models import Ask, asking
from runs.pipeline import narrative_rankings, part, rankings_of, summaries_of, understood
from runs.rag import metadata_of, rag_record, submitted

NAME = "keystone"
"""The run id of answers where nothing else is said."""
BEGINNING = (b'{"metadata"', b'{"run_id"')
"""How the first line of an answer file of ours begins."""
AT_ONCE = 64
"""Topics under way at one time."""


@contextmanager
def named(topics: Path) -> Iterator[Path]:
    """The file of topics; what comes through a pipe (`-`) is put into one first."""
    if topics != Path("-"):
        yield topics
        return
    with NamedTemporaryFile(suffix=".jsonl") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
        file.flush()
        yield Path(file.name)


def settings(config: Path | None, overrides: list[str], preset: str | None, topics: Path, index: Path) -> RunConfig:
    """The configuration of a run that answers these topics over this index."""
    fixed = [f"topics={orjson.dumps(str(topics)).decode()}", f"index={orjson.dumps(str(index)).decode()}"]
    return read_config(config, [f"run_id={NAME}"] * (config is None and preset is None) + overrides + fixed, preset)


def answer_file(config: RunConfig, out: Path | None, threads: int = 1, progress: Progress = silent) -> list[Fallback]:
    """Answer the configuration's topics to a file, from where an earlier try left it, or to standard output.

    Returns where the model gave nothing.
    """
    if config.track == "none" or config.answer.method == "none":
        raise UserError("found track: none or answer.method: none, expected answers to be asked for")
    job = open_job(config, threads, progress)
    done = set() if out is None else answered_already(out, job)
    missed: list[Fallback] = []
    left = replace(job, topics=[topic for topic in job.topics if topic.id not in done])
    with asking(config, config.out) as ask, _opened(out) as file:

        def write(line: bytes, fallbacks: list[Fallback]) -> None:
            try:
                append(file, line)
                file.flush()
            except OSError as error:
                raise NotWritten(out, reason_of(error)) if out else error from error
            missed.extend(fallbacks)

        answer_topics(left, ask, write)
    return missed


@contextmanager
def _opened(out: Path | None) -> Iterator[IO[bytes]]:
    """The file to append to, which no other process appends to; or standard output."""
    if out is None:
        yield sys.stdout.buffer
        return
    try:
        file = out.open("ab", buffering=0)
    except OSError as error:
        raise UserError(f"{out}: cannot be written: {error.strerror}") from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UserError(f"{out}: another process is writing to it") from None
        yield file


def answer_topics(job: Job, ask: Ask, write: Callable[[bytes, list[Fallback]], None]) -> None:
    """Answer the job's topics, in any order.

    `write` is given each one's line of the track's answer file when it is done, and where the model gave nothing.
    """

    async def work(model: Model | None) -> None:
        searches = Searches(job, model)
        with job.progress("Answering", len(job.topics)) as tick:

            async def one(topic: Topic) -> None:
                record, fallbacks = await answer_one(job, model, searches, topic)
                write(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE), fallbacks)
                tick(1)

            await together([partial(one, topic) for topic in job.topics], AT_ONCE)

    ask(work)


async def answer_one(
    job: Job, model: Model | None, searches: "Searches", topic: Topic
) -> tuple[dict[str, Any], list[Fallback]]:
    """One topic from narrative to its record of the track's answer file, and where the model gave nothing."""
    one = replace(job, topics=[topic])
    if job.index.pooled:  # a store of its own, whose rows stay as they are while other topics search
        one = replace(one, store=await asyncio.to_thread(open_store, job.index))
    async with searches.java if job.config.queries.method == "rules" else nullcontext():
        (found,) = await understood(one, model)
    fallbacks = list(found.fallbacks)
    hybrid = await searches.hybrid(one, found.queries)
    if model is not None and job.config.grading.method != "none":
        graded = await grade_topic(one, model, topic, found.queries, hybrid)
        fallbacks += graded.fallbacks
        selected = [graded.rows[place] for place in graded.selected]
    else:
        selected = narrative_rankings(one, found.queries, hybrid).of(0).tolist()
    answered = await answer_topic(one, model, topic, found.queries, hybrid, selected)
    record = rag_record(topic, submitted(answered.answer, job.track), job.track, job.author)
    return record, [*fallbacks, *answered.fallbacks]


class Searches:
    """Searches of topics that come one by one: all that wait are searched as one batch.

    In a candidate pool each topic is searched by itself, with its own store, so that its answer does not depend on its
    company.
    """

    def __init__(self, job: Job, model: Model | None) -> None:
        self.java = asyncio.Lock()
        """Held by who calls Java, which one thread at a time may do."""
        self._job, self._model = job, model
        self._loop = asyncio.get_running_loop()
        self._waiting: list[tuple[Job, Sequence[Query], asyncio.Future[Rankings]]] = []
        self._running: asyncio.Task[None] | None = None

    async def hybrid(self, job: Job, queries: Sequence[Query]) -> Rankings:
        """The hybrid ranking of each query of a topic's job."""
        found: asyncio.Future[Rankings] = self._loop.create_future()
        self._waiting.append((job, queries, found))
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._search())
        return await found

    async def _search(self) -> None:
        while self._waiting:
            async with self.java:
                count = 1 if self._job.index.pooled else len(self._waiting)
                batch, self._waiting = self._waiting[:count], self._waiting[count:]
                queries = [query for _, own, _ in batch for query in own]
                try:
                    hybrid = await asyncio.to_thread(self._rankings, batch[0][0], queries)
                except Exception as error:
                    for _, _, found in batch:
                        found.set_exception(error)
                    continue
            place = 0
            for _, own, found in batch:
                found.set_result(part(hybrid, range(place, place + len(own))))
                place += len(own)

    def _rankings(self, job: Job, queries: Sequence[Query]) -> Rankings:
        config = job.config
        found = rankings_of(job, queries, self._texts_of if config.retrieval.summarise else contents)
        return fuse_systems(list(found.values()), config.fusion.k, config.retrieval.depth)

    def _texts_of(self, documents: Sequence[Document]) -> list[str]:
        work = summaries_of(self._job, self._model, documents)
        summaries, _ = asyncio.run_coroutine_threadsafe(work, self._loop).result()
        return [summaries.get(document.id, document.contents) for document in documents]


def answered_already(path: Path, job: Job) -> set[str]:
    """The ids of the topics whose answers a file holds; a last line that was cut off is removed from it.

    `UserError` with file and line for a line that is no answer of this run and its track.
    """
    if path.suffix in (".gz", ".zst"):
        raise UserError(f"{path}: answers are written as they come: expected a name without {path.suffix}")
    if path.exists() and not path.is_file():  # a device may be read without end
        raise UserError(f"{path}: is no file, expected one, or a new name")
    try:
        content = path.read_bytes() if path.exists() else b""
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    end = content.rfind(b"\n") + 1
    done = {_answered(path, number, line, job) for number, line in enumerate(content[:end].splitlines(), start=1)}
    if content[end:]:
        if not content[end:].startswith(b"{") or (not done and not content.startswith(BEGINNING)):
            raise UserError(f"{path}:{len(done) + 1}: found no answer of a run of ours, expected a new or an own file")
        os.truncate(path, end)
    return done


def _answered(path: Path, number: int, line: bytes, job: Job) -> str:
    """The topic of a line of an answer file of this run."""
    track, author = job.track, job.author
    try:
        metadata = metadata_of(orjson.loads(line), track)
        told = {key.holds: metadata[key.name] for key in track.keys}
        if (told["run"], told.get("team", author.team_id)) != (author.run_id, author.team_id):
            raise ValueError
        return str(told["topic"])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UserError(
            f"{path}:{number}: found no answer of run {author.run_id!r} for {track.name}, expected a new or an own file"
        ) from None
