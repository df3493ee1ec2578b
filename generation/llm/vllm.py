"""vLLM's engine within this process as the backend of a client: no server, no HTTP.

Requests are collected while the engine works on those before them, and go to it together. The engine is loaded with
the first request that has to be asked, in a thread that does not keep the process from ending.
"""

import asyncio
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from itertools import islice
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

from generation.llm.chat import Answered, Asked, Faulty, read_answer, words
from generation.types import Failure, Request, Usage
from indexing.errors import MissingPackage, UserError

if TYPE_CHECKING:
    from generation.llm.settings import ModelSettings

T = TypeVar("T")

CHUNK = 4
"""Requests given to the engine together, as a multiple of those that the settings allow at once: while the last of
them are answered there is room left."""
LARGEST = 256
"""Requests given to the engine together at most: replies are kept when all of them are there."""
STRUCTURED = {"backend": "guidance", "disable_any_whitespace": True}
"""How schemas are enforced: vLLM's default lets blanks run on without end, and control characters into strings."""
GOES = 0.1
"""Seconds that the engine has to end by itself: it holds nothing that would be lost."""
LEAST = -9999.0
"""Of log-probabilities, as servers write that of a token that a schema forbids."""


def complete_offline(settings: "ModelSettings") -> "Offline":
    """The backend of the settings: `name` is a model's folder or its name on Hugging Face, `engine` holds arguments
    of `vllm.LLM`, and `extra` fields of its `SamplingParams`, or `chat_template_kwargs`.
    """
    return Offline(settings.name, settings.engine, settings.extra, min(LARGEST, CHUNK * settings.concurrency))


class Offline:
    """See `generation.llm.chat.Backend`; made within a running event loop."""

    def __init__(self, model: str, engine: Mapping[str, Any], extra: Mapping[str, Any], at_once: int) -> None:
        self.at_once = at_once
        self.notes: list[str] = []
        self._model, self._arguments, self._extra = model, engine, dict(extra)
        self._template = self._extra.pop("chat_template_kwargs", None)
        self._engine: Any = None
        self._waiting: list[tuple[Request, asyncio.Future[Answered]]] = []
        self._work: asyncio.Task[None] | None = None

    async def answer(self, request: Request) -> Answered:
        """The reply, when all those asked for together are there."""
        loop = asyncio.get_running_loop()
        place: asyncio.Future[Answered] = loop.create_future()
        self._waiting.append((request, place))
        if self._work is None:
            self._work = loop.create_task(self._answer_all())
        return await place

    async def close(self) -> None:
        """End the engine, and what it is working on."""
        if self._work:
            self._work.cancel()
        if self._engine is not None:
            core = self._engine.llm_engine.engine_core
            try:
                core.shutdown(timeout=GOES)
            except TypeError:  # of vLLM before it could be told how long to wait
                core.shutdown()

    async def _answer_all(self) -> None:
        try:
            await asyncio.sleep(0)  # others ask at the same time
            while self._waiting:
                chunk, self._waiting = self._waiting, []
                answers: Sequence[Answered | Exception]
                try:
                    answers = await in_thread(partial(self._ask, [request for request, _ in chunk]))
                except Exception as error:
                    answers = [error] * len(chunk)
                for (_, place), answered in zip(chunk, answers, strict=True):
                    if place.done():
                        continue
                    if isinstance(answered, Exception):
                        place.set_exception(answered)
                    else:
                        place.set_result(answered)
                await asyncio.sleep(0)  # whoever was answered asks again
        finally:
            self._work = None

    def _ask(self, requests: Sequence[Request]) -> list[Answered]:
        if self._engine is None:
            self._engine = load(self._model, self._arguments)
        began = time.monotonic()
        answers = self._together(requests)
        seconds = time.monotonic() - began
        return [replace(each, usage=replace(each.usage, calls=1, seconds=seconds)) for each in answers]

    def _together(self, requests: Sequence[Request]) -> list[Answered]:
        """Where the engine refuses a request it refuses all that came with it: each half is asked for itself."""
        sampling = [self._sampling(request) for request in requests]
        try:
            outputs = self._engine.chat(
                [[{"role": role, "content": said} for role, said in request.messages] for request in requests],
                sampling,
                use_tqdm=False,
                chat_template_kwargs=self._template,
            )
        except refusals() as refusal:
            if len(requests) == 1:
                return [Answered(Failure(f"{self._model}: refused: {words(str(refusal))}"))]
            middle = len(requests) // 2
            return self._together(requests[:middle]) + self._together(requests[middle:])
        except Exception as error:
            raise UserError(f"{self._model}: vLLM's engine has failed: {words(str(error))}") from error
        return [read_output(output, request) for output, request in zip(outputs, requests, strict=True)]

    def _sampling(self, request: Request) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import StructuredOutputsParams

        model_s = self._engine.get_default_sampling_params()
        fields = {name: getattr(model_s, name) for name in ("top_p", "top_k", "min_p", "repetition_penalty")}
        fields |= {"temperature": request.temperature, "max_tokens": request.max_tokens}
        if request.schema is not None:
            fields["structured_outputs"] = StructuredOutputsParams(json=dict(request.schema))
        if request.top_logprobs:
            fields["logprobs"] = request.top_logprobs
        unfit: tuple[type[Exception], ...] = (TypeError, *refusals())
        try:
            return SamplingParams(**fields | self._extra)
        except unfit as error:
            raise UserError(f"model: extra: not fields of vLLM's SamplingParams: {words(str(error))}") from error


