"""vLLM's engine within this process as the backend of a client, without a server or HTTP.

While the engine works, further requests are collected, and then go to it together. A thread asks the engine, and loads
it first if needed. The process can end without waiting for that thread.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

from keystone.generation.llm.chat import (
    Dialect,
    PaidReply,
    ReplyBound,
    combine_dialects,
    find_other_dialect,
    read_reply,
)
from keystone.generation.llm.client import open_client
from keystone.generation.llm.model import OpenModel
from keystone.generation.llm.settings import ModelSettings
from keystone.generation.types import Failure, Reply, Request, Usage
from keystone.indexing.encoders.vllm import free_engine, lend_engine
from keystone.indexing.errors import UserError, WrongReply
from keystone.indexing.io.error_text import describe_error
from keystone.indexing.io.json_values import digest

T = TypeVar("T")

CHUNK_SHARE = 4
"""The requests that go to the engine together, as a multiple of `concurrency` in the settings. The engine then always
has work, even while it answers the last of them."""
MOST_CHUNK_REQUESTS = 256
"""The most requests that go to the engine together. Their replies are kept when the last one has come."""
STRUCTURED_OUTPUTS = {"backend": "guidance", "disable_any_whitespace": True}
"""How vLLM enforces schemas. Its default allows endless blanks, and control characters in strings."""
LEAST_LOGPROB = -9999.0
"""The log-probability that servers write for a token that a schema forbids."""


def open_backend(settings: ModelSettings, folder: Path, retry: bool = False) -> AbstractAsyncContextManager[OpenModel]:
    """Open the model of vLLM's engine.

    In the settings, `name` is a model's folder or its name on Hugging Face. `engine` holds arguments of `vllm.LLM`.
    `extra` holds fields of its `SamplingParams`, or `chat_template_kwargs`.
    """
    at_once = min(MOST_CHUNK_REQUESTS, CHUNK_SHARE * settings.concurrency)
    engine = partial(OfflineEngine, settings.name, settings.engine, settings.extra, at_once)
    return open_client(settings, folder, engine, retry)


class OfflineEngine:
    """A `keystone.generation.llm.chat.Backend`, made within a running event loop."""

    def __init__(self, model: str, engine: Mapping[str, Any], extra: Mapping[str, Any], at_once: int) -> None:
        self.at_once = at_once
        self.notes: list[str] = []
        self._model, self._extra = model, dict(extra)
        self._arguments = {"structured_outputs_config": STRUCTURED_OUTPUTS, **engine}
        self._template = self._extra.pop("chat_template_kwargs", None)
        self._engine: Any = None
        """The engine while this backend has borrowed it."""
        self._dialect = Dialect()
        self._waiting: list[tuple[Request, asyncio.Future[PaidReply]]] = []
        self._work: asyncio.Task[None] | None = None

    async def answer(self, request: Request) -> PaidReply:
        """Return the reply, once all requests that went to the engine together are answered."""
        loop = asyncio.get_running_loop()
        place: asyncio.Future[PaidReply] = loop.create_future()
        self._waiting.append((request, place))
        if self._work is None:
            self._work = loop.create_task(self._answer_all())
        return await place

    async def close(self) -> None:
        """End the engine and its work."""
        if self._work:
            self._work.cancel()
        free_engine(self._model, self._arguments, at_once=self._engine is not None)

    async def _answer_all(self) -> None:
        try:
            await asyncio.sleep(0)  # callers that ask at the same time join the chunk
            while self._waiting:
                chunk, self._waiting = self._waiting, []
                answers: Sequence[PaidReply | Exception]
                try:
                    answers = await run_in_thread(partial(self._ask, [request for request, _ in chunk]))
                except Exception as error:
                    answers = [error] * len(chunk)
                for (_, place), answered in zip(chunk, answers, strict=True):
                    if place.done():
                        continue
                    if isinstance(answered, Exception):
                        place.set_exception(answered)
                    else:
                        place.set_result(answered)
                await asyncio.sleep(0)  # callers with a reply may ask again
        finally:
            self._work = None

    def _ask(self, requests: Sequence[Request]) -> list[PaidReply]:
        with lend_engine(self._model, self._arguments) as self._engine:
            began = time.monotonic()
            try:
                answers = self._ask_engine(requests)
            finally:
                self._engine = None
            seconds = time.monotonic() - began
        notes = dict.fromkeys(f"{self._model} {one.note}" for one in answers if one.note)
        self.notes += [note for note in notes if note not in self.notes]
        return [replace(each, usage=replace(each.usage, calls=1, seconds=seconds)) for each in answers]

    def _ask_engine(self, requests: Sequence[Request]) -> list[PaidReply]:
        """Ask the engine. If it refuses one request, it refuses all of the chunk. Each half is then asked alone.

        A request whose schema is refused is asked without it, and so are later requests with this schema.
        """
        sampling = [self._make_sampling(request) for request in requests]
        try:
            outputs = self._engine.chat(
                [[{"role": role, "content": text} for role, text in request.messages] for request in requests],
                sampling,
                use_tqdm=False,
                chat_template_kwargs=self._template,
            )
        except list_refusals() as refusal:
            if len(requests) == 1:
                return [self._ask_otherwise(requests[0], str(refusal))]
            middle = len(requests) // 2
            return self._ask_engine(requests[:middle]) + self._ask_engine(requests[middle:])
        except Exception as error:
            raise UserError(f"{self._model}: vLLM's engine has failed: {describe_error(str(error))}") from error
        return [read_output(output, request) for output, request in zip(outputs, requests, strict=True)]

    def _ask_otherwise(self, request: Request, refusal: str) -> PaidReply:
        schema = digest(request.schema) if self._dialect.takes(request.schema) else ""
        other = find_other_dialect(Dialect(), refusal, schema)
        if other and other[0].refused:
            (answered,) = self._ask_engine([replace(request, schema=None)])
            if isinstance(answered.outcome, Reply):  # so the schema was the reason of the refusal
                self._dialect = combine_dialects(self._dialect, other[0])
            return replace(answered, note=other[1].format(purpose=request.purpose))
        return PaidReply(Failure(f"{self._model}: refused: {describe_error(refusal)}"))

    def _make_sampling(self, request: Request) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import StructuredOutputsParams

        model_s = self._engine.get_default_sampling_params()
        fields = {name: getattr(model_s, name) for name in ("top_p", "top_k", "min_p", "repetition_penalty")}
        fields |= {"temperature": request.temperature, "max_tokens": request.max_tokens}
        if request.schema is not None and self._dialect.takes(request.schema):
            fields["structured_outputs"] = StructuredOutputsParams(json=dict(request.schema))
        if request.top_logprobs:
            fields["logprobs"] = request.top_logprobs
        if request.seed is not None:
            fields["seed"] = request.seed
        unfit: tuple[type[Exception], ...] = (TypeError, *list_refusals())
        try:
            return SamplingParams(**fields | self._extra)
        except unfit as error:
            raise UserError(
                f"model: extra: not fields of vLLM's SamplingParams: {describe_error(str(error))}"
            ) from error


def list_refusals() -> tuple[type[Exception], ...]:
    """List the errors of vLLM for requests that it cannot take, such as prompts longer than the model's window."""
    import vllm

    client_error = getattr(getattr(vllm, "exceptions", None), "VLLMClientError", None)
    return (ValueError, client_error) if client_error else (ValueError,)


