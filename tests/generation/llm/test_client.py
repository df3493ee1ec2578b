"""The client and a real server with scripted faults: each request is answered and paid for once, or named."""

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import pytest

from keystone.generation.llm import endpoint_pool
from keystone.generation.llm.ask import ask_all, run_together
from keystone.generation.llm.settings import ModelSettings
from keystone.generation.replies import read_json
from keystone.generation.types import Failure, Reply, Request, Usage
from keystone.indexing.errors import UserError
from keystone.indexing.io import api_keys, retry
from keystone.indexing.io.api_keys import is_guarded, read_key, remove_key
from keystone.indexing.io.retry import FIRST_REQUESTS
from tests.support import programs
from tests.support.models.client import SECRET, complete, make_settings, open_beside_cache
from tests.support.servers.chat import (
    Exchange,
    Fault,
    changed,
    endless_trickle,
    half,
    hang,
    hangs_up,
    in_turn,
    repeats_key,
    says,
    serving,
    status,
    torn,
    trickle,
)
from tests.support.waiting import LIMIT_S, join, within

pytestmark = pytest.mark.usefixtures("short_pauses")

SCHEMA = {"type": "object", "properties": {"grade": {"type": "integer"}}, "required": ["grade"]}


def asking(*said: str, purpose: str = "step", **changes: Any) -> Request:
    return Request(purpose, tuple(("user", text) for text in said), 10, **changes)


FAULTS = {
    "busy": status(429),
    "busy for a while": status(429, None, Retry_After="0.05"),
    "busy until a date": status(429, None, Retry_After=format_datetime(datetime(2020, 1, 1, tzinfo=UTC), usegmt=True)),
    "busy without a readable time": status(429, None, Retry_After="soon"),
    "engine busy": status(503, {"error": {"message": "The engine is currently busy", "code": 503}}),
    "bad gateway": status(502, b"<html>Bad gateway</html>"),
    "error": status(500, {"error": {"message": "EngineCore encountered an issue."}}),
    "error in words": status(500, {"error": "out of order"}),
    "hang": hang,
    "half an answer": half,
    "torn JSON": torn,
    "nothing": hangs_up,
    "no bytes": says(b""),
    "no JSON": says(b"<html>"),
    "endless trickle": endless_trickle,
    "slow trickle": trickle,
}


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(fault, id=name, marks=[pytest.mark.slow] * (fault in (hang, endless_trickle)))
        for name, fault in FAULTS.items()
    ],
)
def test_a_request_is_answered_after_a_fault_and_paid_for_once(fault: Fault, tmp_path: Path) -> None:
    with serving(faults=[fault]) as server:
        outcomes, usage, _ = complete(make_settings(tmp_path, server.url, call_seconds=5), [asking("hello")])
        again, usage_again, _ = complete(make_settings(tmp_path, server.url), [asking("hello")])
    assert outcomes == again == {0: Reply("hello")}
    assert len(server.answered) == 1
    tries = len(server.requests)
    assert replace(usage["step"], seconds=0) == Usage(1, 10, 4, 3, 0, tries - 1)
    assert 0 < usage["step"].seconds < LIMIT_S
    assert usage_again == {"step": Usage(cache_hits=1)}


def test_the_client_pauses_if_an_endpoint_asks_for_it(tmp_path: Path) -> None:
    arrived = []

    async def busy(exchange: Exchange) -> bool:
        arrived.append(time.monotonic())
        return len(arrived) == 1 and await status(429, None, Retry_After="0.3")(exchange)

    with serving(always=busy) as server:
        complete(make_settings(tmp_path, server.url, concurrency=1), [asking(str(i)) for i in range(5)])
    assert len(arrived) == 6
    assert arrived[1] - arrived[0] >= 0.3


@pytest.mark.parametrize("asked", ["0", "Wed, 01 Jan 2020 00:00:00 GMT"])
def test_a_server_that_asks_for_a_pause_of_no_length_is_not_asked_without_pauses(
    asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "FIRST_PAUSE_S", 0.1)
    arrived = []

    async def busy(exchange: Exchange) -> bool:
        arrived.append(time.monotonic())
        return arrived[-1] - arrived[0] < 0.2 and await status(429, None, Retry_After=asked)(exchange)

    with serving(always=busy) as server:
        outcomes, _, _ = complete(make_settings(tmp_path, server.url), [asking("one")])
    assert outcomes == {0: Reply("one")}
    assert len(arrived) <= 12


