"""Requests and replies of OpenAI's chat completions protocol, for endpoints, batch files and vLLM alike.

All functions are pure.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import orjson

from keystone.generation.types import Failure, Reply, Request, Usage
from keystone.indexing.errors import WrongReply
from keystone.indexing.io.error_text import describe_error

REPLY_LIMIT_BYTES = 2**24
"""The most bytes of a reply's body, compressed and decompressed, and of a line in a file of replies."""
LONGEST_TOKEN_CHARACTERS = 128
"""The most characters of a token; tokens of blanks are the longest."""
SPARE_CHARACTERS = 4_096
"""The characters that any reply may have beyond those of its tokens."""
LOGPROB_CHARACTERS = 24
"""The characters that a kept log-probability takes besides its token."""
MOST_TOKENS = 10**9
"""The most tokens of one call. A larger number cannot be a count."""


@dataclass(frozen=True, slots=True)
class PaidReply:
    """A reply to a request, or its failure, and its cost."""

    outcome: Reply | Failure
    usage: Usage = field(default_factory=Usage)


class Backend(Protocol):
    """A service that answers single requests, at most `at_once` of them at one time, with notes for the user.

    `answer` raises `UserError` if no request can be answered any more. If only this request cannot be answered, the
    outcome is a `Failure`.
    """

    at_once: int
    notes: list[str]

    async def answer(self, request: Request) -> PaidReply:
        """Ask until a reply comes, or until none can come."""
        ...

    async def close(self) -> None:
        """Close all connections; called once."""
        ...


class ReplyBound(NamedTuple):
    """The most that a reply may hold: tokens (None: any number), and alternatives of each token."""

    tokens: int | None
    alternatives: int = 0


@dataclass(frozen=True, slots=True)
class Dialect:
    """The parts of a request's body that an endpoint takes."""

    schemas: bool = True
    temperature: bool = True
    logprobs: bool = True
    limit: str = "max_tokens"


def combine_dialects(one: Dialect, other: Dialect) -> Dialect:
    """Combine two dialects to the parts that both take."""
    limit = one.limit if other.limit == "max_tokens" else other.limit
    return Dialect(
        one.schemas and other.schemas, one.temperature and other.temperature, one.logprobs and other.logprobs, limit
    )


def make_keyed_name(model: str, extra: Mapping[str, Any]) -> str:
    """Make the name in the keys of a model's replies: its own, then the further fields of requests, if any."""
    return f"{model} {orjson.dumps(dict(extra), option=orjson.OPT_SORT_KEYS).decode()}" if extra else model


def write_body(
    model: str, request: Request, extra: Mapping[str, Any] | None = None, dialect: Dialect = Dialect()
) -> dict[str, Any]:
    """Write the body of a chat completions request. `extra` holds further fields."""
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": role, "content": content} for role, content in request.messages],
        dialect.limit: request.max_tokens,
    }
    if dialect.temperature:
        body["temperature"] = request.temperature
    if request.schema is not None and dialect.schemas:
        wanted = {"name": "reply", "schema": request.schema, "strict": True}
        body["response_format"] = {"type": "json_schema", "json_schema": wanted}
    if request.top_logprobs and dialect.logprobs:
        body |= {"logprobs": True, "top_logprobs": request.top_logprobs}
    if request.seed is not None:
        body["seed"] = request.seed
    return body | dict(extra or {})


def read_bound(body: Mapping[str, Any]) -> ReplyBound:
    """Read the bound that the body of a request sets for its reply."""
    tokens = body.get("max_completion_tokens") or body.get("max_tokens")
    alternatives = body.get("top_logprobs") if body.get("logprobs") else 0
    return ReplyBound(tokens if isinstance(tokens, int) else None, alternatives if isinstance(alternatives, int) else 0)


