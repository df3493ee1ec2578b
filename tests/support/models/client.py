"""The client of models in tests, with short pauses and all outcomes at once."""

import asyncio
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from keystone.generation.llm.client import open_model
from keystone.generation.llm.model import OpenModel
from keystone.generation.llm.settings import ModelSettings
from keystone.generation.types import Failure, Reply, Request, Usage

SECRET = "sk-0123456789/secret"


def make_settings(folder: Path, *urls: str, **changes: Any) -> ModelSettings:
    chosen = {"name": "m", "urls": list(urls), "cache": folder / "replies.sqlite", "patience_seconds": 5}
    return ModelSettings.model_validate(chosen | changes)


def open_beside_cache(settings: ModelSettings) -> AbstractAsyncContextManager[OpenModel]:
    """Open the model, with its files beside its cache."""
    assert settings.cache
    return open_model(settings, settings.cache.parent)


def complete(
    chosen: ModelSettings, requests: Iterable[Request]
) -> tuple[dict[int, Reply | Failure], dict[str, Usage], list[str]]:
    """Send requests; returns outcomes by number, usage by purpose, and notes."""

    async def run() -> Any:
        async with open_beside_cache(chosen) as model:
            found = {number: outcome async for number, outcome in model.complete(requests)}
            return found, dict(model.usage), list(model.notes)

    return asyncio.run(run())  # type: ignore[no-any-return]
