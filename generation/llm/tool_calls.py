"""Tool calls of OpenAI's chat completions protocol, for requests whose replies name a function in JSON.

A request with `functions` describes its reply by one schema, whose member `tool` names a function. Where a server takes
tool calls, each function is a tool of its own, and the model must call one. The call then becomes the JSON that the
schema describes. So a step reads the same reply either way, and earlier steps are shown in the form that the server
knows. All functions are pure.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from keystone.generation.types import Message, Request

NAME = "tool"
"""The member of a reply that names its function."""


def write_tools(request: Request) -> dict[str, Any]:
    """Write the fields of a body that let the model call exactly one of the functions. Empty without functions."""
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

    Of several calls the first one counts. Arguments that are no JSON object stay as they are, so that the step refuses
    them with its reason.
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
    """Parse a JSON object; None for anything else."""
    try:
        found = orjson.loads(text)
    except (orjson.JSONDecodeError, TypeError):
        return None
    return found if isinstance(found, dict) else None