def load(model: str, arguments: Mapping[str, Any]) -> Any:
    """The engine of a model. `MissingPackage` without vLLM, `UserError` where it cannot be loaded."""
    os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")  # standard output is for results
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
    os.environ.setdefault("VLLM_WORKER_MULTIPROCESSING_METHOD", "spawn")  # a copy of a process with threads may hang
    try:
        from vllm import LLM
    except ImportError as error:
        raise MissingPackage("vllm is needed for its offline engine: pip install 'keystone-rag[vllm]'") from error
    try:
        return LLM(**{"model": model, "structured_outputs_config": STRUCTURED, **arguments})
    except Exception as error:  # whatever the model's files, the arguments and the machine bring up
        raise UserError(f"{model}: vLLM cannot load it: {words(str(error))}") from error


def refusals() -> tuple[type[Exception], ...]:
    """What vLLM raises for requests that it cannot take, such as prompts longer than the model's window."""
    import vllm

    named = getattr(getattr(vllm, "exceptions", None), "VLLMClientError", None)
    return (ValueError, named) if named else (ValueError,)


def read_output(output: Any, request: Request) -> Answered:
    """What a `vllm.RequestOutput` holds."""
    said = output.outputs[0]
    usage = Usage(
        prompt_tokens=len(output.prompt_token_ids or ()),
        cached_tokens=output.num_cached_tokens or 0,
        completion_tokens=len(said.token_ids),
    )
    tokens = [
        [
            {"token": token.decoded_token, "logprob": max(token.logprob, LEAST)}
            for token in islice(alternatives.values(), request.top_logprobs)
        ]
        for alternatives in said.logprobs or ()
    ]
    choice: dict[str, Any] = {"message": {"content": said.text}, "finish_reason": said.finish_reason}
    if tokens:
        choice["logprobs"] = {"content": [{"top_logprobs": alternatives} for alternatives in tokens]}
    try:
        return replace(read_answer({"choices": [choice]}, Asked(None, request.top_logprobs)), usage=usage)
    except Faulty as error:
        return Answered(Failure(str(error)), usage)


def in_thread(work: Callable[[], T]) -> "asyncio.Future[T]":
    """The result of blocking work, done in a thread of its own for which the process does not wait at its end."""
    done: Future[T] = Future()

    def run() -> None:
        done.set_running_or_notify_cancel()
        try:
            done.set_result(work())
        except Exception as error:
            done.set_exception(error)

    Thread(target=run, daemon=True).start()
    return asyncio.wrap_future(done)
