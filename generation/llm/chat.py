"""Requests and replies as OpenAI's chat completions protocol writes them, and what is sent and got by other ways too.

Pure functions: what an endpoint, a batch file and a server's error say is read here and nowhere else.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import orjson

from generation.types import Failure, Reply, Request, Usage
from indexing.errors import printable
from indexing.io.untrusted_json import parse_json

REPLY_LIMIT_BYTES = 2**24
"""Of the body of a reply, as it comes and as it is unpacked, and of a line of a file of replies. One that is longer is
not read to its end."""
LONGEST_TOKEN = 128
"""Characters of a token at most: those of blanks are the longest."""
ROOM = 4_096
"""Characters that a reply may have besides, whatever was asked for."""
ENTRY = 24
"""Characters that a log-probability takes where it is kept, besides its token."""
MOST_TOKENS = 10**9
"""Of one call; a server that tells of more has not counted."""


@dataclass(frozen=True, slots=True)
class Answered:
    """What came of a request, and what that cost."""

    outcome: Reply | Failure
    usage: Usage = field(default_factory=Usage)


class Backend(Protocol):
    """Whatever answers single requests, `at_once` of them together at most.

    `notes` are what a reader of the results should know. `answer` raises `UserError` where nothing can be answered any
    more; a request that cannot be answered alone is a `Failure`.
    """

    at_once: int
    notes: list[str]

    async def answer(self, request: Request) -> Answered:
        """Ask until there is a reply, or none can be had."""
        ...

    async def close(self) -> None:
        """End what is open; called once."""
        ...


class Asked(NamedTuple):
    """How much a reply may hold: tokens (None: any number), and alternatives with log-probabilities for each."""

    tokens: int | None
    alternatives: int = 0


class Faulty(Exception):
    """A reply that is not one; the message says why. Asking again may help."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """Which parts of a request's body an endpoint takes."""

    schemas: bool = True
    temperature: bool = True
    logprobs: bool = True
    limit: str = "max_tokens"


def both(one: Dialect, other: Dialect) -> Dialect:
    """What each of the two takes."""
    limit = one.limit if other.limit == "max_tokens" else other.limit
    return Dialect(
        one.schemas and other.schemas, one.temperature and other.temperature, one.logprobs and other.logprobs, limit
    )


def keyed_name(model: str, extra: Mapping[str, Any]) -> str:
    """The name under which a model's replies are kept: its own, with further fields of requests if there are some."""
    return f"{model} {orjson.dumps(dict(extra), option=orjson.OPT_SORT_KEYS).decode()}" if extra else model


def body_of(
    model: str, request: Request, extra: Mapping[str, Any] | None = None, dialect: Dialect = Dialect()
) -> dict[str, Any]:
    """The body of a chat completions request; `extra` holds further fields of it."""
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
    return body | dict(extra or {})


def asked_of(body: Mapping[str, Any]) -> Asked:
    """What the body of a request asks for."""
    tokens = body.get("max_completion_tokens") or body.get("max_tokens")
    alternatives = body.get("top_logprobs") if body.get("logprobs") else 0
    return Asked(tokens if isinstance(tokens, int) else None, alternatives if isinstance(alternatives, int) else 0)


def other_dialect(dialect: Dialect, said: str) -> tuple[Dialect, str] | None:
    """How to ask an endpoint that refused a request in these words, and a note of it; None if the words mean else.

    An endpoint that finds max_tokens too large refuses the request, not the field; so does one that takes schemas but
    not this one: see `refuses_schema`.
    """
    if refuses_schema(said):
        return None
    said = said.lower()
    if dialect.schemas and "response_format" in said:
        return replace(dialect, schemas=False), "takes no JSON schemas: replies are asked for without"
    if dialect.limit == "max_tokens" and "max_completion_tokens" in said and "too large" not in said:
        return replace(dialect, limit="max_completion_tokens"), "takes max_completion_tokens in place of max_tokens"
    if dialect.temperature and "temperature" in said and "support" in said:
        return replace(dialect, temperature=False), "takes no temperature: its default is used"
    if dialect.logprobs and "logprobs" in said:
        return replace(dialect, logprobs=False), "gives no log-probabilities: replies are asked for without"
    return None