@pytest.mark.parametrize(
    "said",
    [
        "This model's maximum context length is 8192 tokens. However, you requested 9000 tokens (1000 in the messages, "
        "8000 in the completion).",
        "'max_tokens' or 'max_completion_tokens' is too large: 8000. This model's maximum context length is 8192 "
        "tokens and your request has 1000 input tokens (8000 > 8192 - 1000).",
        "This model's maximum context length is 8192 tokens. However, you requested 8000 output tokens and your prompt "
        "contains 1000 input tokens, for a total of 9000 tokens.",
        "Requested token count exceeds the model's maximum context length of 8192 tokens. You requested a total of "
        "9000 tokens: 1000 tokens from the input messages and 8000 tokens for the completion.",
    ],
    ids=["OpenAI", "vLLM 0.11", "vLLM 0.25", "SGLang"],
)
def test_a_reply_is_asked_for_with_the_tokens_that_the_window_leaves_it(said: str, tmp_path: Path) -> None:
    async def refuse(exchange: Exchange) -> bool:
        return exchange.body["max_tokens"] > 7192 and await status(400, {"error": {"message": said}})(exchange)

    text = "\u0441\u043b\u043e\u0432\u043e" * 300
    asked = [Request("step", (("user", text),), tokens) for tokens in (7192, 8000)]
    with serving(always=refuse) as server:
        outcomes, usage, notes = complete(make_settings(tmp_path, server.url), asked)
    assert outcomes == {0: Reply(text), 1: Reply(text)}
    assert sorted(body["max_tokens"] for body in server.requests) == [7192, 7192, 8000]
    assert usage["step"].calls == 2
    (note,) = notes
    assert note.startswith(f"{server.url}: m takes 8,192 tokens with the reply")


def test_a_reply_is_shortened_until_the_window_holds_it(tmp_path: Path) -> None:
    said = "maximum context length is 8192 tokens. However, your prompt contains at least 193 input tokens"

    async def refuse(exchange: Exchange) -> bool:
        return exchange.body["max_tokens"] > 2000 and await status(400, {"error": {"message": said}})(exchange)

    with serving(always=refuse) as server:
        outcomes, _, notes = complete(make_settings(tmp_path, server.url), [Request("step", (("user", "a"),), 8000)])
    assert outcomes == {0: Reply("a")}
    assert [body["max_tokens"] for body in server.requests] == [8000, 4000, 2000]
    assert len(notes) == 1


def test_a_request_that_the_budget_does_not_hold_is_no_call(tmp_path: Path) -> None:
    with serving() as server:
        chosen = make_settings(tmp_path, server.url, budget={"calls": 2})
        outcomes, usage, _ = complete(chosen, [asking(str(i)) for i in range(5)])
    assert sum(isinstance(outcome, Failure) for outcome in outcomes.values()) == 3
    assert len(server.requests) == usage["step"].calls == 2


def test_usage_that_is_left_out_or_null_counts_as_none(tmp_path: Path) -> None:
    choices = [{"message": {"content": "a"}, "finish_reason": None}]
    tokens = {"prompt_tokens": 5, "completion_tokens": None, "prompt_tokens_details": None}
    faults = [says({"choices": choices}), says({"choices": choices, "usage": tokens})]
    with serving(faults=faults) as server:
        outcomes, usage, _ = complete(make_settings(tmp_path, server.url), [asking("a"), asking("b")])
    assert outcomes == {0: Reply("a"), 1: Reply("a")}
    assert replace(usage["step"], seconds=0) == Usage(2, 5)


@pytest.mark.slow
def test_the_less_loaded_endpoint_is_asked_first(tmp_path: Path) -> None:
    async def late(_: Exchange) -> bool:
        while len(fast.answered) < 250:
            await asyncio.sleep(0.01)
        return False

    with serving(always=late) as slow, serving(latency=0.01) as fast:
        chosen = make_settings(tmp_path, slow.url, fast.url, concurrency=8)
        complete(chosen, [asking(str(i)) for i in range(300)])
    assert len(fast.answered) > 2 * len(slow.answered) > 0
    assert slow.most_at_once == fast.most_at_once == 8


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (status(500, {"error": "out of order"}), "500: out of order, 8 times"),
        (says(b"<html>"), "not JSON: <html>, 8 times"),
        (changed(message={"content": None}), "without content, 8 times"),
        (status(400, {"error": {"message": "maximum context length is 1024 tokens"}}), "maximum context length"),
        (status(400, {"error": {"message": "max_tokens=5000 cannot be greater than max_model_len=1024"}}), "max_model"),
        (status(400, {"error": {"message": "features not supported by xgrammar"}}), "xgrammar"),
        (status(400, {"error": {"message": "Invalid schema for response_format 'reply'"}}), "Invalid schema"),
        (status(400, {"error": {"message": "'max_tokens' or 'max_completion_tokens' is too large"}}), "too large"),
        (status(413, b"too\nlarge"), "too large"),
        (status(422, {"detail": [{"loc": ["body"], "msg": "field required"}]}), "field required"),
        (changed(message={"content": None, "refusal": "I will not"}), "refuses: I will not"),
        (changed(finish_reason="content_filter", message={"content": ""}), "filter"),
    ],
)
def test_a_request_that_cannot_be_answered_fails_alone(fault: Fault, reason: str, tmp_path: Path) -> None:
    async def only_bad(exchange: Exchange) -> bool:
        return exchange.body["messages"][0]["content"] == "bad" and await fault(exchange)

    asked = [asking("a", schema=SCHEMA), asking("bad", schema=SCHEMA), asking("c", schema=SCHEMA)]
    with serving(always=only_bad) as server:
        outcomes, _, notes = complete(make_settings(tmp_path, server.url), asked)
    failure = outcomes.pop(1)
    assert isinstance(failure, Failure)
    assert reason in failure.reason
    assert outcomes == {0: Reply("a"), 2: Reply("c")}
    assert notes == []


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (status(401, {"error": "Unauthorized"}), "401: Unauthorized"),
        (status(403, b"Forbidden"), "403: Forbidden"),
        (status(404, {"error": {"message": "The model `m` does not exist."}}), "404: The model `m` does not exist."),
        (status(404, {"detail": "Not Found"}), "404: Not Found"),
        (status(405), "405: fault"),
        (status(301, b"", Location="/v2"), "301"),
        (status(429, {"error": {"message": "no money", "code": "insufficient_quota"}}), "429: no money"),
    ],
)
def test_a_fault_of_every_request_ends_the_run_at_once(fault: Fault, words: str, tmp_path: Path) -> None:
    with serving(always=fault) as server, pytest.raises(UserError) as error:
        complete(make_settings(tmp_path, server.url), [asking(str(i)) for i in range(100)])
    assert words in str(error.value)
    assert server.url in str(error.value)
    assert len(server.requests) <= FIRST_REQUESTS + 1, "one more tells whether a refused prompt is at fault"


