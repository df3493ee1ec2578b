"""The language model of the settings."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager, closing
from functools import partial
from importlib import import_module
from pathlib import Path

from keystone.generation.llm.model import OpenModel
from keystone.generation.llm.settings import ModelSettings
from keystone.generation.llm.usage import NO_SHARES, Purse

OpenBackend = Callable[..., AbstractAsyncContextManager[OpenModel]]
"""Opens a model: `open_backend(settings, folder, retry)`. Its files are in the folder, unless the settings name others.

If `retry` is true, the model is asked again for replies that no reader could use.
"""


@asynccontextmanager
async def open_model(
    settings: ModelSettings,
    folder: Path,
    costs: Path | None = None,
    shares: Mapping[str, float] = NO_SHARES,
    retry: bool = False,
) -> AsyncIterator[OpenModel]:
    """Open the model of the settings, within a running event loop. `UserError` for wrong settings, keys and files.

    If the settings have a budget, the file `costs` keeps the cost of each call. `shares` then holds the share of the
    budget for some purposes: see `Purse`. Each backend is the module of its name in this package, with a function
    `open_backend` of the type `OpenBackend`.
    """
    open_backend: OpenBackend = import_module(f"keystone.generation.llm.{settings.backend}").open_backend
    with ExitStack() as stack:
        if settings.budget is not None:
            purse = stack.enter_context(closing(Purse(settings.budget, settings.prices, costs, shares)))
            open_backend = partial(open_backend, purse=purse)
        async with open_backend(settings, folder, retry) as model:
            yield model
