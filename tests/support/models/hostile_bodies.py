"""The bodies of hostile replies to a chat request that asks for 64 tokens and their log-probabilities."""

import json
from typing import Any, Literal, NamedTuple

ESCAPES = "\x1b[2J\x1b]0;owned\x07\x08\x9b31m\u202e"
Fate = Literal["reply", "failure", "again"]
"""How a client takes a hostile reply: as a reply, as a failure that asking again would not mend, or as none."""


def body(content: Any = "a reply", finish: Any = "stop", usage: Any = None, **choice: Any) -> dict[str, Any]:
    """The body of a chat completion."""
    return {"choices": [{"message": {"content": content}, "finish_reason": finish, **choice}], "usage": usage}


def nest(depth: int) -> Any:
    return json.loads("[" * depth + "]" * depth)


def tokens(logprob: Any) -> dict[str, Any]:
    return {"content": [{"token": "h", "logprob": logprob, "top_logprobs": [{"token": "h", "logprob": logprob}]}]}


def count(tokens: Any) -> dict[str, Any]:
    cached = {"cached_tokens": tokens}
    return {"prompt_tokens": tokens, "completion_tokens": tokens, "prompt_tokens_details": cached}


class HostileBody(NamedTuple):
    """The body of a reply with status 200, and its fate."""

    body: Any
    fate: Fate


HOSTILE_BODIES: dict[str, HostileBody] = {
    "null": HostileBody(None, "again"),
    "a list": HostileBody([1], "again"),
    "an error": HostileBody({"error": {"message": ESCAPES}}, "again"),
    "an error nested 240 deep": HostileBody({"error": nest(240)}, "again"),
    "no choice": HostileBody({"choices": []}, "again"),
    "choices that are an object": HostileBody({"choices": {"a": 1}}, "again"),
    "choices nested 200 deep": HostileBody({"choices": nest(200)}, "again"),
    "another service's form": HostileBody({"candidates": [{ESCAPES: 1}]}, "again"),
    "no message": HostileBody({"choices": [{}]}, "again"),
    "a message that is a text": HostileBody({"choices": [{"message": "hello"}]}, "again"),
    "no content": HostileBody(body(None), "again"),
    "content that is a number": HostileBody(body(7), "again"),
    "content of numbers": HostileBody(body([1]), "again"),
    "an image": HostileBody(body([{"type": "image", "url": ESCAPES}]), "again"),
    "a refusal": HostileBody(body([{"type": "refusal", "refusal": ESCAPES}]), "failure"),
    "a filter": HostileBody(body("", "content_filter"), "failure"),
    "broken off": HostileBody(body("par", "abort"), "again"),
    "an error in the choice": HostileBody(body("par", error={"message": ESCAPES}), "again"),
    "an unknown end": HostileBody(body(finish=ESCAPES), "reply"),
    "an end that is an object": HostileBody(body(finish={"a": [1]}), "reply"),
    "control bytes": HostileBody(body(ESCAPES), "reply"),
    "half a character": HostileBody(body("a \ud800 b"), "again"),
    "a text nested 300 deep": HostileBody(body("[" * 300 + "]" * 300), "reply"),
    "a flood of braces": HostileBody(body("{ {" * 4_000), "reply"),
    "a flood of fences": HostileBody(body("```a\n" * 2_000), "reply"),
    "a text beyond what was asked for": HostileBody(body("x" * 2**20), "again"),
    "a text at the limit of its tokens": HostileBody(body("", "length"), "reply"),
    "log-probabilities that are words": HostileBody(body(logprobs=tokens("many")), "reply"),
    "log-probabilities that are no numbers": HostileBody(body(logprobs=tokens("nan")), "reply"),
    "log-probabilities that are endless": HostileBody(body(logprobs=tokens("-inf")), "reply"),
    "log-probabilities of another form": HostileBody(body(logprobs={"tokens": [ESCAPES]}), "reply"),
    "usage near 2^64": HostileBody(body(usage=count(2**64 - 1)), "reply"),
    "usage below nothing": HostileBody(body(usage=count(-(2**63))), "reply"),
    "usage in words": HostileBody(body(usage=count(ESCAPES)), "reply"),
    "usage that is a list": HostileBody(body(usage=[1]), "reply"),
}  # fmt: skip
"""Bodies of replies that a malicious or badly broken server gives, for every client."""