def test_length_is_passed_on_also_with_content_that_is_cut_or_null(tmp_path: Path) -> None:
    faults = [changed(finish_reason="length", message={"content": '{"answer":[{"te'}),
              changed(finish_reason="length", message={"content": None})]  # fmt: skip
    with serving(faults=faults) as server:
        chosen = make_settings(tmp_path, server.url, concurrency=1)
        outcomes, _, _ = complete(chosen, [asking("a"), asking("b")])
        again, _, _ = complete(chosen, [asking("a"), asking("b")])
    assert outcomes == again == {0: Reply('{"answer":[{"te', "length"), 1: Reply("", "length")}


def test_replies_that_no_reader_can_use_are_repaired_once_and_then_failures(tmp_path: Path) -> None:
    def model(body: dict[str, Any]) -> str:
        said = body["messages"][0]["content"]
        mended = len(body["messages"]) > 1
        if said == "never":
            return "no"
        return f'Sure! {{"grade": {said}}}' if mended or int(said) % 2 else f'{{"grade": {said}, \x00'

    def read(reply: Reply) -> int:
        grade = read_json(reply)["grade"]
        assert isinstance(grade, int)
        return grade

    async def run(chosen: ModelSettings) -> list[int | Failure]:
        async with open_beside_cache(chosen) as model:
            return await ask_all(model, [(asking(said), read) for said in ("0", "1", "2", "never")])

    with serving(model=model) as server:
        found = [asyncio.run(run(make_settings(tmp_path, server.url))) for _ in range(2)]
    assert found == [[0, 1, 2, Failure("it holds no JSON")]] * 2
    assert len(server.requests) == 4 + 3


