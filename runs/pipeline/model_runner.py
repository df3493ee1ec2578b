"""The language model of a run. It is opened at its first use, and closed when the run ends."""

import asyncio
from collections import Counter
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, Protocol, TypeVar

import orjson

from keystone.generation.llm.client import open_model
from keystone.generation.llm.model import CutPrompt, Model, OpenModel, make_request_key, tell_outcome
from keystone.generation.llm.usage import report_usage
from keystone.generation.types import Failure, Prompt, Reply, Request, Usage
from keystone.indexing.errors import UserError, Waits
from keystone.indexing.io.json_values import digest
from keystone.indexing.io.writing import write_whole
from keystone.runs.config.run_config import MISSING_MODEL, RunConfig
from keystone.runs.pipeline.file_names import COSTS_FILE, USAGE_FILE

MOST_REASONS = 5
"""How many reasons the manifest lists for a stage's steps without a usable reply. The `fallbacks` have all reasons."""


@dataclass(slots=True)
class StepCount:
    """The steps that asked the model, and the reasons why some of them have no usable reply."""

    outcomes: dict[str, tuple[str, bool]] = field(default_factory=dict)
    """The last outcome of each step: why it has no usable reply (or empty), and whether it was cut at `max_tokens`."""

    def note(self, key: str, refusal: str, cut: bool) -> None:
        """Note the outcome of a step by the key of its first request. A repeated step counts once."""
        self.outcomes[key] = refusal, cut and bool(refusal)

    def take(self) -> dict[str, Any]:
        """Return the numbers as values of JSON, with the most frequent reasons, and begin anew."""
        outcomes, self.outcomes = list(self.outcomes.values()), {}
        if not outcomes:
            return {}
        refusals = Counter(refusal for refusal, _ in outcomes if refusal)
        numbers = {"asked": len(outcomes), "unusable": refusals.total(), "cut": sum(cut for _, cut in outcomes)}
        reasons = dict(sorted(refusals.most_common(), key=lambda one: (-one[1], one[0]))[:MOST_REASONS])
        return {"steps": numbers | {"reasons": reasons}}


@dataclass(slots=True)
class RunModel:
    """The model of a run. Each request allows it `thinking` tokens more, and `steps` counts the outcomes, if given."""

    name: str
    model: Model
    thinking: int
    steps: StepCount | None

    def complete(self, requests: Iterable[Request]) -> AsyncIterator[tuple[int, Reply | Failure]]:
        """See `keystone.generation.llm.model.Model`."""
        return self.model.complete(self._widen(requests))

    def take_outcome(self, step: Request, replied: Sequence[Request], refusal: str, cut: bool, /) -> None:
        """See `keystone.generation.llm.model.TakesOutcomes`."""
        if self.steps is not None:
            self.steps.note(make_request_key(self.name, step), refusal, cut)
        asked, *widened = self._widen([step, *replied])
        tell_outcome(self.model, asked, widened, refusal, cut)

    def _widen(self, requests: Iterable[Request]) -> Iterable[Request]:
        if not self.thinking:
            return requests
        return (allow_thoughts(one, self.thinking) for one in requests)


def allow_thoughts(request: Request, tokens: int) -> Request:
    """Allow `tokens` more tokens for thoughts before a reply, and twice as many if the first reply was cut."""
    return replace(request, max_tokens=request.max_tokens + tokens * (2 if request.doubled else 1))


def leave_uncounted(model: Model) -> Model:
    """Return the model of a run for steps that are asked again later, and counted then."""
    return replace(model, steps=None) if isinstance(model, RunModel) else model


T = TypeVar("T")

RANKING_SHARE = 0.75
"""The share of a budget up to which calls for the ranking are paid, if the model writes answers after them."""
GRADING_SHARE = 2 / 3
"""The part of this share up to which grades and further rounds are paid, if a reranker follows them."""
OWN_KEYS = ("ground", "translate")
"""The purposes of prompts whose stages digest them themselves."""
CLOSE_TIMEOUT_S = 1.0
"""How long closing a model may take after an error or an interrupt."""


class RunWithModel(Protocol):
    """Runs work that uses the model to its end. If the configuration has no model, the work gets None."""

    def __call__(self, work: Callable[[Model | None], Awaitable[T]]) -> T:
        """Run the work; returns its result."""


def ask_model(run_with_model: RunWithModel, work: Callable[[Model], Awaitable[T]], missing: str = MISSING_MODEL) -> T:
    """Run work that cannot do without the model. `UserError` with the text `missing` if the configuration has none."""

    async def check(model: Model | None) -> T:
        if model is None:
            raise UserError(missing)
        return await work(model)

    return run_with_model(check)


def describe_model(config: RunConfig, asks: Collection[str] | None = None) -> Any:
    """Describe the model for the key of a stage: the settings that change its replies, and a digest of the prompts.

    `asks` names the settings that can make the stage ask the model. If none of them does, the description is None.
    Without `asks`, the stage always asks.
    """
    if config.model is None or (asks is not None and not {*asks} & {*config.list_model_steps()}):
        return None
    kept = {"name", "window", "thinking", "extra", *({"budget"} if config.model.budget else ())}
    return [_digest_prompts(), config.model.model_dump(mode="json", include=kept)]


