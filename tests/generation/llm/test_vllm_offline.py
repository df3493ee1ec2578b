"""Requests to vLLM's engine and their replies, with a fake engine. `test_vllm.py` uses the real one."""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from threading import Event, Thread
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.generation.llm.client import open_model
from keystone.generation.llm.settings import ModelSettings
from keystone.generation.types import Failure, Reply, Request, Usage
from keystone.indexing.encoders.vllm import _state, free_engine, lend_engine
from keystone.indexing.errors import MissingPackage, UserError
from tests.support import programs
from tests.support.places import ROOT
from tests.support.waiting import LIMIT_S, wait_until

pytestmark = pytest.mark.slow


class SamplingParams(SimpleNamespace):
    def __init__(self, **fields: Any) -> None:
        known = {"temperature", "max_tokens", "top_p", "top_k", "min_p", "repetition_penalty", "logprobs", "seed"}
        if unknown := fields.keys() - known - {"structured_outputs"}:
            raise TypeError(f"unexpected {unknown}")
        super().__init__(**fields)


class Engine:
    """An engine that repeats the last message. It fails at `fails`.

    It refuses a chunk that holds `refused`, or a schema with `uniqueItems`.
    """

    def __init__(self, model: str, **arguments: Any) -> None:
        if model == "nothing":
            raise OSError("no such model")
        self.arguments = arguments
        self.chunks: list[list[str]] = []
        self.sampled: list[Any] = []
        self.llm_engine = SimpleNamespace(engine_core=SimpleNamespace(shutdown=self.shut))
        self.ended = False
        self.refusals = 0
        self.is_alone = all(engine.ended for engine in ENGINES)
        ENGINES.append(self)

    def shut(self) -> None:
        self.ended = True

    def get_default_sampling_params(self) -> SamplingParams:
        return SamplingParams(top_p=0.9, top_k=3, min_p=0.0, repetition_penalty=1.1)

    def chat(self, messages: Sequence[Any], sampling: Sequence[Any], **_: Any) -> list[Any]:
        assert len(messages) == len(sampling)
        said = [each[-1]["content"] for each in messages]
        for part, reason in (("uniqueItems", "grammar: uniqueItems is unknown"), ("refused", "too long")):
            if part in f"{said} {sampling}":
                self.refusals += 1
                raise ValueError(reason)
        if "fails" in said:
            raise RuntimeError("the engine is dead")
        self.chunks.append(said)
        self.sampled += sampling
        return [self.output(*pair) for pair in zip(said, sampling, strict=True)]

    def output(self, said: str, sampling: Any) -> Any:
        alternatives = {i: SimpleNamespace(decoded_token=str(i), logprob=-(float("inf") if i else 0)) for i in range(3)}
        logprobs = [alternatives] if hasattr(sampling, "logprobs") else None
        reply = SimpleNamespace(text=said, finish_reason="stop", token_ids=[1, 2], logprobs=logprobs)
        return SimpleNamespace(outputs=[reply], prompt_token_ids=[1, 2, 3], num_cached_tokens=None)


ENGINES: list[Engine] = []


@pytest.fixture(autouse=True)
def vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    module, parameters = ModuleType("vllm"), ModuleType("vllm.sampling_params")
    vars(module).update(LLM=Engine, SamplingParams=SamplingParams)
    vars(parameters).update(StructuredOutputsParams=lambda json: ("schema", json))
    monkeypatch.setitem(sys.modules, "vllm", module)
    monkeypatch.setitem(sys.modules, "vllm.sampling_params", parameters)
    ENGINES.clear()


def request(said: str, **fields: Any) -> Request:
    return Request("test", (("system", "repeat"), ("user", said)), 5, **fields)


def asked(folder: Path, requests: Sequence[Request], **settings: Any) -> tuple[list[Reply | Failure], Usage]:
    async def ask_all() -> tuple[list[Reply | Failure], Usage]:
        given = {"name": "echo", "cache": folder / "replies.sqlite", **settings}
        async with open_model(ModelSettings.model_validate({"backend": "vllm", **given}), folder) as model:
            found = {number: outcome async for number, outcome in model.complete(requests)}
            return [found[number] for number in range(len(requests))], model.usage["test"]

    return asyncio.run(ask_all())


@given(st.lists(st.booleans(), max_size=30), st.integers(1, 3))
def test_each_request_has_its_own_outcome(
    tmp_path_factory: pytest.TempPathFactory, fine: list[bool], at_once: int
) -> None:
    ENGINES.clear()
    said = [f"{number} {'fine' if good else 'refused'}" for number, good in enumerate(fine)]
    outcomes, usage = asked(tmp_path_factory.mktemp("echo"), [*map(request, said)], concurrency=at_once)
    for good, text, outcome in zip(fine, said, outcomes, strict=True):
        assert outcome == (Reply(text) if good else Failure("echo: refused: too long"))
    assert usage.calls == len(said)
    assert usage.completion_tokens == 2 * sum(fine)
    assert len(ENGINES) == bool(fine)  # the engine is loaded once, at its first use
    assert all(engine.ended for engine in ENGINES)