def test_the_body_of_a_request(tmp_path: Path) -> None:
    asked = [
        asking("a"),
        Request("grade", (("system", "s"), ("user", "u")), 7, SCHEMA, 0.5, 4),
    ]
    with serving() as server:
        complete(make_settings(tmp_path, server.url + "/", extra={"seed": 3, "temperature": 1}), asked)
    plain, full = sorted(server.requests, key=lambda body: len(body["messages"]))
    assert plain == {
        "model": "m", "messages": [{"role": "user", "content": "a"}], "max_tokens": 10, "temperature": 1, "seed": 3
    }  # fmt: skip
    wanted = {"type": "json_schema", "json_schema": {"name": "reply", "schema": SCHEMA, "strict": True}}
    assert (full["response_format"], full["logprobs"], full["top_logprobs"]) == (wanted, True, 4)
    assert full["messages"] == [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    assert server.keys == {f"Bearer {SECRET}"}


def test_further_fields_are_part_of_the_key_of_a_reply(tmp_path: Path) -> None:
    with serving() as server:
        for extra in ({}, {"seed": 1}, {"seed": 2}, {}, {"seed": 1}):
            complete(make_settings(tmp_path, server.url, extra=extra), [asking("a")])
    assert len(server.requests) == 3


def test_log_probabilities_are_read_and_kept(tmp_path: Path) -> None:
    odd = [{"token": 7, "logprob": -1}, {"token": None, "logprob": -1}]
    tokens = [
        {"top_logprobs": [{"token": "3", "logprob": -0.1}, *odd, {"token": "0", "logprob": -9999.0}]},
        {"top_logprobs": []},
    ]
    with serving(faults=[changed(logprobs={"content": tokens})]) as server:
        first, _, _ = complete(make_settings(tmp_path, server.url), [asking("3", top_logprobs=2)])
        second, _, _ = complete(make_settings(tmp_path, server.url), [asking("3", top_logprobs=2)])
    assert first == second == {0: Reply("3", "stop", ({"3": -0.1, "0": -9999.0}, {}))}
    for unasked in ({"content": None}, {"content": tokens}, [1]):
        with serving(faults=[changed(logprobs=unasked)]) as server:
            assert complete(make_settings(tmp_path, server.url), [asking(str(unasked))])[0] == {0: Reply(str(unasked))}
            assert len(server.requests) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("field", "said"),
    [
        ("response_format", {"error": {"message": "This response_format type is unavailable now"}}),
        ("response_format", {"detail": [{"loc": ["body", "response_format"], "msg": "extra fields not permitted"}]}),
        ("max_tokens", {"error": {"message": "Unsupported parameter: use 'max_completion_tokens' instead."}}),
        ("temperature", {"error": {"message": "Unsupported value: 'temperature' does not support 0 with this model."}}),
        ("top_logprobs", {"error": {"message": "You are not allowed to request logprobs from this model"}}),
    ],
)
def test_a_field_that_an_endpoint_does_not_take_is_left_out_from_then_on_and_noted_once(
    field: str, said: Any, tmp_path: Path
) -> None:
    async def refuse(exchange: Exchange) -> bool:
        return field in exchange.body and await status(400, said)(exchange)

    asked = [asking(str(i), schema=SCHEMA, top_logprobs=2) for i in range(100)]
    with serving(always=refuse, latency=0.002) as server, serving(latency=0.002) as other:
        outcomes, usage, notes = complete(make_settings(tmp_path, server.url, other.url), asked)
    assert outcomes == {i: Reply(str(i)) for i in range(100)}
    (note,) = (note for note in notes if "which were asked for" not in note)
    assert server.url in note
    assert len(server.answered) + len(other.answered) == 100
    assert 0 < sum(field in body for body in server.requests) <= FIRST_REQUESTS
    assert all(field in body for body in other.requests)
    assert usage["step"].retries == 0


def test_a_schema_that_an_endpoint_does_not_take_is_left_out_for_its_requests_alone(tmp_path: Path) -> None:
    strange = {"type": "object", "propertyNames": {}}
    said = "Invalid schema for response_format 'reply': 'propertyNames' is not permitted."

    async def refuse(exchange: Exchange) -> bool:
        wanted = exchange.body.get("response_format", {}).get("json_schema", {}).get("schema")
        return wanted == strange and await status(400, {"error": {"message": said}})(exchange)

    asked = [asking(str(i), schema=strange if i % 2 else SCHEMA) for i in range(20)]
    with serving(always=refuse) as server:
        outcomes, _, notes = complete(make_settings(tmp_path, server.url), asked)
    assert outcomes == {i: Reply(str(i)) for i in range(20)}
    assert sum("response_format" in body for body in server.answered) == 10
    assert notes == [f"{server.url}: m refuses the schema of step: asked without"]


@pytest.mark.parametrize(
    "said",
    ["The provided JSON schema contains features not supported by xgrammar.", "failed to parse grammar"],
)
@pytest.mark.parametrize("code", [400, 422, 500])
def test_a_schema_that_an_endpoint_cannot_compile_is_not_sent_to_it_again(said: str, code: int, tmp_path: Path) -> None:
    async def refuse(exchange: Exchange) -> bool:
        return "response_format" in exchange.body and await status(code, {"error": {"message": said}})(exchange)

    asked = [asking(str(i), schema=SCHEMA) for i in range(20)]
    with serving(always=refuse) as server:
        outcomes, _, notes = complete(make_settings(tmp_path, server.url, concurrency=1), asked)
    assert outcomes == {i: Reply(str(i)) for i in range(20)}
    assert len(server.requests) == 21
    assert notes == [f"{server.url}: m refuses the schema of step: asked without"]


@pytest.mark.parametrize(
    ("fault", "named", "calls"),
    [
        (
            changed(message={"content": [{"type": "image", "url": ""}]}),
            "content that is not text, but type image, url",
            2,
        ),
        (says({"candidates": []}), "without choices, but candidates", 2),
        (status(500, {"error": {"message": "input (931 tokens) is too large to process"}}), "too large to process", 1),
    ],
)
def test_what_will_not_change_is_not_asked_eight_times(fault: Fault, named: str, calls: int, tmp_path: Path) -> None:
    with serving(always=fault) as server:
        outcomes, _, notes = complete(make_settings(tmp_path, server.url), [asking("a")])
    failure = outcomes[0]
    assert isinstance(failure, Failure)
    assert named in failure.reason
    assert len(server.requests) == calls
    assert [named in note for note in notes] == [True] * (calls - 1)


