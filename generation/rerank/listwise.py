"""Documents in the order of the language model, which is shown a block of them at a time.

`listwise` asks about overlapping blocks that do not depend on each other, all at once. `sliding` asks about one window
after the other, from the last documents to the first, as RankGPT does (Sun et al., EMNLP 2023).
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial

from keystone.fusion.blocks import list_windows, make_blocks, merge_blocks
from keystone.generation.ask import ask
from keystone.generation.context.delimit import delimit, neutralise
from keystone.generation.context.passages import share_window
from keystone.generation.prompts.grading import RANK, allow_number_tokens, make_rank_schema
from keystone.generation.rerank.open import Candidates, Means, Rerank, Reranked, show_closest
from keystone.generation.rerank.settings import RerankSettings
from keystone.generation.structured import HELD_DRAFTS, note_drafts, read_list
from keystone.generation.types import Failure, Fallback, Reply, Request
from keystone.indexing.errors import Unusable
from keystone.indexing.io.json_values import read_whole_number

MOST_MISSING_SHARE = 0.5
"""If a reply leaves out more of its passages than this share, it is no ranking."""


AskBlocks = Callable[[Sequence[Sequence[int]]], Awaitable[tuple[list[list[int]], tuple[Fallback, ...]]]]
"""Asks for the order of the documents at these places, block by block; returns the places of each block, best first."""


@asynccontextmanager
async def open_listwise(settings: RerankSettings, means: Means) -> AsyncIterator[Rerank]:
    """Open the reranker `listwise`."""

    async def rerank(candidates: Candidates) -> Reranked:
        ask_blocks = await _open_asking(settings, means, candidates)
        number = len(candidates.context.documents)
        orders, fallbacks = await ask_blocks(make_blocks(number, settings.block))
        return Reranked(merge_blocks(number, orders), fallbacks)

    yield rerank


@asynccontextmanager
async def open_sliding(settings: RerankSettings, means: Means) -> AsyncIterator[Rerank]:
    """Open the reranker `sliding`."""

    async def rerank(candidates: Candidates) -> Reranked:
        ask_blocks = await _open_asking(settings, means, candidates)
        number = len(candidates.context.documents)
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
