"""One table of rerankers: to add one, write its opener and add a line here."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pkgutil import resolve_name

from keystone.generation.rerank.candidates import Candidates, Means, Rerank, Reranked, select_candidates
from keystone.generation.rerank.settings import RerankSettings
from keystone.generation.types import Fallback

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