def test_an_odd_end_is_noted_once_and_a_broken_one_is_asked_for_again(tmp_path: Path) -> None:
    odd, broken = changed(finish_reason="wings"), changed(finish_reason="error", error={"message": "gone"})
    with serving(faults=[odd, broken, odd]) as server:
        chosen = make_settings(tmp_path, server.url, concurrency=1)
        outcomes, _, notes = complete(chosen, [asking("a"), asking("b"), asking("c")])
    assert outcomes == {0: Reply("a"), 1: Reply("b"), 2: Reply("c")}
    assert len(server.requests) == 4
    assert notes == [f"{server.url}: m ends replies for an unknown reason (wings): they count as whole"]


def test_identical_requests_at_one_time_are_asked_once(tmp_path: Path) -> None:
    async def run() -> Any:
        async with open_beside_cache(make_settings(tmp_path, server.url)) as model:
            asked = [(asking("same", purpose=purpose), lambda reply: reply.text) for purpose in "aab"]
            found = await run_together([lambda: ask_all(model, asked)] * 3)
            return found, model.usage

    with serving(latency=0.02) as server:
        found, usage = asyncio.run(run())
    assert found == [["same"] * 3] * 3
    assert len(server.requests) == 1
    assert sum(each.calls for each in usage.values()) == 1
    assert sum(each.cache_hits for each in usage.values()) == 8


@pytest.mark.slow
def test_concurrency_grows_while_it_pays_within_its_bound(tmp_path: Path) -> None:
    with serving(latency=0.02) as server:
        complete(make_settings(tmp_path, server.url, concurrency=50), [asking(str(i)) for i in range(400)])
    assert 32 < server.most_at_once <= 50


@pytest.mark.slow
def test_requests_are_drawn_when_there_is_room(tmp_path: Path) -> None:
    drawn = 0

    def requests() -> Iterable[Request]:
        nonlocal drawn
        for number in range(2_000):
            drawn += 1
            yield asking(str(number))

    async def run() -> list[int]:
        nonlocal drawn
        drawn, ahead = 0, []
        async with open_beside_cache(make_settings(tmp_path, server.url, concurrency=20)) as model:
            done = 0
            async for _ in model.complete(requests()):
                done += 1
                ahead.append(drawn - done)
        return ahead

    with serving() as server:
        assert max(asyncio.run(run())) < 400
        assert max(asyncio.run(run())) < 400, "from the cache"
    assert len(server.requests) == 2_000


def test_an_error_of_a_caller_is_raised_to_that_caller_alone(tmp_path: Path) -> None:
    def broken() -> Iterable[Request]:
        yield asking("first")
        raise ZeroDivisionError

    async def run() -> None:
        async with open_beside_cache(make_settings(tmp_path, server.url)) as model:

            async def good() -> list[Reply | Failure]:
                return [outcome async for _, outcome in model.complete([asking("good")])]

            async def bad() -> list[Reply | Failure]:
                return [outcome async for _, outcome in model.complete(broken())]

            results = await asyncio.gather(good(), bad(), return_exceptions=True)
            assert results[0] == [Reply("good")]
            assert isinstance(results[1], ZeroDivisionError)
            assert await good() == [Reply("good")]

    with serving(latency=0.01) as server:
        asyncio.run(run())


@pytest.mark.slow
def test_an_endpoint_that_dies_is_left_alone_and_used_again_when_it_returns(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(latency=0.01) as one, serving(latency=0.01) as two:

        async def run() -> tuple[int, int]:
            async with open_beside_cache(make_settings(tmp_path, one.url, two.url, concurrency=8)) as model:
                seen = 0
                at_death = at_return = 0
                async for _ in model.complete(asking(str(i)) for i in range(600)):
                    seen += 1
                    if seen == 100:
                        await asyncio.to_thread(one.stop)
                        at_death = len(one.answered)
                    if seen == 300:
                        at_return = len(one.answered)
                        await asyncio.to_thread(one.start)
                assert seen == 600
                return at_death, at_return

        at_death, at_return = asyncio.run(run())
        assert 0 < at_death <= at_return < at_death + 10
        assert len(one.answered) > at_return + 20
        assert len(two.answered) > 300
        said = [body["messages"][0]["content"] for body in one.answered + two.answered]
        assert sorted(set(said), key=int) == [str(i) for i in range(600)]
    assert "cannot be reached" in caplog.text or "connection broke" in caplog.text


def test_a_server_that_starts_late_is_waited_for(tmp_path: Path) -> None:
    with serving() as server:
        server.stop()
        timer = threading.Timer(0.5, server.start)
        timer.start()
        outcomes, _, _ = complete(make_settings(tmp_path, server.url), [asking(str(i)) for i in range(50)])
        join(timer, "the server to start")
    assert outcomes == {i: Reply(str(i)) for i in range(50)}


@pytest.mark.parametrize(
    ("fault", "words"),
    [(None, "cannot be reached"), (status(503), "503"), (hangs_up, "connection broke"),
     (status(429, None, Retry_After="3600"), "429"),
     (status(429, None, Retry_After=format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)), "429")],
)  # fmt: skip
def test_waiting_for_silent_endpoints_has_an_end(
    fault: Fault | None, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "MOST_TRIES", 10**6)
    with serving(always=fault) as server:
        if fault is None:
            server.stop()
        chosen = make_settings(tmp_path, server.url, patience_seconds=0.3)
        start = time.monotonic()
        with pytest.raises(UserError, match=words) as error:
            complete(chosen, [asking(str(i)) for i in range(30)])
    assert time.monotonic() - start < LIMIT_S
    assert "no endpoint has answered for 0.3 s" in str(error.value)


