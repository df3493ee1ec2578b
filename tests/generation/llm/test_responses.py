"""OpenAI's Responses API: bodies and replies as OpenAI's own package types them, and hosts that ask for it."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from pydantic import TypeAdapter

from keystone.generation.llm.chat import Dialect, PaidReply, ReplyBound, read_reply, write_body
from keystone.generation.llm.dialects import from_responses, read_call, to_responses
from keystone.generation.llm.endpoints import Endpoints
from keystone.generation.llm.settings import ModelSettings
from keystone.generation.prompts.readers import AGENT, AGENT_FUNCTIONS
from keystone.generation.types import Failure, Reply, Request, Usage
from keystone.indexing.errors import UnknownForm, UserError, WrongReply
from tests.support.servers.chat import Exchange, Server, serving

responses = pytest.importorskip("openai.types.responses")

PLAIN = Request("step", (("system", "Be brief."), ("user", "Where do bees live?")), 64)
GRADED = replace(PLAIN, max_tokens=4, schema={"type": "object"}, top_logprobs=3, seed=7)
SEARCH = '{"notes":[],"tool":"search","text":"castle"}'
TURNS = (("user", "Why?"), ("assistant", SEARCH), ("user", "Found."))
CALLING = Request("agent", TURNS, 100, AGENT.schema, functions=AGENT_FUNCTIONS)
USAGE = Usage(1, 10, 4, 3)


def body_of(request: Request, **extra: Any) -> dict[str, Any]:
    return to_responses(write_body("m", request, extra, Dialect(tools=True)))


@pytest.mark.parametrize("request_", [PLAIN, GRADED, CALLING])
def test_a_body_is_one_that_openais_package_knows(request_: Request) -> None:
    kind = responses.response_create_params.ResponseCreateParamsNonStreaming
    body = body_of(request_, reasoning_effort="low")
    TypeAdapter(kind).validate_python(body)
    assert body.keys() <= kind.__annotations__.keys()
    assert body["store"] is False
    assert body["reasoning"] == {"effort": "low"}


def test_a_body_says_all_that_a_chat_completion_says() -> None:
    body = body_of(GRADED)
    assert body["input"] == [{"role": role, "content": text} for role, text in GRADED.messages]
    assert body["text"] == {"format": {"type": "json_schema", "name": "reply", "schema": GRADED.schema, "strict": True}}
    assert (body["max_output_tokens"], body["top_logprobs"]) == (16, 3)
    assert body["include"] == ["message.output_text.logprobs"]
    assert "seed" not in body


def test_earlier_calls_and_tools_are_items_of_their_own() -> None:
    body = body_of(CALLING)
    asked, call, result = body["input"]
    assert asked == {"role": "user", "content": "Why?"}
    assert (call["type"], call["name"], call["arguments"]) == (
        "function_call",
        "search",
        '{"notes":[],"text":"castle"}',
    )
    assert result == {"type": "function_call_output", "call_id": call["call_id"], "output": "Found."}
    assert {tool["name"] for tool in body["tools"]} == AGENT_FUNCTIONS.keys()


def said(*content: dict[str, Any], status: str = "completed", **more: Any) -> dict[str, Any]:
    usage = {"input_tokens": 10, "input_tokens_details": {"cached_tokens": 4}, "output_tokens": 3}
    message = {"type": "message", "role": "assistant", "content": list(content)}
    return {"object": "response", "status": status, "output": [{"type": "reasoning"}, message], "usage": usage, **more}


BEES = {"type": "output_text", "text": "Bees"}
CUT: dict[str, Any] = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
HELD: dict[str, Any] = {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        pytest.param(said(BEES), Reply("Bees"), id="a text"),
        pytest.param(said(BEES, {"type": "output_text", "text": " see"}), Reply("Bees see"), id="in parts"),
        pytest.param(said(BEES, **CUT), Reply("Bees", "length"), id="cut"),
        pytest.param(said(**CUT) | {"output": [{"type": "reasoning"}]}, Reply("", "length"), id="cut in thoughts"),
        pytest.param(said(BEES, **HELD), Failure("a filter holds the reply back"), id="held back"),
        pytest.param(
            said({"type": "refusal", "refusal": "I will not"}), Failure("the model refuses: I will not"), id="a refusal"
        ),
    ],
)
def test_a_reply_is_read(body: dict[str, Any], expected: Reply | Failure) -> None:
    assert read_reply(from_responses(body), ReplyBound(None)) == PaidReply(expected, USAGE)


@pytest.mark.parametrize(
    ("body", "error", "words"),
    [
        (said(status="failed", error={"code": "server_error", "message": "wings"}), WrongReply, "broke off: wings"),
        (said(BEES, status="cancelled"), WrongReply, "broke off"),
        (said() | {"output": []}, WrongReply, "without content"),
        ({"output": [5, {"type": "message", "content": 5}], "status": "completed"}, WrongReply, "without content"),
        ({"answers": []}, UnknownForm, "without choices, but answers"),
        ({"output": "Bees"}, UnknownForm, "without choices, but output"),
        (["Bees"], WrongReply, "an error"),
        (said({"type": "image"}), UnknownForm, "content that is not text"),
    ],
)
def test_a_reply_that_is_none_is_named(body: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        read_reply(from_responses(body), ReplyBound(None, 4))


def test_log_probabilities_come_with_their_texts() -> None:
    token = {"token": "Bees", "logprob": -0.1, "bytes": list(b"Bees"), "top_logprobs": []}
    token["top_logprobs"] = [{"token": "Bees", "logprob": -0.1}, {"token": "Wasps", "logprob": -3.0}]
    found = read_reply(from_responses(said(BEES | {"logprobs": [token]})), ReplyBound(None, 2)).outcome
    assert found == Reply("Bees", "stop", ({"Wasps": -3.0, "Bees": -0.1},), (0,))


def test_a_call_of_a_tool_becomes_the_json_of_its_schema() -> None:
    call = {"type": "function_call", "call_id": "c1", "name": "search", "arguments": '{"notes":[],"text":"castle"}'}
    body, called = read_call(from_responses(said() | {"output": [call]}), CALLING)
    assert called
    assert read_reply(body, ReplyBound(None)).outcome == Reply(SEARCH)


def ask(server: Server, path: str, *requests: Request) -> tuple[list[PaidReply], list[str]]:
    async def all_of_them() -> tuple[list[PaidReply], list[str]]:
        backend = Endpoints(ModelSettings(name="m", urls=[server.url + path]))
        try:
            return [await backend.answer(one) for one in requests], backend.notes
        finally:
            await backend.close()

    return asyncio.run(all_of_them())


async def answer_responses_alone(exchange: Exchange) -> bool:
    if exchange.path == "/v1/responses":
        exchange.reply(exchange.response())
    else:
        message = "This model is only supported in v1/responses and not in v1/chat/completions."
        exchange.reply({"error": {"message": message, "type": "invalid_request_error", "param": "model"}}, 404)
    return True


@pytest.mark.parametrize("path", ["", "/responses", "/responses/"])
def test_a_model_of_this_api_alone_is_asked_by_it(path: str) -> None:
    with serving(model=lambda body: body["input"][-1]["content"], always=answer_responses_alone) as server:
        answered, notes = ask(server, path, PLAIN, replace(PLAIN, messages=(("user", "Again?"),)))
    assert [one.outcome for one in answered] == [Reply("Where do bees live?"), Reply("Again?")]
    assert answered[0].usage.cached_tokens == 4
    assert ["messages" in body for body in server.requests] == ([False, False] if path else [True, False, False])
    assert bool(notes) == (not path)
    responses.Response.model_validate(server_reply(server))


def server_reply(server: Server) -> dict[str, Any]:
    """The stand-in's own reply, in OpenAI's form."""
    return Exchange(server, None, "", server.requests[-1], {}).response()  # type: ignore[arg-type]


def test_a_host_without_the_api_is_named_by_its_refusal() -> None:
    async def refuse(exchange: Exchange) -> bool:
        exchange.reply({"error": {"message": f"no path {exchange.path}; see v1/responses"}}, 404)
        return True

    with serving(always=refuse) as server, pytest.raises(UserError, match="no path /v1/responses"):
        ask(server, "", PLAIN)
    assert len(server.requests) == 2
