"""The documents of a topic that a reranker orders, the texts that stand for them, and the interface of rerankers."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

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