def test_idle_time_is_no_part_of_the_waiting_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "MOST_TRIES", 1)

    async def run() -> list[list[Reply | Failure]]:
        async with open_beside_cache(make_settings(tmp_path, server.url, patience_seconds=0.5)) as model:
            found = []
            for said in "abc":
                found.append([outcome async for _, outcome in model.complete([asking(said)])])
                await asyncio.sleep(0.6)
            return found

    with serving(faults=[torn, torn]) as server:
        first, second, third = asyncio.run(run())
    assert all(isinstance(outcome, Failure) for outcome in first + second)
    assert third == [Reply("c")]


def test_the_waiting_time_begins_when_a_request_is_refused_not_when_it_is_sent(tmp_path: Path) -> None:
    async def slowly_busy(exchange: Exchange) -> bool:
        await asyncio.sleep(0.6)
        return await status(503)(exchange)

    with serving(faults=[slowly_busy]) as server:
        chosen = make_settings(tmp_path, server.url, patience_seconds=0.5)
        assert complete(chosen, [asking("a")])[0] == {0: Reply("a")}


def test_without_patience_no_request_is_sent_beside_those_that_are_answered(tmp_path: Path) -> None:
    with serving() as server:
        complete(make_settings(tmp_path, server.url, patience_seconds=0), [asking(str(i)) for i in range(9)])
    assert len(server.requests) == 9


@pytest.mark.slow
def test_requests_that_hang_fail_and_do_not_end_the_run(tmp_path: Path) -> None:
    async def stuck(exchange: Exchange) -> bool:
        return exchange.body["messages"][0]["content"] in ("2", "5") and await hang(exchange)

    with serving(always=stuck) as server:
        chosen = make_settings(tmp_path, server.url, call_seconds=3, patience_seconds=0.1)
        outcomes, _, _ = complete(chosen, [asking(str(i)) for i in range(9)])
    assert len(server.requests) == 7 + 2 * 3
    for number in (2, 5):
        failure = outcomes.pop(number)
        assert isinstance(failure, Failure)
        assert "no answer in time, 3 times" in failure.reason
    assert outcomes == {i: Reply(str(i)) for i in range(9) if i not in (2, 5)}


@pytest.mark.slow
def test_the_client_waits_for_a_server_that_is_down_behind_a_proxy(tmp_path: Path) -> None:
    with serving(faults=[hangs_up] * 60) as server:
        patient = make_settings(tmp_path, server.url, patience_seconds=120)
        outcomes, _, _ = complete(patient, [asking(str(i)) for i in range(3)])
    assert outcomes == {i: Reply(str(i)) for i in range(3)}


def test_errors_of_a_resting_endpoint_are_no_faults_of_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "MOST_TRIES", 1)
    monkeypatch.setattr(endpoint_pool, "choose_pause", lambda *_: 0.3)
    with serving(faults=[status(500)] * 16, latency=0.02) as server:
        outcomes, _, _ = complete(make_settings(tmp_path, server.url), [asking(str(i)) for i in range(16)])
    assert sum(isinstance(outcome, Failure) for outcome in outcomes.values()) == endpoint_pool.MOST_FAILURES


@pytest.mark.slow
def test_after_its_time_limit_a_run_ends_and_keeps_its_replies(tmp_path: Path) -> None:
    async def stuck(exchange: Exchange) -> bool:
        return int(exchange.body["messages"][0]["content"]) >= 10 and await hang(exchange)

    asked = [asking(str(i)) for i in range(20)]
    with serving(always=stuck) as server:
        with pytest.raises(UserError, match=r"limit of 5 s.*kept"):
            complete(make_settings(tmp_path, server.url, run_seconds=5), asked)
        server.always = None
        assert len(server.answered) == 10
        complete(make_settings(tmp_path, server.url), asked)
        assert len(server.answered) == 20


