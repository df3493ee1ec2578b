"""The operations on one open index that every front serves: search, documents, segments, queries and answers.

A front turns its own requests into these calls and their values into its own replies. It computes nothing else.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

from starlette.types import ASGIApp

from keystone.generation.llm.model import Model
from keystone.generation.queries.compose import make_narrative_query
from keystone.generation.rerank.open import Rerank
from keystone.generation.rules.support import is_doubtful
from keystone.generation.rules.words import find_quote
from keystone.generation.types import Answer, Sentence
from keystone.indexing.corpora.segments import cut_segments
from keystone.indexing.errors import NotFound, UserError
from keystone.indexing.index import Index
from keystone.indexing.types import Document, Span, Store, document_id, find_document_ids, has_lone_surrogate
from keystone.indexing.vectors.passages import open_kept_passages
from keystone.retrieval.backends import open_dense, renew_store
from keystone.retrieval.system import OpenIndex
from keystone.retrieval.types import Bm25, Query, Topic
from keystone.runs.config.run_config import RunConfig
from keystone.runs.pipeline.answering import answer_topic, work_on_topic
from keystone.runs.pipeline.job import Job, open_job
from keystone.runs.pipeline.model_runner import RunWithModel, open_model_runner
from keystone.runs.pipeline.ranking.fuse_narratives import fuse_each_query
from keystone.runs.pipeline.ranking.rank import Hits, list_hits
from keystone.runs.pipeline.ranking.search import search_by_one, search_systems
from keystone.runs.pipeline.searches import Searches, open_configured_reranker, share_means
from keystone.runs.pipeline.stage import StageKind, Step, Watch
from keystone.runs.pipeline.stages import queries
from keystone.runs.pipeline.stages.narrative import NARRATIVE_FILE
from keystone.runs.pipeline.stages.queries import get_queries
from keystone.runs.pipeline.table import NARRATIVE_STAGES, perform
from keystone.runs.pipeline.values import MemoryValues, Values
from keystone.runs.report.passages import Passage, make_passage
from keystone.runs.serving.bm25 import Batches, Bm25Batches, open_bm25
from keystone.runs.serving.call_log import CallLog

T = TypeVar("T")
MOST_QUERIES = 64
"""The most queries of a batch of the search by a system or by all."""


@dataclass(frozen=True, slots=True)
class Models:
    """The model and the reranker of a configuration, both open, in the event loop `loop`. They outlast an index."""

    model: Model | None
    rerank: Rerank | None
    loop: asyncio.AbstractEventLoop


@dataclass(frozen=True, slots=True)
class Engine:
    """A job with its model, both open, in the event loop `loop`. All methods run there."""

    job: Job
    model: Model | None
    searches: Searches
    systems: dict[str, Batches[Query, Hits]]
    """The search by each system alone, by its name."""
    hybrid: Batches[Query, Hits]
    loop: asyncio.AbstractEventLoop

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run work for a caller in another event loop. If the caller is cancelled, so is the work."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.loop))

    async def rank(self, query: Query, method: str, depth: int) -> Hits:
        """Rank documents for a query by one system, or by all for `hybrid`. `_bound` limits the depth."""
        batches, depth = self.systems.get(method, self.hybrid), self._bound(depth)
        if depth <= self.job.config.retrieval.depth:
            return await batches.ask(query)
        job = replace(self.job, config=self.job.config.deepen(depth))  # the queries of a batch have one depth
        alone = Batches(_search_by(method if method in self.systems else None, job), 1, self.searches.java)
        try:
            return await alone.ask(query)
        finally:
            batches.count_on(alone)

    async def perform(
        self, topic: Topic, stages: Sequence[StageKind], take: Callable[[Values], T], depth: int = 1
    ) -> T:
        """Perform stages for a narrative, with rankings of at least `depth`, which `_bound` limits.

        Returns what `take` takes from their values.
        """

        def work(job: Job, run_with_model: RunWithModel) -> T:
            values, means = MemoryValues(job), share_means(self.searches, run_with_model)
            perform(values, run_with_model, lambda kind: kind in stages, means)
            return take(values)

        job = replace(self.job, config=self.job.config.deepen(self._bound(depth)))
        return await work_on_topic(job, self.model, topic, work)

    def _bound(self, depth: int) -> int:
        """Bound the depth of a request by `retrieval.depth` if systems rank candidates, which it may have to embed."""
        return min(depth, self.job.config.retrieval.depth) if self.job.ranks_candidates else depth


@contextmanager
def open_models(config: RunConfig, threads: int) -> Iterator[Models]:
    """Open the model and the reranker of a configuration, and their event loop. `UserError` if one cannot be opened."""
    opened: Future[tuple[Models, asyncio.Event]] = Future()

    async def wait_for_end(model: Model | None) -> None:
        async with open_configured_reranker(config, model, threads) as rerank:
            ended = asyncio.Event()
            opened.set_result((Models(model, rerank, asyncio.get_running_loop()), ended))
            await ended.wait()

    def work() -> None:
        with open_model_runner(config, config.out) as run_with_model:
            run_with_model(wait_for_end)

    with ThreadPoolExecutor(1, "engine") as thread:
        done = thread.submit(work)
        waited: list[Future[Any]] = [opened, done]
        wait(waited, return_when=FIRST_COMPLETED)
        if done.done():
            done.result()
        models, ended = opened.result()
        try:
            yield models
        finally:
            models.loop.call_soon_threadsafe(ended.set)
            done.result()


def make_engine(job: Job, models: Models) -> Engine:
    """Make the engine of a job in the event loop of its models."""

    async def make() -> Engine:
        searches = Searches(job, models.rerank)
        most = 1 if job.ranks_candidates else MOST_QUERIES  # the queries of a batch share their candidates
        by_name = {name: Batches(_search_by(name, job), most, searches.java) for name in list_systems(job.config)}
        hybrid = Batches(_search_by(None, job), most, searches.java)
        return Engine(job, models.model, searches, by_name, hybrid, models.loop)

    return asyncio.run_coroutine_threadsafe(make(), models.loop).result()


def list_systems(config: RunConfig) -> list[str]:
    """List the systems that a request can name: `bm25`, `dense`, and those of the configuration that read queries."""
    own = [name for name, system in config.make_systems().items() if system.reads == "query"]
    return list(dict.fromkeys(["bm25", "dense", *own]))


def _search_by(name: str | None, job: Job) -> Callable[[Sequence[Query]], list[Hits]]:
    """Return the search by one system, or by all if `name` is None, whose rankings are fused."""
    retrieval = job.config.retrieval.model_copy(update={"runs": []})
    fusion = job.config.fusion.model_copy(update={"systems": job.config.first_stage})
    config = job.config.model_copy(update={"retrieval": retrieval, "fusion": fusion})

    def search(queries: Sequence[Query]) -> list[Hits]:
        own = replace(job, config=config, store=renew_store(job.index, job.store), given=())
        rankings = (
            fuse_each_query(config, search_systems(own, queries)) if name is None else search_by_one(own, queries, name)
        )
        return [list_hits(own.store, rankings, place) for place in range(len(queries))]

    return search


FUSING_METHODS = ("hybrid", "decomposed")
"""The ways to search by all systems, whose rankings are fused: for the text, or for each query of the decomposed text.

