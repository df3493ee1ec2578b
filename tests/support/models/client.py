"""The client as tests use it: short patience, and all outcomes at once."""

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from generation.llm.client import open_model
from generation.llm.settings import ModelSettings
from generation.types import Failure, Reply, Request, Usage

SECRET = "sk-0123456789/secret"


def settings(folder: Path, *urls: str, **changes: Any) -> ModelSettings:
    return ModelSettings("m", urls=urls, cache=folder / "replies.sqlite", patience_seconds=5, **changes)


def complete(
    chosen: ModelSettings, requests: Iterable[Request]
) -> tuple[dict[int, Reply | Failure], dict[str, Usage], list[str]]:
    """Outcomes by number, usage by purpose, notes."""

    async def run() -> Any:
        async with open_model(chosen) as model:
            found = {number: outcome async for number, outcome in model.complete(requests)}
            return found, dict(model.usage), list(model.notes)

    return asyncio.run(run())  # type: ignore[no-any-return]