def test_requests_that_go_together_keep_their_fields(tmp_path: Path) -> None:
    schema = {"type": "integer"}
    requests = [request("a"), request("b", schema=schema), request("c", temperature=0.5, top_logprobs=2)]
    outcomes, usage = asked(tmp_path, requests, engine={"seed": 1}, extra={"seed": 4})
    assert outcomes[2] == Reply("c", "stop", ({"1": -9999.0, "0": 0.0},))
    assert (usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens) == (9, 0, 6)
    (engine,) = ENGINES
    assert engine.chunks == [["a", "b", "c"]]
    assert engine.arguments["seed"] == 1
    usual = {"top_p": 0.9, "top_k": 3, "min_p": 0.0, "repetition_penalty": 1.1, "max_tokens": 5, "seed": 4}
    assert [vars(one) for one in engine.sampled] == [
        {**usual, "temperature": 0.0},
        {**usual, "temperature": 0.0, "structured_outputs": ("schema", schema)},
        {**usual, "temperature": 0.5, "logprobs": 2},
    ]
    again, usage = asked(tmp_path, requests, extra={"seed": 4})
    assert again == outcomes
    assert usage == Usage(cache_hits=3)
    assert len(ENGINES) == 1


def test_a_schema_that_was_refused_is_sent_no_more(tmp_path: Path) -> None:
    bad, good = {"type": "array", "uniqueItems": True}, {"type": "array"}
    requests = [request(f"{number}", schema=bad if number % 4 == 1 else good) for number in range(16)]
    outcomes, _ = asked(tmp_path, requests, concurrency=1)
    assert outcomes == [Reply(f"{number}") for number in range(16)]
    (engine,) = ENGINES
    assert engine.refusals == 3  # the chunk, its half, and the one request: later chunks are taken whole
    sent = [each.structured_outputs[1] for each in engine.sampled if hasattr(each, "structured_outputs")]
    assert sent == [good] * 12


def test_a_schema_is_sent_again_if_its_request_fails_without_it_too(tmp_path: Path) -> None:
    bad = {"type": "array", "uniqueItems": True}
    said = ["refused", "1", "2", "3", "fine", "5", "6", "7"]
    requests = [request(one, schema=bad if one in ("refused", "fine") else None) for one in said]
    outcomes, _ = asked(tmp_path, requests, concurrency=1)
    assert outcomes == [Failure("echo: refused: too long"), *map(Reply, said[1:])]
    assert ENGINES[0].refusals == 4 + 3  # the first request is refused once more, without its schema


@pytest.mark.parametrize(
    ("settings", "said", "message"),
    [
        ({"name": "nothing"}, "a", "nothing: vLLM cannot load it: no such model"),
        ({}, "fails", "echo: vLLM's engine has failed: the engine is dead"),
        ({"extra": {"nonsense": 1}}, "a", "extra: not fields of vLLM's SamplingParams: .*nonsense"),
    ],
)
def test_an_error_of_the_engine_is_named(tmp_path: Path, settings: dict[str, Any], said: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        asked(tmp_path, [request("b"), request(said)], **settings)


def test_an_engine_is_freed_before_another_is_loaded_and_those_who_wait_for_it_go_first() -> None:
    names, done, first = "abababab", list[str](), Event()

    def use(name: str) -> None:
        with lend_engine(name, {"seed": 1}) as engine:
            assert not engine.ended
            first.wait(30)
            done.append(name)

    threads = [Thread(target=use, args=name) for name in names]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(ENGINES) == 1 and _state.waiting.total() == len(names) - 1, "all threads to wait")
    first.set()
    for thread in threads:
        thread.join(LIMIT_S)
    assert "".join(done) in ("aaaabbbb", "bbbbaaaa")
    assert [engine.is_alone for engine in ENGINES] == [True, True]
    free_engine(done[0], {"seed": 1})
    assert [engine.ended for engine in ENGINES] == [True, False]
    free_engine(done[-1], {"seed": 1})
    assert ENGINES[1].ended


ENDING = """
import multiprocessing, sys, time
from types import SimpleNamespace

def load(model):
    child = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(600,))
    child.start()
    core = SimpleNamespace(shutdown=lambda timeout: child.kill())
    return SimpleNamespace(llm_engine=SimpleNamespace(engine_core=core))

sys.modules["vllm"] = SimpleNamespace(LLM=load)
from keystone.indexing.encoders.vllm import lend_engine

with lend_engine("echo", {}):
    pass
"""
"""A program that ends with an engine whose process would go on."""


def test_a_program_ends_with_its_engine() -> None:
    programs.run([sys.executable, "-c", ENDING], cwd=ROOT, check=True, seconds=60)


def test_without_vllm_the_error_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(MissingPackage, match=r"pip install 'keystone-rag\[vllm\]'"):
        asked(tmp_path, [request("a")])
