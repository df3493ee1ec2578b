"""Bodies of chat completions in other forms: tool calls, and OpenAI's Responses API. All functions are pure.

A request with `functions` describes its reply by one schema, whose member `tool` names a function. Where a server takes
tool calls, each function is a tool of its own, and the model must call one. The call then becomes the JSON that the
schema describes. So a step reads the same reply either way, and earlier steps are shown in the form that the server
knows.

Bodies for the Responses API are made of those of chat completions, and its replies become theirs. So refusals, tool
calls, log-probabilities and bounds of replies are handled in one place. The API takes no seed. It keeps requests unless
they say that it must not.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from keystone.generation.types import Message, Request

NAME = "tool"
"""The member of a reply that names its function."""


def write_tools(request: Request) -> dict[str, Any]:
    """Write the fields of a body that let the model call exactly one of the functions, if there are any."""
    if not request.functions or request.schema is None:
        return {}
    properties: Mapping[str, Any] = request.schema["properties"]
    tools = []
    for name, (description, members) in request.functions.items():
        taken = {member: properties[member] for member in properties if member in members}
        parameters = {
            "type": "object", "properties": taken, "required": list(taken), "additionalProperties": False,
        }  # fmt: skip
        function = {"name": name, "description": description, "parameters": parameters, "strict": True}
        tools.append({"type": "function", "function": function})
    return {"tools": tools, "tool_choice": "required", "parallel_tool_calls": False}


def write_turns(messages: Sequence[Message], functions: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Write messages, with each reply that named a function as its call, and the text after it as the call's result."""
    written, called = list[dict[str, Any]](), ""
    for number, (role, text) in enumerate(messages):
        call = (_parse(text) if role == "assistant" else None) or {}
        if role == "user" and called:
            written.append({"role": "tool", "tool_call_id": called, "content": text})
            called = ""
        elif (name := str(call.get(NAME))) in functions:
            called = f"call_{number}"
            arguments = {key: value for key, value in call.items() if key in functions[name][1]}
            function = {"name": name, "arguments": orjson.dumps(arguments).decode()}
            made = {"id": called, "type": "function", "function": function}
            written.append({"role": "assistant", "content": None, "tool_calls": [made]})
        else:
            written.append({"role": role, "content": text})
    return written


def read_call(body: Any, request: Request) -> tuple[Any, bool]:
    """Put the JSON of a tool call in the place of the content; returns the body, and whether there was a call.

    If there are several calls, the first one counts. Arguments that are not a JSON object stay as they are, so that the
    step refuses them with its reason.
    """
    try:
        choice = body["choices"][0]
        message = choice["message"]
        function = message["tool_calls"][0]["function"]
        name, arguments = function["name"], function.get("arguments") or "{}"
    except (KeyError, IndexError, TypeError):
        return body, False
    given = arguments if isinstance(arguments, dict) else _parse(arguments)
    content = str(arguments)
    if given is not None:
        known = {NAME: name, **given}
        order = request.schema["properties"] if request.schema else known
        content = orjson.dumps({key: known[key] for key in order if key in known}).decode()
    kept = {key: value for key, value in message.items() if key != "tool_calls"} | {"content": content}
    return {**body, "choices": [{**choice, "message": kept}]}, True


def _parse(text: Any) -> dict[str, Any] | None:
    try:
        found = orjson.loads(text)
    except (orjson.JSONDecodeError, TypeError):
        return None
    return found if isinstance(found, dict) else None


LEAST_OUTPUT_TOKENS = 16
"""The API refuses a lower limit."""
_SAME = ("model", "temperature", "tool_choice", "parallel_tool_calls", "top_logprobs")
_TRANSLATED = (
    *_SAME, "messages", "max_tokens", "max_completion_tokens", "response_format", "tools", "logprobs", "seed",
    "reasoning_effort",
)  # fmt: skip


def to_responses(body: Mapping[str, Any]) -> dict[str, Any]:
    """Turn the body of a chat completions request into one of the Responses API. Unknown fields stay as they are."""
    tokens = body.get("max_completion_tokens") or body.get("max_tokens")
    made: dict[str, Any] = {name: body[name] for name in _SAME if name in body}
    made |= {"input": [item for turn in body["messages"] for item in _write_items(turn)], "store": False}
    if tokens:
        made["max_output_tokens"] = max(tokens, LEAST_OUTPUT_TOKENS)
    if body.get("logprobs"):
        made["include"] = ["message.output_text.logprobs"]
    if wanted := body.get("response_format"):
        made["text"] = {"format": {"type": wanted["type"], **wanted.get("json_schema", {})}}
    if tools := body.get("tools"):
        made["tools"] = [{"type": "function", **tool["function"]} for tool in tools]
    if effort := body.get("reasoning_effort"):
        made["reasoning"] = {"effort": effort}
    return made | {name: value for name, value in body.items() if name not in _TRANSLATED}


def _write_items(turn: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    if turn["role"] == "tool":
        yield {"type": "function_call_output", "call_id": turn["tool_call_id"], "output": turn["content"]}
    for call in turn.get("tool_calls", ()):
        yield {"type": "function_call", "call_id": call["id"], **call["function"]}
    if turn["role"] != "tool" and turn["content"] is not None:
        yield {"role": turn["role"], "content": turn["content"]}


def from_responses(body: Any) -> Any:
    """Turn a reply of the Responses API into one of chat completions. A body without its members stays as it is."""
    if not isinstance(body, dict) or not isinstance(output := body.get("output"), list):
        return body
    items = [item for item in output if isinstance(item, dict)]
    contents = [item.get("content") for item in items if item.get("type") == "message"]
    parts = [part for content in contents if isinstance(content, list) for part in content]
    message: dict[str, Any] = {"content": parts or None}
    if calls := [item for item in items if item.get("type") == "function_call"]:
        message["tool_calls"] = [{"type": "function", "function": call} for call in calls]
    if thoughts := [item for item in items if item.get("type") == "reasoning"]:
        message["reasoning"] = thoughts
    choice = {"message": message, "finish_reason": _read_end(body), "error": body.get("error")}
    logprobs = [part.get("logprobs") for part in parts if isinstance(part, dict)]
    if tokens := [token for listed in logprobs if isinstance(listed, list) for token in listed]:
        choice["logprobs"] = {"content": tokens}
    return {"choices": [choice], "usage": _read_usage(body.get("usage"))}


def _read_end(body: Mapping[str, Any]) -> Any:
    """Read why a reply ended: the reason that it is incomplete, or else its status."""
    details = body.get("incomplete_details")
    reason = details.get("reason") if isinstance(details, dict) else None
    return reason or body.get("status")


def _read_usage(usage: Any) -> dict[str, Any]:
    found = usage if isinstance(usage, dict) else {}
    return {
        "prompt_tokens": found.get("input_tokens"),
        "prompt_tokens_details": found.get("input_tokens_details"),
        "completion_tokens": found.get("output_tokens"),
    }