The other ways are the names of systems.
"""
TOPIC_ID = "1"
"""The id of the only topic of a request."""
MOST_HITS = 10_000
"""The most hits that a search returns."""
MOST_CHARACTERS = 2**16
"""The most characters of a query or a narrative."""


@dataclass(frozen=True, slots=True, eq=False)
class Service:
    """An open index with the settings of its searches and answers. Its files are open as long as it is used."""

    index: Index
    config: RunConfig
    store: Store
    bm25: Bm25Batches
    engine: Engine
    log: CallLog
    apps: dict[str, ASGIApp] = field(default_factory=dict)
    """The applications that a server made from this service, by name."""

    @property
    def name(self) -> str:
        """The name of the index in requests: that of its folder."""
        return self.index.folder.resolve().name

    @property
    def methods(self) -> list[str]:
        """The ways to search: by one system, named, or by all of them."""
        return [*self.engine.systems, *FUSING_METHODS]


class Titled(NamedTuple):
    """The id of a document, and its title."""

    id: str
    title: str


@contextmanager
def open_service(config: RunConfig, log: CallLog, threads: int = 1) -> Iterator[Service]:
    """Open the index of a configuration for serving. `UserError` if the index or the model cannot be opened.

    An index without embeddings is served as well. Only dense search is refused.
    """
    job = open_job(config, threads, topics=[], held=True)
    with open_models(job.config, job.threads) as models:
        yield make_service(job, models, log)


def make_service(job: Job, models: Models, log: CallLog, only_bm25: bool = False) -> Service:
    """Make the service of a job whose index is held open. `UserError` if a part of the index cannot be opened.

    With `only_bm25`, the parts that only other searches need are not opened.
    """
    if job.index.parts is not None and not only_bm25:
        _open_parts(job)
    bm25 = open_bm25(job.index, job.config.make_candidate_system().parameters, job.threads)
    log = replace(log, index_key=job.index.key)
    return Service(job.index, job.config, job.store, bm25, make_engine(job, models), log)


def _open_parts(job: Job) -> None:
    """Open all parts of the index that a request can use, while the folder holds them."""
    opened = OpenIndex(job.index, job.store)
    for name in dict.fromkeys([*list_systems(job.config), *job.config.make_systems()]):
        system = job.config.find_system(name)
        assert system is not None  # all of them are known
        system.open_parts(opened)
    open_kept_passages(job.index)
    if job.config.grading.neighbours:
        open_dense(job.index, job.config.retrieval.faiss)


async def search(
    service: Service,
    text: str,
    k: int = 10,
    method: str = "bm25",
    bm25: Bm25 | None = None,
    language: str | None = None,
) -> Hits:
    """Rank the `k` best documents for a text: their ids with their scores.

    For the method `bm25`, `bm25` replaces the configuration's parameters, and `language` names the documents that are
    searched, if they have languages of their own. `UserError` for a text without words, an unknown method, a `k`
    outside 1 to 10,000, a language that the index lacks, and from the engine.
    """
    check_text("query", text)
    if not 1 <= k <= MOST_HITS:
        raise UserError(f"k: found {k}, expected 1 to {MOST_HITS}")
    if method not in service.methods:
        raise UserError(f"method: found {method!r}, expected one of {', '.join(service.methods)}")
    if method == "bm25":
        code = service.index.with_language(language).language if language else None
        return await service.bm25.search(text, k, bm25, code)
    topic, engine = Topic(TOPIC_ID, text), service.engine
    if method == "decomposed":
        work = engine.perform(
            topic, NARRATIVE_STAGES, lambda values: list_hits(values.job.store, values.get(NARRATIVE_FILE), 0), k
        )
        found: Hits = await engine.run(work)
    else:
        found = await engine.run(engine.rank(make_narrative_query(topic), method, k))
    return found[:k]


async def fetch_documents(service: Service, doc_ids: list[str]) -> list[Document]:
    """Read documents with their segments, in order. `NotFound` for an id that the index lacks."""
    return await asyncio.to_thread(lambda: list(map(cut_segments, _read_documents(service, doc_ids))))


async def find_titles(service: Service, names: Sequence[str]) -> list[Titled]:
    """Find the document of each name, which is the id of a document or of a segment. `NotFound` if there is none."""
    return await asyncio.to_thread(_find_titles, service, names)


async def fetch_document(service: Service, doc_id: str) -> Document:
    """Read a document with its segments. `NotFound` if the index lacks it."""
    (found,) = await fetch_documents(service, [doc_id])
    return found


async def find_quotes(service: Service, sentence: Sentence) -> list[tuple[Span, str] | None]:
    """Find for each citation of a sentence the stretch of its document that supports it best, with its text.

    None stands for a citation that shares no word with the sentence.
    """
    documents = await fetch_documents(service, [one.id for one in await find_titles(service, sentence.citations)])
    spans = await asyncio.to_thread(_find_spans, sentence, documents)
    return [
        (span, document.text[span.start : span.end]) if span else None
        for document, span in zip(documents, spans, strict=True)
    ]


async def fetch_segment(service: Service, segment_id: str) -> Passage:
    """Read a segment with the title of its document. `NotFound` if the index lacks it."""
    for doc_id in dict.fromkeys((document_id(segment_id), segment_id)):  # a document can be a segment itself
        with suppress(NotFound):
            for own in await list_segments(service, doc_id):
                if own.id == segment_id:
                    return own
    raise NotFound(f"found no segment {segment_id!r} in the index {service.name}")


async def list_segments(service: Service, doc_id: str) -> list[Passage]:
    """List the segments of a document in order. `NotFound` if the index lacks it."""
    document = await fetch_document(service, doc_id)
    return [make_passage(document, segment) for segment in document.segments]


async def decompose(service: Service, narrative: str) -> tuple[Query, ...]:
    """Make the queries of a narrative, by the method of the configuration."""
    check_text("narrative", narrative)
    work = service.engine.perform(Topic(TOPIC_ID, narrative), [queries.STAGE], get_queries)
    return tuple(await service.engine.run(work))


async def answer(service: Service, narrative: str, watch: Watch | None = None) -> Answer:
    """Answer a narrative; `watch` is called in the caller's event loop with each `Step` and its value.

    `UserError` if the configuration asks for no answers.
    """
    check_text("narrative", narrative)
    if not service.config.has_answers:
        raise UserError("found track: none or answer.method: none, expected a track and a method of answers")
    loop, engine, topic = asyncio.get_running_loop(), service.engine, Topic(TOPIC_ID, narrative)

    def relay(step: Step, value: object) -> None:
        assert watch is not None
        loop.call_soon_threadsafe(watch, step, value)

    work = answer_topic(engine.job, engine.model, engine.searches, topic, relay if watch else None)
    return await engine.run(work)


async def doubt(service: Service, narrative: str, found: Answer) -> bool:
    """Tell whether no sentence of an answer by rules seems to answer its narrative."""
    if service.config.answer.method != "rules":
        return False
    return await asyncio.to_thread(is_doubtful, narrative, found.list_texts(), service.index.compares_by)


def check_text(name: str, text: str) -> None:
    """Raise `UserError` if a text of a request has no words, is too long, or is not UTF-8."""
    if len(text) > MOST_CHARACTERS:
        raise UserError(f"{name}: found {len(text)} characters, expected at most {MOST_CHARACTERS}")
    if not text.strip():
        raise UserError(f"{name}: found none, expected words")
    if has_lone_surrogate(text):
        raise UserError(f"{name}: found half of a surrogate pair, expected UTF-8")


def _find_titles(service: Service, names: Sequence[str]) -> list[Titled]:
    found = find_document_ids(names, renew_store(service.index, service.store))
    return [Titled(one.id, one.title) for one in _read_documents(service, found)]


def _find_spans(sentence: Sentence, documents: Sequence[Document]) -> list[Span | None]:
    return [find_quote(sentence.text, *cited) for cited in zip(documents, sentence.citations, strict=True)]


def _read_documents(service: Service, doc_ids: list[str]) -> list[Document]:
    store = renew_store(service.index, service.store)
    rows = store.rows(doc_ids)
    for doc_id, row in zip(doc_ids, rows.tolist(), strict=True):
        if row < 0:
            raise NotFound(f"found no document {doc_id!r} in the index {service.name}")
    return store.get(rows)