@cache
def _digest_prompts() -> str:
    """Digest what all prompts of stages say, with their schemas and limits. Names and functions do not count."""
    from keystone.generation.prompts import answers, grading, queries, readers  # only for runs with a model

    values = [
        value._replace(purpose="") if isinstance(value, Prompt) else value
        for module in (answers, grading, queries, readers)
        for name, value in vars(module).items()
        if name.isupper() and not (isinstance(value, Prompt) and value.purpose in OWN_KEYS)
    ]
    said = (list(one) if isinstance(one, tuple) else one for one in values)
    texts = {digest(one) for one in said if isinstance(one, str | dict | list)}
    return digest([sorted(texts), sorted(one for one in values if isinstance(one, int | float))])


def list_shares(config: RunConfig) -> dict[str, float]:
    """List the shares of a budget up to which calls are paid, by purpose. Other calls may spend all of it.

    A listwise call gains more than the grades of many documents, so it is not left to the last tokens.
    """
    steps = config.list_model_steps()
    ranking = RANKING_SHARE if config.has_answers and "answer.method" in steps else 1.0
    grading = ranking * GRADING_SHARE if "rerank.method" in steps and config.reranks_after("grades") else ranking
    return {"rerank": ranking, "umbrela": grading, "search_again": grading}


@contextmanager
def open_model_runner(
    config: RunConfig,
    folder: Path | None,
    steps: StepCount | None = None,
    retry: bool = False,
    costs: Path | None = None,
) -> Iterator[RunWithModel]:
    """Open a runner of work that uses the model of a run. `steps` counts the outcomes.

    If `retry` is true, the model is asked again for replies that no reader could use. The file `costs` has the costs of
    single calls under a budget; None: `costs.jsonl` in `folder`, if that is given.

    After each work, the cost of its calls is added to `usage.json` in `folder`, unless that is None. Each reply is on
    disk before a step uses it. If the run is interrupted, the replies that have arrived are kept.
    """
    model: OpenModel | None = None
    costs = folder / COSTS_FILE if costs is None and folder is not None else costs
    shares, thinking = list_shares(config), config.model.thinking if config.model else 0
    stack = AsyncExitStack()

    def run_with_model(work: Callable[[Model | None], Awaitable[T]]) -> T:
        async def work_with_model() -> T:
            nonlocal model
            if model is None and config.model is not None:
                model = await stack.enter_async_context(open_model(config.model, config.out, costs, shares, retry))
            return await work(model and RunModel(model.name, model, thinking, steps))

        try:
            return run(work_with_model())
        finally:
            _add_to_usage_file(model, folder, config)

    with open_event_loop() as run:
        try:
            yield run_with_model
        except BaseException as error:
            limit = None if isinstance(error, Waits) else CLOSE_TIMEOUT_S  # a model that waits may submit its files
            with suppress(TimeoutError):
                run(asyncio.wait_for(stack.__aexit__(type(error), error, error.__traceback__), limit))
            raise
        run(stack.aclose())


class RunCoroutine(Protocol):
    """Runs a coroutine to its end."""

    def __call__(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the coroutine; returns its result."""


@contextmanager
def open_event_loop() -> Iterator[RunCoroutine]:
    """Open an event loop in a thread of its own. The caller's thread may have a loop already, as in a notebook.

    If the caller is interrupted, the coroutine ends before the interrupt is raised again.
    """
    runner, tasks = asyncio.Runner(), list[asyncio.Task[Any]]()

    async def note_task(work: Coroutine[Any, Any, T]) -> T:
        tasks[:] = filter(None, [asyncio.current_task()])
        return await work

    def run(work: Coroutine[Any, Any, T]) -> T:
        done = thread.submit(lambda: runner.run(note_task(work)))
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
    except BaseException:
        thread.submit(runner.close)  # nobody waits for it
        raise
    else:
        thread.submit(runner.close).result()
    finally:
        thread.shutdown(wait=False)


def read_total_usage(folder: Path) -> Mapping[str, float]:
    """Read the row `total` of `usage.json` in a run directory; empty if the run asked no model."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        total: Mapping[str, float] = orjson.loads((folder / USAGE_FILE).read_bytes())["purposes"]["total"]
        return total
    return {}


def read_cut_prompt(folder: Path) -> CutPrompt | None:
    """Read from `usage.json` in a run directory which prompt the model's server has cut; None if it cut none."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        return CutPrompt(**orjson.loads((folder / USAGE_FILE).read_bytes())["cut_prompt"])
    return None


def _add_to_usage_file(model: OpenModel | None, folder: Path | None, config: RunConfig) -> None:
    """Add the cost of the calls to `usage.json`. If the file belongs to another model, start it anew."""
    if folder is None or model is None or not model.usage:
        return
    known: dict[str, Usage] = {}
    known_cut: CutPrompt | None = None
    with suppress(OSError, ValueError, TypeError, KeyError):
        account = orjson.loads((folder / USAGE_FILE).read_bytes())
        same = account["model"] == model.name
        rows = account["purposes"] if same else {}
        rows.pop("total", None)
        known = {name: Usage(**{one.name: row[one.name] for one in fields(Usage)}) for name, row in rows.items()}
        known_cut = read_cut_prompt(folder) if same else None
    for purpose, usage in model.usage.items():
        known[purpose] = known.get(purpose, Usage()) + usage
    model.usage.clear()
    prices = config.model.prices if config.model else None
    account = {"model": model.name, "purposes": report_usage(known, prices), "notes": model.notes}
    if cuts := list(filter(None, (known_cut, model.prompts.find_cut()))):
        account["cut_prompt"] = asdict(max(cuts, key=lambda cut: (cut.tokens, cut.characters)))
    folder.mkdir(parents=True, exist_ok=True)
    with write_whole(folder / USAGE_FILE) as out:
        out.write(orjson.dumps(account, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
