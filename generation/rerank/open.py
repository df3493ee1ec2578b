"""One table of rerankers: to add one, write its opener and add a line here."""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pkgutil import resolve_name

from keystone.generation.rerank.candidates import Means, Rerank
from keystone.generation.rerank.settings import RerankSettings

OpenReranker = Callable[[RerankSettings, Means], AbstractAsyncContextManager[Rerank]]
"""Opens a reranker within a running event loop."""

METHODS: Mapping[str, str] = {
    "endpoint": "keystone.generation.rerank.endpoint:open_endpoint",
    "listwise": "keystone.generation.rerank.listwise:open_listwise",
    "sliding": "keystone.generation.rerank.listwise:open_sliding",
}
"""The import paths of the openers, `MODULE:FUNCTION`, by `rerank.method`. Keystone imports the one that a run uses."""


def open_reranker(settings: RerankSettings, means: Means) -> AbstractAsyncContextManager[Rerank]:
    """Open the reranker of the settings, whose method is not None. `UserError` for a wrong URL, key or file."""
    assert settings.method is not None
    opener: OpenReranker = resolve_name(METHODS[settings.method])
    return opener(settings, means)
