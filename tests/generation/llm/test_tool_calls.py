"""Tool calls: their bodies as tables, and an agent on servers that take them, refuse them and ignore them."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from keystone.generation.llm.chat import Dialect, find_room
from keystone.generation.llm.client import open_model
from keystone.generation.llm.dialects import read_call, write_tools, write_turns
from keystone.generation.llm.usage import find_most_usage
from keystone.generation.prompts.readers import AGENT, AGENT_FUNCTIONS, AGENT_JUDGE
from keystone.generation.types import EvidenceSet, Message, Request
from keystone.indexing.index import Index
from tests.generation.readers.agent.test_agent import (
    CASTLE,
    FROM_TORONTO,
    QUESTIONS,
    TEXTS,
    build,
    find_all,
    gather,
    judge,
)
from tests.support.models.client import make_settings
from tests.support.servers.chat import Exchange, Said, serving

SCHEMA = AGENT.schema or {}

REQUEST = Request("agent", (("user", "Why?"),), 100, SCHEMA, functions=AGENT_FUNCTIONS)
SEARCH = '{"notes":[],"tool":"search","text":"castle"}'


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        pytest.param(
            (("user", "Why?"), ("assistant", SEARCH), ("user", "Found.")),
            ["Why?", ("search", {"notes": [], "text": "castle"}), ("tool", "Found.")],
            id="a call and its result",
        ),
        pytest.param((("assistant", "no JSON"), ("user", "Again.")), ["no JSON", "Again."], id="no JSON"),
        pytest.param((("assistant", '{"tool": "fly"}'), ("user", "No.")), ['{"tool": "fly"}', "No."], id="unknown"),
        pytest.param((("assistant", '{"tool": []}'), ("user", "No.")), ['{"tool": []}', "No."], id="no name"),
        pytest.param((("user", SEARCH),), [SEARCH], id="a user's text is no call"),
    ],
)
def test_earlier_replies_are_shown_as_calls(messages: tuple[Message, ...], expected: list[Any]) -> None:
    shown = list[Any]()
    for one in write_turns(messages, AGENT_FUNCTIONS):
        if calls := one.get("tool_calls"):
            called = calls[0]["id"]
            shown.append((calls[0]["function"]["name"], json.loads(calls[0]["function"]["arguments"])))
        elif one["role"] == "tool":
            assert one["tool_call_id"] == called
            shown.append(("tool", one["content"]))
        else:
            shown.append(one["content"])
    assert shown == expected


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        ({"name": "search", "arguments": '{"text": "castle", "notes": []}'}, SEARCH),
        ({"name": "search", "arguments": {"text": "castle", "notes": []}}, SEARCH),
        ({"name": "done", "arguments": ""}, '{"tool":"done"}'),
        ({"name": "done", "arguments": '{"tool": "search", "made_up": 1}'}, '{"tool":"search"}'),
        ({"name": "search", "arguments": '{"text": "cas'}, '{"text": "cas'),
        ({"name": "search", "arguments": "[1]"}, "[1]"),
    ],
)
def test_a_call_is_read_as_the_json_of_the_reply(function: dict[str, Any], expected: str) -> None:
    message = {"role": "assistant", "content": None, "tool_calls": [{"id": "c", "function": function}]}
    body, called = read_call({"choices": [{"message": message}]}, REQUEST)
    assert called
    assert body["choices"][0]["message"] == {"role": "assistant", "content": expected}


@pytest.mark.parametrize("body", [None, [], {}, {"choices": []}, {"choices": [{"message": {"tool_calls": [{}]}}]}])
def test_a_body_without_a_call_stays_as_it_is(body: Any) -> None:
    assert read_call(body, REQUEST) == (body, False)


def test_each_function_has_a_description_and_members_of_the_schema() -> None:
    written = write_tools(REQUEST)
    assert {tool["function"]["name"] for tool in written["tools"]} == set(SCHEMA["properties"]["tool"]["enum"])
    for tool in written["tools"]:
        parameters = tool["function"]["parameters"]
        assert set(parameters["required"]) == set(parameters["properties"]) <= set(SCHEMA["properties"])
        assert "tool" not in parameters["properties"]
    plain = Request("agent", REQUEST.messages, 100, SCHEMA)
    assert write_tools(plain) == {}
    assert find_most_usage(REQUEST).prompt_tokens >= find_most_usage(plain).prompt_tokens + len(json.dumps(written)) / 2


def decide(messages: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Search for the castle first, then note what answers the question."""
    first = QUESTIONS[0] in str(messages[1]["content"]).partition("Your question:")[2].partition("\n")[0]
    if len(messages) == 2:
        return {"notes": [], "tool": "search", "text": "castle", "document": -1, "page": 1}
    quote, number = (FROM_TORONTO, 0) if first else (CASTLE, 1)
    notes = [{"document": number, "quote": quote, "claim": quote}]
    return {"notes": notes, "tool": "done", "text": "", "document": -1, "page": 1}


