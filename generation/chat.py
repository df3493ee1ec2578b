"""Requests and replies as OpenAI's chat completions protocol writes them, and what is sent and got by other ways too.

Pure functions: what an endpoint, a batch file and a server's error say is read here and nowhere else.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import orjson

from generation.types import Failure, Reply, Request, Usage

_SPACE = re.compile(r"\s+")
LONGEST_WORDS = 300
"""Characters of what an endpoint says that are shown."""


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


def read_answer(body: Any, logprobs: bool = False) -> Answered:
    """The reply in the body of an answer with status 200, with log-probabilities if they were asked for.

    `Faulty` where there is none.

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
    tokens = _logprobs(choice["logprobs"]) if logprobs and choice.get("logprobs") else ()
    return Answered(Reply(text, "length" if finish == "length" else "stop", tokens), usage)


def _usage(found: Any) -> Usage:
    def number(place: Any, name: str) -> int:
        value = place.get(name) if isinstance(place, dict) else None
        return value if isinstance(value, int) and value > 0 else 0

    details = found.get("prompt_tokens_details") if isinstance(found, dict) else None
    return Usage(
        1, number(found, "prompt_tokens"), number(details, "cached_tokens"), number(found, "completion_tokens")
    )


def _logprobs(found: Any) -> tuple[Mapping[str, float], ...]:
    try:
        tokens = [
            [(each["token"], float(each["logprob"])) for each in t["top_logprobs"] if isinstance(each["token"], str)]
            for t in found["content"]
        ]
    except (KeyError, TypeError, ValueError):
        raise Faulty("an answer with log-probabilities of another form") from None
    return tuple(dict(sorted(alternatives, key=lambda pair: pair[1])) for alternatives in tokens)


def words(said: Any) -> str:
    """What a server says in an error, in one line: the message wherever servers put it, else all of it."""
    if isinstance(said, bytes):
        try:
            said = orjson.loads(said)
        except orjson.JSONDecodeError:
            said = said.decode(errors="replace")
    while isinstance(said, dict) and (inner := said.get("error") or said.get("message") or said.get("detail")):
        said = inner
    text = said if isinstance(said, str) else orjson.dumps(said).decode()
    text = _SPACE.sub(" ", text).strip()
    return text if len(text) <= LONGEST_WORDS else f"{text[:LONGEST_WORDS]} ..."
