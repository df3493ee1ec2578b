"""The language model that a configuration names, opened once a run and only if something asks it."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import orjson

from generation.client import ModelSettings, open_model
from generation.model import Model
from indexing.files import written
from runs.config import RunConfig

T = TypeVar("T")
USAGE = "usage.json"


class Ask(Protocol):
    """Runs an asynchronous function of the model to its end; the model is None where the configuration has none."""

    def __call__(self, work: Callable[[Model | None], Awaitable[T]]) -> T: ...
