"""The language model that a configuration names: opened when first asked, closed when the run ends."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

import orjson

from generation.llm.model import Model, OpenModel
from generation.llm.open import open_model
from generation.llm.usage import add_usage, report_usage
from generation.types import Failure, Reply, Request, Usage
from indexing.io.files import written
from runs.config.run_config import RunConfig

T = TypeVar("T")

USAGE_FILE = "usage.json"
CLOSE_TIMEOUT_S = 1.0
"""Seconds that closing a model may take after an error or an interrupt."""


class RunWithModel(Protocol):
    """Runs what asks the model to its end; it is given None where the configuration has no model."""

    def __call__(self, work: Callable[[Model | None], Awaitable[T]]) -> T:
        """The result of `work`."""
        ...


@contextmanager
def open_model_runner(config: RunConfig, folder: Path | None) -> Iterator[RunWithModel]:
    """The model of a run; what its calls have cost is added to `usage.json` in the run's folder, if one is named.

    Each reply is on disk before anybody sees it, and so is what has arrived when the run is interrupted.
    """
    model: OpenModel | None = None
    stack = AsyncExitStack()

    def run_with_model(work: Callable[[Model | None], Awaitable[T]]) -> T:
        async def asked() -> T:
            nonlocal model
            if model is None and config.model is not None:
                model = await stack.enter_async_context(open_model(config.model, config.out))
            thinking = config.model.thinking if config.model else 0
            return await work(ThinkingModel(model.name, model, thinking) if model and thinking else model)

        return run(asked())

    with open_event_loop() as run:
        try:
            yield run_with_model
        except BaseException as error:
            _add_to_usage_file(model, folder, config)
            with suppress(TimeoutError):
                run(asyncio.wait_for(stack.__aexit__(type(error), error, error.__traceback__), CLOSE_TIMEOUT_S))
            raise
        _add_to_usage_file(model, folder, config)
        run(stack.aclose())


class RunCoroutine(Protocol):
    """Runs a coroutine to its end."""

    def __call__(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of `work`."""
        ...


@contextmanager
def open_event_loop() -> Iterator[RunCoroutine]:
    """An event loop in a thread of its own, since a loop may run in the caller's already, as in a notebook.

    An interrupt of the caller ends the coroutine before it goes on.
    """
    runner, tasks = asyncio.Runner(), list[asyncio.Task[Any]]()

    async def noted(work: Coroutine[Any, Any, T]) -> T:
        tasks[:] = filter(None, [asyncio.current_task()])
        return await work

    def run(work: Coroutine[Any, Any, T]) -> T:
        done = thread.submit(lambda: runner.run(noted(work)))
        try:
            return done.result()
        except BaseException:
            if not done.done():
                runner.get_loop().call_soon_threadsafe(lambda: [task.cancel() for task in tasks])
                wait([done])
            raise

    thread = ThreadPoolExecutor(1, "asking")
    try:
        yield run
        thread.submit(runner.close).result()
    finally:
        thread.shutdown(wait=False)


@dataclass(slots=True)
class ThinkingModel:
    """A model that thinks before it says anything, and is allowed so many tokens more for that."""

    name: str
    model: Model
    tokens: int

    def complete(self, requests: Iterable[Request]) -> AsyncIterator[tuple[int, Reply | Failure]]:
        """See `generation.llm.model.Model`."""
        return self.model.complete(replace(one, max_tokens=one.max_tokens + self.tokens) for one in requests)


def _add_to_usage_file(model: OpenModel | None, folder: Path | None, config: RunConfig) -> None:
    """Add what the calls have cost to the run's account, which begins anew with another model."""
    if folder is None or model is None or not model.usage:
        return
    known: dict[str, Usage] = {}
    with suppress(OSError, ValueError, TypeError, KeyError):
        told = orjson.loads((folder / USAGE_FILE).read_bytes())
        rows = told["purposes"] if told["model"] == model.name else {}
        rows.pop("total", None)
        known = {name: Usage(**{field.name: row[field.name] for field in fields(Usage)}) for name, row in rows.items()}
    for purpose, usage in model.usage.items():
        known[purpose] = add_usage(known.get(purpose, Usage()), usage)
    prices = config.model.prices if config.model else None
    told = {"model": model.name, "purposes": report_usage(known, prices), "notes": model.notes}
    folder.mkdir(parents=True, exist_ok=True)
    with written(folder / USAGE_FILE) as out:
        out.write(orjson.dumps(told, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