def find_other_dialect(dialect: Dialect, message: str) -> tuple[Dialect, str] | None:
    """Find the dialect to use after an endpoint refused a request in these words, and a note; None if there is none.

    If an endpoint finds max_tokens too large, it refuses the request, not the field. The same holds if it takes
    schemas but not this one: see `refuses_schema`.
    """
    if refuses_schema(message):
        return None
    message = message.lower()
    if dialect.schemas and "response_format" in message:
        return replace(dialect, schemas=False), "takes no JSON schemas: replies are asked for without"
    if dialect.limit == "max_tokens" and "max_completion_tokens" in message and "too large" not in message:
        return replace(dialect, limit="max_completion_tokens"), "takes max_completion_tokens in place of max_tokens"
    if dialect.temperature and "temperature" in message and "support" in message:
        return replace(dialect, temperature=False), "takes no temperature: its default is used"
    if dialect.logprobs and "logprobs" in message:
        return replace(dialect, logprobs=False), "gives no log-probabilities: replies are asked for without"
    return None


def refuses_schema(message: str) -> bool:
    """Return whether an endpoint that takes schemas refuses, in these words, the schema of one request."""
    message = message.lower()
    return "invalid schema" in message and "response_format" in message


def read_reply(body: Any, bound: ReplyBound) -> PaidReply:
    """Read the reply in a body with status 200, with log-probabilities if the bound has alternatives.

    `WrongReply` if the body holds no reply, or far more than the bound allows.

    `finish` is `length` if the server says so, else `stop`. A server also says `length` if it silently lowers
    `max_tokens` to its window. If the model refuses, or a filter holds the reply back, the outcome is a `Failure`,
    because asking again does not help.
    """
    if not isinstance(body, dict) or body.get("error"):
        raise WrongReply(f"an answer that is an error: {describe_error(body)}")
    try:
        choice = body["choices"][0]
        message, finish = choice["message"], choice.get("finish_reason")
        text, refusal = message.get("content"), message.get("refusal")
    except (KeyError, IndexError, TypeError, AttributeError):
        raise WrongReply(f"an answer without choices: {describe_error(body)}") from None
    if finish == "abort":
        raise WrongReply("an answer that its server broke off")
    usage = _read_usage(body.get("usage"))
    if refusal:
        return PaidReply(Failure(f"the model refuses: {describe_error(refusal)}"), usage)
    if finish == "content_filter":
        return PaidReply(Failure("a filter holds the reply back"), usage)
    if text is None and finish == "length":
        text = ""
    if not isinstance(text, str):
        raise WrongReply("an answer without content")
    tokens = _read_logprobs(choice["logprobs"]) if bound.alternatives and choice.get("logprobs") else ()
    if bound.tokens is not None:
        room = SPARE_CHARACTERS + LONGEST_TOKEN_CHARACTERS * bound.tokens
        size = LOGPROB_CHARACTERS
        listed = sum(size + sum(size + len(token) for token in alternatives) for alternatives in tokens)
        if len(text) > room or listed > room * (1 + bound.alternatives):
            raise WrongReply(f"an answer of {len(text):,} characters, where {bound.tokens:,} tokens were asked for")
    return PaidReply(Reply(text, "length" if finish == "length" else "stop", tokens), usage)


def _read_usage(found: Any) -> Usage:
    def get_number(place: Any, name: str) -> Any:
        return place.get(name) if isinstance(place, dict) else None

    cached = get_number(get_number(found, "prompt_tokens_details"), "cached_tokens")
    return count_usage(get_number(found, "prompt_tokens"), cached, get_number(found, "completion_tokens"))


def count_usage(prompt: Any, cached: Any, completion: Any) -> Usage:
    """Count the usage of one call with these tokens. A value that is no number from 0 to `MOST_TOKENS` counts as 0."""
    found = (prompt, cached, completion)
    return Usage(1, *(n if type(n) is int and 0 <= n <= MOST_TOKENS else 0 for n in found))


def _read_logprobs(found: Any) -> tuple[Mapping[str, float], ...]:
    try:
        tokens = [
            [(each["token"], float(each["logprob"])) for each in t["top_logprobs"] if isinstance(each["token"], str)]
            for t in found["content"]
        ]
    except (KeyError, TypeError, ValueError):
        raise WrongReply("an answer with log-probabilities of another form") from None
    if not all(math.isfinite(logprob) for alternatives in tokens for _, logprob in alternatives):
        raise WrongReply("an answer with log-probabilities that are not finite")
    return tuple(dict(sorted(alternatives, key=lambda pair: pair[1])) for alternatives in tokens)
