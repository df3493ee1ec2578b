"""The operations on one open index that every front serves: search, documents, segments, queries and answers.

A front turns its own requests into these calls and their values into its own replies. It computes nothing else.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from starlette.types import ASGIApp

from keystone.generation.queries.compose import make_narrative_query
from keystone.generation.rules.quotes import find_quote, is_doubtful
from keystone.generation.types import Answer, Sentence
from keystone.indexing.corpora.segments import cut_segments
from keystone.indexing.errors import NotFound, UserError
from keystone.indexing.index import Index
from keystone.indexing.types import Document, Span, Store, document_id, has_lone_surrogate
from keystone.indexing.vectors.passages import open_kept_passages
from keystone.retrieval.backends import open_dense, renew_store
from keystone.retrieval.system import OpenIndex
from keystone.retrieval.types import Bm25, Query, Topic
from keystone.runs.config.run_config import RunConfig
from keystone.runs.pipeline.job import Job, open_job
from keystone.runs.pipeline.ranking.rank import Hits
from keystone.runs.pipeline.stage import Step, Watch
from keystone.runs.report.passages import Passage, make_passage
from keystone.runs.serving.bm25 import Bm25Batches, open_bm25
from keystone.runs.serving.call_log import CallLog
from keystone.runs.serving.engine import Engine, Models, list_systems, make_engine, open_models

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
    """What a server made of this service, by name."""

    @property
    def name(self) -> str:
        """The name of the index in requests: that of its folder."""
        return self.index.folder.resolve().name

    @property
    def methods(self) -> list[str]:
        """The ways to search: by one system, named, or by all of them."""
        return [*self.engine.systems, *FUSING_METHODS]

    @property
    def answers(self) -> bool:
        """Whether the service answers narratives: whether the configuration asks for answers."""
        return self.config.has_answers


class Hit(NamedTuple):
    """A document of a ranking; `rank` counts from 1."""

    rank: int
    doc_id: str
    score: float


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


def make_service(job: Job, models: Models, log: CallLog) -> Service:
    """Make the service of a job whose index is held open. `UserError` if a part of the index cannot be opened."""
    if job.index.parts is not None:
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
) -> list[Hit]:
    """Rank the `k` best documents for a text.

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
        found: Hits = await service.bm25.search(text, k, bm25, code)
    elif method == "decomposed":
        found = await service.engine.run(service.engine.search_decomposed(Topic(TOPIC_ID, text)))
    else:
        query, engine = make_narrative_query(Topic(TOPIC_ID, text)), service.engine
        found = await engine.run((engine.hybrid if method == "hybrid" else engine.systems[method]).ask(query))
    return [Hit(rank, doc_id, score) for rank, (doc_id, score) in enumerate(found[:k], 1)]


async def fetch_documents(service: Service, doc_ids: list[str]) -> list[Document]:
    """Read documents with their segments, in order. `NotFound` for an id that the index lacks."""
    found = await asyncio.to_thread(_read_documents, service, doc_ids)
    return [replace(document, segments=cut_segments(document).segments) for document in found]


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
    spans = [find_quote(sentence.text, *cited) for cited in zip(documents, sentence.citations, strict=True)]
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
    return await service.engine.run(service.engine.decompose(Topic(TOPIC_ID, narrative)))


async def answer(service: Service, narrative: str, watch: Watch | None = None) -> Answer:
    """Answer a narrative; `watch` is called in the caller's event loop with each `Step` and its value.

    `UserError` if the configuration asks for no answers.
    """
    check_text("narrative", narrative)
    if not service.answers:
        raise UserError("found track: none or answer.method: none, expected a track and a method of answers")
    loop = asyncio.get_running_loop()

    def relay(step: Step, value: object) -> None:
        assert watch is not None
        loop.call_soon_threadsafe(watch, step, value)

    return await service.engine.run(service.engine.answer(Topic(TOPIC_ID, narrative), relay if watch else None))


async def doubt(service: Service, narrative: str, found: Answer) -> bool:
    """Tell whether no sentence of an answer by rules seems to answer its narrative."""
    if service.config.answer.method != "rules":
        return False
    texts = [one.text for one in found.sentences]
    return await asyncio.to_thread(is_doubtful, narrative, texts, service.index.compares_by)


def check_text(name: str, text: str) -> None:
    """Raise `UserError` if a text of a request has no words, is too long, or is not UTF-8."""
    if len(text) > MOST_CHARACTERS:
        raise UserError(f"{name}: found {len(text)} characters, expected at most {MOST_CHARACTERS}")
    if not text.strip():
        raise UserError(f"{name}: found none, expected words")
    if has_lone_surrogate(text):
        raise UserError(f"{name}: found half of a surrogate pair, expected UTF-8")


def _find_titles(service: Service, names: Sequence[str]) -> list[Titled]:
    store = renew_store(service.index, service.store)
    doc_ids = list(dict.fromkeys(doc_id for name in names for doc_id in (name, document_id(name))))
    rows = dict(zip(doc_ids, store.rows(doc_ids).tolist(), strict=True))
    found = [name if rows[name] >= 0 else document_id(name) for name in names]
    return [Titled(one.id, one.title) for one in _read_documents(service, found)]


def _read_documents(service: Service, doc_ids: list[str]) -> list[Document]:
    store = renew_store(service.index, service.store)
    rows = store.rows(doc_ids)
    for doc_id, row in zip(doc_ids, rows.tolist(), strict=True):
        if row < 0:
            raise NotFound(f"found no document {doc_id!r} in the index {service.name}")
    return store.get(rows)
