"""The interface of rerankers, their table, and those that show the language model a block of documents at a time.

To add a reranker, write its opener and add a line to the table. `listwise` asks about overlapping blocks that do not
depend on each other, all at once. `sliding` asks about one window after the other, from the last documents to the
first, as RankGPT does (Sun et al., EMNLP 2023).
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from pkgutil import resolve_name

import numpy as np

from keystone.fusion.blocks import list_windows, make_blocks, merge_blocks
from keystone.generation.context.texts import clip, delimit, neutralise, share_window
from keystone.generation.context.topic import TopicContext, choose_best_spans, join_spans
from keystone.generation.llm.ask import ask
from keystone.generation.llm.model import Model
from keystone.generation.prompts.grading import RANK, allow_number_tokens, make_rank_schema
from keystone.generation.replies import HELD_DRAFTS, note_drafts, read_list
from keystone.generation.rerank.settings import RerankSettings
from keystone.generation.types import Failure, Fallback, Reply, Request
from keystone.indexing.errors import Unusable
from keystone.indexing.io.json_values import read_whole_number


@dataclass(frozen=True, slots=True)
class Candidates:
    """A narrative and the documents to order, best first. The only query of `context` is the narrative."""

    topic_id: str
    narrative: str
    context: TopicContext


@dataclass(frozen=True, slots=True)
class Reranked:
    """The new order of a topic's candidates: their places, best first. `fallbacks` name the missing replies.

    `warning` says what makes the scores doubtful, if anything does. `device` is where vLLM's engine made the scores;
    empty for another backend.
    """

    order: list[int]
    fallbacks: tuple[Fallback, ...] = ()
    warning: str = ""
    device: str = ""


Rerank = Callable[[Candidates], Awaitable[Reranked]]
"""Orders the candidates of one topic. Many topics may be under way at the same time, in one event loop."""


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
    return replace(candidates, context=replace(context, documents=documents))


def list_passages(candidates: Candidates, settings: RerankSettings) -> list[list[str]]:
    """List the passages of each document: each has its title and one segment, the closest to the narrative first."""
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
    "listwise": "keystone.generation.rerank.open:open_listwise",
    "sliding": "keystone.generation.rerank.open:open_listwise",
}
"""The import paths of the openers, `MODULE:FUNCTION`, by `rerank.method`. Other modules are imported only when used."""


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


MOST_MISSING_SHARE = 0.5
"""If a reply leaves out more of its passages than this share, it does not count as a ranking."""


AskBlocks = Callable[[Sequence[Sequence[int]]], Awaitable[tuple[list[list[int]], tuple[Fallback, ...]]]]
"""Asks for the order of the documents at these places, block by block; returns the places of each block, best first."""


@asynccontextmanager
async def open_listwise(settings: RerankSettings, means: Means) -> AsyncIterator[Rerank]:
    """Open the reranker `listwise` or `sliding`."""

    async def rerank(candidates: Candidates) -> Reranked:
        ask_blocks = await _open_asking(settings, means, candidates)
        number = len(candidates.context.documents)
        if settings.method == "listwise":
            orders, fallbacks = await ask_blocks(make_blocks(number, settings.block))
            return Reranked(merge_blocks(number, orders), fallbacks)
        assert settings.method == "sliding"  # the table of openers
        ranking, missed = list(range(number)), list[Fallback]()
        for window in list_windows(number, settings.block, settings.stride):
            (order,), fallbacks = await ask_blocks([[ranking[place] for place in window]])
            ranking[window.start : window.stop] = order
            missed += fallbacks
        return Reranked(ranking, tuple(missed))

    yield rerank


async def _open_asking(settings: RerankSettings, means: Means, candidates: Candidates) -> AskBlocks:
    """Open the questions about blocks of one topic. If the model gives no order, a block keeps the order it has."""
    model, narrative = means.model, neutralise(candidates.narrative)
    assert model is not None  # the configuration has been checked
    tokens = min(settings.tokens, share_window(means.window, settings.block))
    texts = await asyncio.to_thread(show_closest, candidates, settings.segments, tokens)

    async def ask_blocks(blocks: Sequence[Sequence[int]]) -> tuple[list[list[int]], tuple[Fallback, ...]]:
        asked = [request_ranking(narrative, [texts[place] for place in block]) for block in blocks]
        requests = (
            (request, note_drafts(request, partial(read_ranking, passages=len(block))))
            for request, block in zip(asked, blocks, strict=True)
        )
        found = {number: ranking async for number, ranking in ask(model, requests)}
        orders = [
            list(block) if isinstance(one := found[number], Failure) else [block[place] for place in one[0]]
            for number, block in enumerate(blocks)
        ]
        fallbacks = tuple(
            Fallback(candidates.topic_id, "rerank", f"{what} block {number + 1} of {len(blocks)}: {reason}")
            for number in range(len(blocks))
            for what, reason in _name_faults(found[number])
        )
        return orders, fallbacks

    return ask_blocks


def _name_faults(found: tuple[list[int], bool] | Failure) -> list[tuple[str, str]]:
    if isinstance(found, Failure):
        return [("no order for", found.reason)]
    return [("the order of", HELD_DRAFTS)] if found[1] else []


def request_ranking(narrative: str, passages: Sequence[str]) -> Request:
    """Make a request for the order of passages, which are numbered from 1."""
    shown = "\n".join(delimit(number, text) for number, text in enumerate(passages, 1))
    prompt = RANK._replace(schema=make_rank_schema(len(passages)))
    tokens = allow_number_tokens(len(passages))
    return prompt.request(tokens, narrative=narrative, passages=shown, number=len(passages))


def read_ranking(reply: Reply, passages: int) -> list[int]:
    """Read a ranking of passages: their numbers from 0, best first, each once.

    A number that is repeated or unknown is skipped. Passages that the reply leaves out follow in the order in which the
    request showed them. `Unusable` if these are more than half.
    """
    numbers = map(read_whole_number, read_list(reply, "ranking"))
    named = dict.fromkeys(number - 1 for number in numbers if number is not None)
    found = [number for number in named if 0 <= number < passages]
    if passages - len(found) > MOST_MISSING_SHARE * passages:
        raise Unusable(f"it ranks {len(found)} of the {passages} passages")
    return [*found, *(number for number in range(passages) if number not in named)]
