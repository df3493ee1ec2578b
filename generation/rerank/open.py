"""The interface of rerankers, and one table of them: to add one, write its opener and add a line here."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from pkgutil import resolve_name

import numpy as np

from keystone.generation.context.passages import choose_best_spans, join_spans
from keystone.generation.context.tokens import clip
from keystone.generation.context.topic import TopicContext
from keystone.generation.llm.model import Model
from keystone.generation.rerank.settings import RerankSettings
from keystone.generation.types import Fallback


@dataclass(frozen=True, slots=True)
class Candidates:
    """A narrative and the documents to order, best first. The only query of `context` is the narrative."""

    topic_id: str
    narrative: str
    context: TopicContext


@dataclass(frozen=True, slots=True)
class Reranked:
    """The new order of a topic's candidates: their places, best first. `fallbacks` name the replies it lacks.

    `warning` says what makes the scores doubtful; empty for nothing. `device` is where vLLM's engine made the scores;
    empty for another backend.
    """

    order: list[int]
    fallbacks: tuple[Fallback, ...] = ()
    warning: str = ""
    device: str = ""


Rerank = Callable[[Candidates], Awaitable[Reranked]]
"""Orders the candidates of one topic. Many topics may be under way at one time, in one event loop."""


@dataclass(frozen=True, slots=True)
class Means:
    """The means of a reranker: the folder of its files, the language model with its window in tokens, and threads."""

    folder: Path
    model: Model | None = None
    window: int = 0
    threads: int = 1


def select_candidates(candidates: Candidates, places: Sequence[int]) -> Candidates:
    """Keep the documents at these places, in this order."""
    context = candidates.context
    if list(places) == list(range(len(context.documents))):
        return candidates
    rows = list(context.documents)
    documents = {rows[place]: context.documents[rows[place]] for place in places}
    openings = None if context.openings is None else context.openings[list(places)]
    return replace(candidates, context=replace(context, documents=documents, openings=openings))


def list_passages(candidates: Candidates, settings: RerankSettings) -> list[list[str]]:
    """List the passages of each document: its title with one segment each, the closest to the narrative first."""
    context = candidates.context
    found = []
    for row, document in context.documents.items():
        cosines = (context.query_vectors @ context.segments[row].T).max(axis=0)
        closest = np.argsort(-cosines, kind="stable")[: settings.segments].tolist()
        spans = [document.segments[number].span for number in closest]
        found.append([clip(join_spans(document, [(span.start, span.end)]), settings.tokens) for span in spans])
    return found


def show_closest(candidates: Candidates, segments: int, tokens: int) -> list[str]:
    """Show each document: its title and the segments closest to the narrative, in the order of the text."""
    context = candidates.context
    texts = []
    for row, document in context.documents.items():
        spans = choose_best_spans(document, context.query_vectors @ context.segments[row].T, segments, tokens)
        texts.append(clip(join_spans(document, spans), tokens))
    return texts


OpenReranker = Callable[[RerankSettings, Means], AbstractAsyncContextManager[Rerank]]
"""Opens a reranker within a running event loop."""

METHODS: Mapping[str, str] = {
    "endpoint": "keystone.generation.rerank.endpoint:open_endpoint",
    "model": "keystone.generation.rerank.endpoint:open_model",
    "listwise": "keystone.generation.rerank.listwise:open_listwise",
    "sliding": "keystone.generation.rerank.listwise:open_sliding",
}
"""The import paths of the openers, `MODULE:FUNCTION`, by `rerank.method`. Keystone imports the one that a run uses."""


@asynccontextmanager
async def open_reranker(settings: RerankSettings, means: Means) -> AsyncIterator[Rerank]:
    """Open the rerankers of the settings, whose method is not None. `UserError` for a wrong URL, key or file.

    The first one ranks all candidates, and each further one the first `depth` of what the one before it has ranked.
    """
    async with AsyncExitStack() as stack:
        steps = [(one, await stack.enter_async_context(_open(one, means))) for one in settings.list_steps()]

        async def rerank(candidates: Candidates) -> Reranked:
            order, fallbacks = list(range(len(candidates.context.documents))), list[Fallback]()
            warning = device = ""
            for number, (one, rerank_once) in enumerate(steps):
                first = order[: one.depth] if number else order
                found = await rerank_once(select_candidates(candidates, first))
                order[: len(first)] = [first[place] for place in found.order]
                fallbacks += found.fallbacks
                warning, device = warning or found.warning, device or found.device
            return Reranked(order, tuple(fallbacks), warning, device)

        yield rerank


def _open(settings: RerankSettings, means: Means) -> AbstractAsyncContextManager[Rerank]:
    opener: OpenReranker = resolve_name(METHODS[str(settings.method)])
    return opener(settings, means)
