"""Reading the parts of an index and of a model that the later stages of a run use, and noting which."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from keystone.generation.llm.model import Model, make_request_key
from keystone.generation.types import Failure, Reply, Request
from keystone.indexing.types import Document
from keystone.indexing.vectors.embed import load_embedder
from keystone.indexing.vectors.of_segments import segment_vectors
from keystone.indexing.vectors.of_sentences import sentence_vectors
from keystone.indexing.vectors.types import Vectors
from keystone.runs.pipeline.job import Job
from keystone.runs.pipeline.model_runner import RunWithModel

T = TypeVar("T")


@dataclass(slots=True)
class PartReader:
    """Reads documents and vectors of a run's index, and notes which."""

    job: Job
    documents: dict[str, Document] = field(default_factory=dict)
    _segments: dict[str, Vectors] = field(default_factory=dict)
    _learned: set[str] = field(default_factory=set)

    def read(self, ids: Sequence[str]) -> list[Document]:
        """Read documents by id."""
        store = self.job.store
        missing = [name for name in dict.fromkeys(ids) if name not in self.documents]
        self.documents |= zip(missing, store.get(store.rows(missing)), strict=True)
        return [self.documents[name] for name in ids]

    def find_vectors(self, texts: Sequence[str]) -> Iterator[Vectors]:
        """Find the vectors of texts among those that the index keeps, or embed them."""
        self._learn_segments()
        embedding, job = self.job.sources.embedding, self.job
        others = [text for text in texts if text not in self._segments]
        passages = [text for text in others if text.startswith(embedding.passage_prefix)]
        queries = [text for text in others if not text.startswith(embedding.passage_prefix)]
        plain = [text.removeprefix(embedding.passage_prefix) for text in passages]
        found = dict(zip(passages, sentence_vectors(job.index, plain, job.threads), strict=True))
        found |= zip(queries, load_embedder(embedding).embed(queries, job.threads), strict=True)
        return (self._segments[text] if text in self._segments else found[text] for text in texts)

    def _learn_segments(self) -> None:
        """Read the vectors of the segments of all documents that were read since the last call."""
        job, new = self.job, [name for name in list(self.documents) if name not in self._learned]
        self._learned.update(new)
        rows = job.store.rows(new)
        vectors = segment_vectors(job.index, job.store, rows.tolist(), job.threads)
        for name, row in zip(new, rows.tolist(), strict=True):
            document = self.documents[name]
            texts = [job.sources.embedding.passage_prefix + document.segment_text(one) for one in document.segments]
            self._segments |= zip(texts, vectors[row], strict=True)


@dataclass(slots=True)
class NotingModel:
    """A model of a run that notes each reply by the key of its request. Each request allows `thinking` tokens more."""

    name: str
    model: Model
    thinking: int
    replies: dict[str, Reply] = field(default_factory=dict)

    async def complete(self, requests: Iterable[Request]) -> AsyncIterator[tuple[int, Reply | Failure]]:
        """See `keystone.generation.llm.model.Model`."""
        asked: list[Request] = []

        def note() -> Iterator[Request]:
            for request in requests:
                asked.append(request)
                yield request

        async for number, outcome in self.model.complete(note()):
            if isinstance(outcome, Reply):
                sent = replace(asked[number], max_tokens=asked[number].max_tokens + self.thinking)
                self.replies[make_request_key(self.name, sent)] = outcome
            yield number, outcome


@dataclass(frozen=True, slots=True)
class NotingRunner:
    """Runs work with the model of `run_with_model`, and notes each reply in `replies`."""

    run_with_model: RunWithModel
    thinking: int
    replies: dict[str, Reply]

    def __call__(self, work: Callable[[Model | None], Awaitable[T]]) -> T:
        """See `RunWithModel`."""
        return self.run_with_model(
            lambda model: work(model and NotingModel(model.name, model, self.thinking, self.replies))
        )