@pytest.mark.parametrize("fault", [repeats_key, status(400, {"error": SECRET}), says({"error": f"Bearer {SECRET}"})])
def test_the_key_is_shown_nowhere(fault: Fault, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    shown = ""
    with serving(always=fault) as server:
        try:
            shown = str(complete(make_settings(tmp_path, server.url), [asking("a")]))
        except UserError as error:
            shown = str(error)
        server.always = says({"choices": [{"message": {"content": f"it is {SECRET}"}, "finish_reason": "stop"}]})
        shown += str(complete(make_settings(tmp_path, server.url), [asking("b")]))
    assert server.keys == {f"Bearer {SECRET}"}
    assert "[key]" in shown
    kept = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert SECRET not in shown + caplog.text + repr(make_settings(tmp_path))
    assert SECRET.encode() not in kept


@pytest.mark.parametrize("character", ["\\/", "\\u002f", "\\u002F"])
def test_a_key_that_is_repeated_with_escapes_is_removed(character: str) -> None:
    said = remove_key(b'{"error": "%s?"}' % SECRET.replace("/", character).encode(), SECRET)
    assert json.loads(said) == {"error": "[key]?"}
    other = b'{"error":  "a\\n"} '
    assert remove_key(other, SECRET) == other


@pytest.mark.parametrize("word", ["ollama", "EMPTY", "none", "x", "1", "sk-1234", "lm-studio", "not-needed"])
def test_a_word_in_place_of_a_key_stays_in_replies(word: str) -> None:
    said = f'{{"text": "1 {word} or 2"}}'.encode()
    assert remove_key(said, word, spare_words=True) == said
    assert word.encode() not in remove_key(said, word).replace(b"[key]", b"")


def test_a_key_that_is_a_word_is_in_no_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "castorini")
    with serving(always=status(401, {"error": "invalid token castorini"})) as server:
        with pytest.raises(UserError, match=r"invalid token \[key\]"):
            complete(make_settings(tmp_path, server.url), [asking("a")])
        server.always = None
        assert complete(make_settings(tmp_path, server.url), [asking("castorini")])[0] == {0: Reply("castorini")}


@pytest.mark.parametrize(
    ("url", "guarded"),
    [("https://x/v1", True), ("http://x/v1", False), ("http://127.0.0.1:1/v1", True), ("http://127.9.9.9/v1", True),
     ("http://localhost:8000/v1", True), ("http://[::1]:1/v1", True), ("http://10.0.0.1/v1", False),
     ("http://localhost.x/v1", False), ("http://127.0.0.1.x/v1", False),
     ("http://localhost:80000/v1", False), ("http://[::1", False)],
)  # fmt: skip
def test_a_default_key_is_sent_only_over_guarded_connections(
    url: str, guarded: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert is_guarded(url) == guarded
    monkeypatch.setattr(api_keys, "is_guarded", lambda _: guarded)
    with serving() as server:
        _, _, notes = complete(make_settings(tmp_path, server.url), [asking("a")])
        assert server.keys == {f"Bearer {SECRET}" if guarded else None}
        assert len(notes) == (not guarded)
        server.keys.clear()
        assert complete(make_settings(tmp_path, server.url, key_env="OPENAI_API_KEY"), [asking("b")])[2] == []
        assert server.keys == {f"Bearer {SECRET}"}


def test_the_sources_of_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_key("OPENAI_API_KEY") == SECRET
    monkeypatch.delenv("OPENAI_API_KEY")
    assert read_key("OPENAI_API_KEY") is None
    monkeypatch.setenv("OTHER", " other\n")
    assert read_key("OTHER") == "other"
    file = tmp_path / "key"
    file.write_text("from-file\n")
    for mode in (0o600, 0o400):
        file.chmod(mode)
        assert read_key("OTHER", file) == "from-file"
    for mode in (0o644, 0o640, 0o666, 0o700):
        file.chmod(mode)
        with pytest.raises(UserError, match=f"mode {mode:o}, expected 600"):
            read_key("OTHER", file)
    file.chmod(0o600)
    for text in ("", "two words", "two\nlines", "schlüssel"):
        file.write_text(text)
        with pytest.raises(UserError, match="key") as error:
            read_key("OTHER", file)
        assert not text or text not in str(error.value)
    with pytest.raises(UserError, match="cannot be read"):
        read_key("OTHER", tmp_path / "none")


def test_a_refused_text_that_names_fields_changes_nothing_for_others(tmp_path: Path) -> None:
    async def refuse(exchange: Exchange) -> bool:
        said = exchange.body["messages"][0]["content"]
        return "response_format" in said and await status(400, {"detail": [{"input": said}]})(exchange)

    hostile = "response_format max_completion_tokens temperature is not supported"
    asked = [asking(text, schema=SCHEMA) for text in ("a", hostile, "b", "c")]
    with serving(always=refuse) as server:
        outcomes, _, notes = complete(make_settings(tmp_path, server.url, concurrency=1), asked)
    assert isinstance(outcomes.pop(1), Failure)
    assert outcomes == {0: Reply("a"), 2: Reply("b"), 3: Reply("c")}
    assert notes == []
    said = [body for body in server.requests if body["messages"][0]["content"] in "abc"]
    assert all({"response_format", "max_tokens", "temperature"} <= body.keys() for body in said)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "localhost:8000",
        "ftp://x/v1",
        "http://",
        "http://[",
        "http://user:xyzzy@x/v1",
        "user:xyzzy@x/v1",
        "http://user:xyzzy@[x",
        "http://user:x?xyzzy@x:y",
        "http://x/v1?key=xyzzy",
        "http://x/v1?",
        "http://x/v1#xyzzy",
        "ftp://x/?xyzzy",
    ],
)
def test_an_address_that_is_no_url_is_named(url: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="URL") as error:
        complete(make_settings(tmp_path, url), [asking("a")])
    assert "xyzzy" not in str(error.value) + str(error.value.__context__)
    with pytest.raises(UserError, match="URL"):
        complete(make_settings(tmp_path), [asking("a")])


