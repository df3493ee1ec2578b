"""The language model of the settings."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib import import_module
from pathlib import Path

from generation.llm.model import OpenModel
from generation.llm.settings import ModelSettings

OpenBackend = Callable[[ModelSettings, Path], AbstractAsyncContextManager[OpenModel]]
"""Opens a model. Its files are in the folder, unless the settings name others."""


@asynccontextmanager
async def open_model(settings: ModelSettings, folder: Path) -> AsyncIterator[OpenModel]:
    """Open the model of the settings, within a running event loop. `UserError` for wrong settings, keys and files.

    Each backend is the module of its name in this package, with a function `open_backend` of the type `OpenBackend`.
    """
    open_backend: OpenBackend = import_module(f"generation.llm.{settings.backend}").open_backend
    async with open_backend(settings, folder) as model:
        yield model