def read_output(output: Any, request: Request) -> PaidReply:
    """Read the reply in a `vllm.RequestOutput`."""
    completion = output.outputs[0]
    usage = Usage(
        prompt_tokens=len(output.prompt_token_ids or ()),
        cached_tokens=output.num_cached_tokens or 0,
        completion_tokens=len(completion.token_ids),
    )
    tokens = [
        {
            "token": alternatives[own].decoded_token if own in alternatives else "",
            "top_logprobs": [
                {"token": token.decoded_token, "logprob": max(token.logprob, LEAST_LOGPROB)}
                for token in islice(alternatives.values(), request.top_logprobs)
            ],
        }
        for own, alternatives in zip(completion.token_ids, completion.logprobs or (), strict=False)
    ]
    choice: dict[str, Any] = {"message": {"content": completion.text}, "finish_reason": completion.finish_reason}
    if tokens:
        choice["logprobs"] = {"content": tokens}
    try:
        completion.text.encode()  # no file can keep half of a surrogate pair
        return replace(read_reply({"choices": [choice]}, ReplyBound(None, request.top_logprobs)), usage=usage)
    except (WrongReply, UnicodeEncodeError) as error:
        return PaidReply(Failure(str(error)), usage)


def run_in_thread(work: Callable[[], T]) -> "asyncio.Future[T]":
    """Run blocking work in a thread of its own. The process can end without waiting for it."""
    done: Future[T] = Future()

    def run() -> None:
        done.set_running_or_notify_cancel()
        try:
            done.set_result(work())
        except Exception as error:
            done.set_exception(error)

    Thread(target=run, daemon=True).start()
    return asyncio.wrap_future(done)