def refuses_schema(said: str) -> bool:
    """Whether an endpoint that takes schemas refuses in these words the one of this request."""
    said = said.lower()
    return "invalid schema" in said and "response_format" in said


def read_answer(body: Any, asked: Asked) -> Answered:
    """The reply in the body of an answer with status 200, with log-probabilities if they were asked for.

    `Faulty` where there is none, or where it holds far more than was asked for.

    `finish` is `length` where the server says so, which it also does when it has cut `max_tokens` down to its window
    without a word, else `stop`. A refusal and what a filter holds back are failures: asking again does not help.
    """
    if not isinstance(body, dict) or body.get("error"):
        raise Faulty(f"an answer that is an error: {words(body)}")
    try:
        choice = body["choices"][0]
        message, finish = choice["message"], choice.get("finish_reason")
        text, refusal = message.get("content"), message.get("refusal")
    except (KeyError, IndexError, TypeError, AttributeError):
        raise Faulty(f"an answer without choices: {words(body)}") from None
    if finish == "abort":
        raise Faulty("an answer that its server broke off")
    usage = _usage(body.get("usage"))
    if refusal:
        return Answered(Failure(f"the model refuses: {words(refusal)}"), usage)
    if finish == "content_filter":
        return Answered(Failure("a filter holds the reply back"), usage)
    if text is None and finish == "length":
        text = ""
    if not isinstance(text, str):
        raise Faulty("an answer without content")
    tokens = _logprobs(choice["logprobs"]) if asked.alternatives and choice.get("logprobs") else ()
    if asked.tokens is not None:
        room = ROOM + LONGEST_TOKEN * asked.tokens
        listed = sum(ENTRY + sum(ENTRY + len(token) for token in alternatives) for alternatives in tokens)
        if len(text) > room or listed > room * (1 + asked.alternatives):
            raise Faulty(f"an answer of {len(text):,} characters, where {asked.tokens:,} tokens were asked for")
    return Answered(Reply(text, "length" if finish == "length" else "stop", tokens), usage)


def _usage(found: Any) -> Usage:
    def number(place: Any, name: str) -> Any:
        return place.get(name) if isinstance(place, dict) else None

    cached = number(number(found, "prompt_tokens_details"), "cached_tokens")
    return usage_of(number(found, "prompt_tokens"), cached, number(found, "completion_tokens"))


def usage_of(prompt: Any, cached: Any, completion: Any) -> Usage:
    """The usage of one call that tells of these tokens; what is no number from 0 to `MOST_TOKENS` counts as none."""
    found = (prompt, cached, completion)
    return Usage(1, *(n if type(n) is int and 0 <= n <= MOST_TOKENS else 0 for n in found))


def _logprobs(found: Any) -> tuple[Mapping[str, float], ...]:
    try:
        tokens = [
            [(each["token"], float(each["logprob"])) for each in t["top_logprobs"] if isinstance(each["token"], str)]
            for t in found["content"]
        ]
    except (KeyError, TypeError, ValueError):
        raise Faulty("an answer with log-probabilities of another form") from None
    if not all(math.isfinite(logprob) for alternatives in tokens for _, logprob in alternatives):
        raise Faulty("an answer with log-probabilities that are not finite")
    return tuple(dict(sorted(alternatives, key=lambda pair: pair[1])) for alternatives in tokens)


def words(said: Any) -> str:
    """What a server says in an error, in one line: the message wherever servers put it, else all of it."""
    if isinstance(said, bytes):
        try:
            said = parse_json(said)
        except ValueError:
            said = said.decode(errors="replace")
    while isinstance(said, dict) and (inner := said.get("error") or said.get("message") or said.get("detail")):
        said = inner
    return printable(said if isinstance(said, str) else orjson.dumps(said).decode())