def dump(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


def speak(body: dict[str, Any]) -> Said:
    """Reply by a call where the body has tools, as the protocol says, else in JSON."""
    messages = body["messages"]
    if messages[0]["content"] == AGENT_JUDGE.system:
        return judge(("answered", [0]), ("answered", [1]))
    action = decide(messages)
    taken = AGENT_FUNCTIONS[action["tool"]][1]
    if "tools" not in body:
        return dump({key: value for key, value in action.items() if key == "tool" or key in taken})
    assert (body["tool_choice"], body["parallel_tool_calls"]) == ("required", False)
    assert "response_format" not in body
    for before, after in pairwise(messages):
        if after["role"] == "tool":
            assert after["tool_call_id"] == before["tool_calls"][0]["id"]
        assert ("tool_calls" in before) == (after["role"] == "tool")
    arguments = dump({key: action[key] for key in SCHEMA["properties"] if key in taken})
    call = {"id": "c1", "type": "function", "function": {"name": action["tool"], "arguments": arguments}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    return {"message": message, "finish_reason": "tool_calls"}


async def refuse_tools(exchange: Exchange) -> bool:
    if "tools" in exchange.body:
        exchange.reply({"error": {"message": "Invalid grammar specification: 'triggers'"}}, 400)
        return True
    return False


async def refuse_long_prompts(exchange: Exchange) -> bool:
    if "tools" in exchange.body:
        exchange.reply({"error": {"message": "maximum context length is 300 tokens"}}, 400)
        return True
    return False


def ignore_tools(body: dict[str, Any]) -> Said:
    return speak({key: value for key, value in body.items() if key not in ("tools", "tool_choice")})


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Index:
    return build(tmp_path_factory.mktemp("calls"), TEXTS)


def research_on(index: Index, folder: Path, **server: Any) -> tuple[EvidenceSet, list[str], int]:
    """Research on a server of its own; returns the evidence, the notes, and the number of requests with tools."""

    async def run(url: str) -> tuple[EvidenceSet, list[str]]:
        folder.mkdir()
        async with open_model(make_settings(folder, url), folder) as model:
            found = await gather(index, model, find_all, rounds=1)
            return found, list(model.notes)

    with serving(**server) as one:
        found, notes = asyncio.run(run(one.url))
        return found, notes, sum("tools" in body for body in one.answered)


def test_tools_count_among_the_tokens_of_a_prompt() -> None:
    asked, said = replace(REQUEST, max_tokens=8192), "maximum context length is 8192 tokens"
    with_tools, without = (find_room(asked, said, Dialect(tools=tools), again=False) for tools in (True, False))
    assert with_tools
    assert without
    assert without[0] - with_tools[0] > len(json.dumps(write_tools(REQUEST))) / 5


def test_a_prompt_that_is_too_long_says_nothing_of_tools(index: Index, tmp_path: Path) -> None:
    _, notes, _ = research_on(index, tmp_path / "long", model=speak, always=refuse_long_prompts)
    assert notes == []


def test_calls_and_json_give_the_same_trace(index: Index, tmp_path: Path) -> None:
    called, notes, with_tools = research_on(index, tmp_path / "called", model=speak)
    assert (notes, with_tools) == ([], 4)
    assert [item.span.doc_id for item in called.items] == ["band", "castle"]
    refused, notes, with_tools = research_on(index, tmp_path / "refused", model=speak, always=refuse_tools)
    assert (len(notes), with_tools) == (1, 0)
    assert "takes no tool calls: asked for JSON" in notes[0]
    ignored, notes, with_tools = research_on(index, tmp_path / "ignored", model=ignore_tools)
    assert with_tools <= 2, "both first requests are on their way before the first reply"
    assert "makes no tool calls: asked for JSON" in notes[0]
    assert called == refused == ignored