@pytest.mark.slow
def test_many_faults_at_once_leave_nothing_unanswered_and_nothing_paid_twice(tmp_path: Path) -> None:
    faults = (torn, None, None, status(500), None, None, hangs_up, None, None, None, None, half, None, None,
              changed(finish_reason="abort"), None, None, status(503), None, None)  # fmt: skip
    asked = [asking(str(i)) for i in range(600)]
    with serving(always=in_turn(*faults), latency=0.002) as server:
        outcomes, usage, _ = complete(make_settings(tmp_path, server.url), asked)
    assert outcomes == {i: Reply(str(i)) for i in range(600)}
    assert len(server.answered) == 600 == usage["step"].calls
    assert usage["step"].retries == len(server.requests) - 600


PROGRAM = """
import asyncio, sys
from pathlib import Path
from keystone.generation.llm.client import open_model
from keystone.generation.llm.settings import ModelSettings
from keystone.generation.types import Request

async def main(url, cache, first, last):
    async with open_model(ModelSettings(name="m", urls=[url], concurrency=4), Path(cache).parent) as model:
        asked = (Request("step", (("user", str(i)),), 10) for i in range(int(first), int(last)))
        async for number, reply in model.complete(asked):
            print(reply.text, flush=True)

try:
    asyncio.run(main(*sys.argv[1:]))
except KeyboardInterrupt:
    sys.exit(130)
"""


def start(url: str, folder: Path, first: int, last: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM), url, str(folder / "c.sqlite"), str(first), str(last)]
    return programs.start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ))


def read_lines(process: subprocess.Popen[str], number: int) -> list[str]:
    assert process.stdout
    said = process.stdout
    return [within(said.readline, f"line {line} of {number} that are shown").strip() for line in range(number)]


@pytest.mark.slow
@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT])
def test_a_killed_run_loses_no_reply_that_it_has_shown(ending: signal.Signals, tmp_path: Path) -> None:
    async def no_more_than_100(exchange: Exchange) -> bool:
        if len(exchange.server.answered) >= 100:
            await asyncio.sleep(2 * LIMIT_S)
        return False

    # The second run asks a server of its own: the first one may still take a request that the killed run has sent.
    with serving(latency=0.02, always=no_more_than_100) as first, serving(latency=0.02) as second:
        process = start(first.url, tmp_path, 0, 240)
        shown = read_lines(process, 60)
        process.send_signal(ending)
        rest, errors = process.communicate(timeout=LIMIT_S)
        assert process.returncode == (130 if ending == signal.SIGINT else -ending)
        assert "Traceback" not in errors
        shown += rest.split()
        process = start(second.url, tmp_path, 0, 240)
        output, _ = process.communicate(timeout=LIMIT_S)
        assert process.returncode == 0
        assert sorted(output.split(), key=int) == [str(i) for i in range(240)]
        asked_again = {body["messages"][0]["content"] for body in second.requests}
        assert not asked_again & set(shown)
        assert len(asked_again) == len(second.requests) <= 240 - len(shown)


@pytest.mark.slow
def test_two_processes_share_their_replies(tmp_path: Path) -> None:
    with serving(latency=0.01) as server:
        both = [start(server.url, tmp_path, 0, 150), start(server.url, tmp_path, 100, 250)]
        outputs = [process.communicate(timeout=LIMIT_S) for process in both]
        assert [process.returncode for process in both] == [0, 0], outputs
        assert len(server.requests) <= 300
        server.requests.clear()
        output, _ = start(server.url, tmp_path, 0, 250).communicate(timeout=LIMIT_S)
        assert (len(output.split()), server.requests) == (250, [])


@pytest.mark.slow
def test_replies_do_not_depend_on_their_order(tmp_path: Path) -> None:
    async def shuffled(exchange: Exchange) -> bool:
        await asyncio.sleep(hash(exchange.body["messages"][0]["content"]) % 7 / 500)
        return False

    async def run(chosen: ModelSettings) -> list[Any]:
        async with open_beside_cache(chosen) as model:
            steps: list[Callable[[], Any]] = [
                lambda i=i: ask_all(model, [(asking(f"{i} {j}"), lambda reply: reply.text) for j in range(20)])  # type: ignore[misc]
                for i in range(10)
            ]
            return await run_together(steps)

    with serving(always=shuffled) as server:
        found = asyncio.run(run(make_settings(tmp_path, server.url)))
    assert found == [[f"{i} {j}" for j in range(20)] for i in range(10)]
    assert json.dumps(found)
