"""The dialect of OpenAI's Responses API: bodies of chat completions become its own, and its replies become theirs.

So refusals, tool calls, log-probabilities and bounds of replies are handled at one place, in the form of chat
completions. The API takes no seed. It keeps requests unless they say that it must not. All functions are pure.
"""

from collections.abc import Iterator, Mapping
from typing import Any

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
