"""Requests and replies of OpenAI's chat completions protocol, for endpoints, batch files and vLLM alike.

The known forms of servers are data: `REFUSALS`, `FINISHES` and the names of parts. All functions are pure.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, NamedTuple, Protocol

import orjson

from keystone.generation.context.texts import count_tokens
from keystone.generation.llm.dialects import write_tools, write_turns
from keystone.generation.types import Failure, Message, Reply, Request, Usage
from keystone.indexing.errors import UnknownForm, WrongReply
from keystone.indexing.io.error_text import describe_error, name_members, show_value, tells_error
from keystone.indexing.io.json_values import digest, read_whole_number

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
CHAT, RESPONSES = "/chat/completions", "/responses"
"""The paths of the two protocols below an endpoint's URL."""
MOST_REFUSED_SCHEMAS = 3
"""If an endpoint refuses this number of schemas, it is sent no more of them."""
REFUSAL_CHARACTERS = 2**16
"""The most characters of a refusal that are searched for the field that an endpoint does not take."""
FINISH_CHARACTERS = 100
"""The most characters of an unknown reason for a reply's end that a note shows."""
PLAIN_REQUEST = Request("probe", (("user", "Reply with one word."),), 16)
"""A request that every language model answers."""


@dataclass(frozen=True, slots=True)
class PaidReply:
    """A reply to a request, or its failure, and its cost.

    `note` says what is odd about its server's replies. A request that exceeds the budget is not `sent`.
    """

    outcome: Reply | Failure
    usage: Usage = field(default_factory=Usage)
    note: str = ""
    sent: bool = True


class Backend(Protocol):
    """A service that answers single requests, up to `at_once` at the same time, with notes for the user.

    `answer` raises `UserError` if no request can be answered any more. If only this request cannot be answered, the
    outcome is a `Failure`.
    """

    at_once: int
    notes: list[str]

    async def answer(self, request: Request) -> PaidReply:
        """Ask until a reply comes, or until none can come."""

    async def close(self) -> None:
        """Close all connections; called once."""


class ReplyBound(NamedTuple):
    """The most that a reply may hold: tokens (None: any number), and alternatives of each token."""

    tokens: int | None
    alternatives: int = 0


@dataclass(frozen=True, slots=True)
class Dialect:
    """The parts of a request that an endpoint takes, the path below its URL, and the digests of schemas `refused`."""

    schemas: bool = True
    tools: bool = False
    system: bool = True
    temperature: bool = True
    logprobs: bool = True
    seed: bool = True
    limit: str = "max_tokens"
    path: str = CHAT
    refused: frozenset[str] = frozenset()

    def takes(self, schema: Mapping[str, Any] | None) -> bool:
        """Return whether a request can have this schema, as far as is known."""
        usable = self.schemas and len(self.refused) < MOST_REFUSED_SCHEMAS
        return usable and schema is not None and digest(schema) not in self.refused


FLAGS = tuple(part.name for part in fields(Dialect) if part.type is bool)
"""The parts that an endpoint either takes or refuses."""


class Refusal(NamedTuple):
    """A refusal that leads to another dialect: words (a pattern), the part of the dialect, its new value, and a note.

    The part `refused` gets the schema of the request, and its note the request's `purpose`.
    """

    words: str
    part: Literal["schemas", "tools", "system", "temperature", "logprobs", "seed", "limit", "path", "refused"]
    value: bool | str
    note: str


NO_SCHEMA = "refuses the schema of {purpose}: asked without"
NO_TOOLS = "takes no tool calls: asked for JSON"
REFUSALS = (
    Refusal(r"v1/responses", "path", RESPONSES, "is asked by its Responses API, which takes no seed"),
    Refusal(r"^(?=.*invalid schema).*response_format", "refused", "", NO_SCHEMA),
    Refusal(r"response_format|text\.format", "schemas", False, "takes no JSON schemas: replies are asked for without"),
    Refusal(
        r"^(?!.*too large).*max_completion_tokens", "limit", "max_completion_tokens",
        "takes max_completion_tokens in place of max_tokens",
    ),
    Refusal(
        r"^(?=.*temperature).*(support|deprecat|not allowed|only)", "temperature", False,
        "takes no temperature: its default is used",
    ),
    Refusal(r"logprobs", "logprobs", False, "gives no log-probabilities: replies are asked for without"),
    Refusal(
        r"^(?=.*\bseed\b).*(unknown|unsupported|not supported|unrecogni[sz]ed|unexpected|extra|not permitted)",
        "seed", False, "takes no seed",
    ),
    Refusal(r"support tool use|tools? (is|are) not supported", "tools", False, NO_TOOLS),
    Refusal(
        r"system (role|message|prompt)s? (is|are )?not|not support[^.]{0,20} system|roles must alternate",
        "system", False, "takes no system messages: their texts begin the user's",
    ),
    Refusal(r"schema|grammar|structured.outputs?\b|guided|guidance", "refused", "", NO_SCHEMA),
)  # fmt: skip
"""The known refusals; the first one that fits counts."""

Finish = Literal["stop", "length", "broken off", "held back"]
_FINISH_WORDS: Mapping[Finish, str] = {
    "stop": "stop eos eos_token end_turn stop_sequence stop_str stop_token complete completed done "
    "tool_call tool_calls tool_use function_call",
    "length": "length max_tokens max_output_tokens max_completion_tokens model_length token_limit error_limit "
    "context_length_exceeded model_context_window_exceeded",
    "broken off": "abort aborted cancel cancelled canceled error failed incomplete network_error other timeout "
    "insufficient_system_resource malformed_function_call unexpected_tool_call too_many_tool_calls server_error "
    "load unload overloaded engine_overloaded rate_limit user_cancel user_cancelled",
    "held back": "content_filter content_filtered safety image_safety recitation language blocklist "
    "prohibited_content spii sensitive refusal guardrail guardrails guardrail_intervened error_toxic",
}
FINISHES = {word: finish for finish, words in _FINISH_WORDS.items() for word in words.split()}
"""The end of a reply by the words of servers, without `FINISH_REASON_` and the case of letters."""
TEXT_PARTS = ("text", "output_text")
"""The types of the parts of a content that hold its text."""
OTHER_PARTS = ("thinking", "redacted_thinking", "reasoning", "reasoning_text", "summary_text", "reference")
"""The types of its other parts."""
THOUGHT_KEYS = ("reasoning_content", "reasoning", "thinking", "reasoning_details")
"""The members of a message that hold thoughts beside its content."""


def combine_dialects(one: Dialect, other: Dialect) -> Dialect:
    """Combine two dialects to the parts that both take."""
    flags: Any = {part: getattr(one, part) and getattr(other, part) for part in FLAGS}
    limit = one.limit if other.limit == "max_tokens" else other.limit
    path = one.path if other.path == CHAT else other.path
    return Dialect(**flags, limit=limit, path=path, refused=one.refused | other.refused)


def make_keyed_name(model: str, extra: Mapping[str, Any]) -> str:
    """Make the name in the keys of a model's replies: its own, then the further fields of requests, if any."""
    return f"{model} {orjson.dumps(dict(extra), option=orjson.OPT_SORT_KEYS).decode()}" if extra else model


def write_body(
    model: str, request: Request, extra: Mapping[str, Any] | None = None, dialect: Dialect = Dialect()
) -> dict[str, Any]:
    """Write the body of a chat completions request. `extra` holds further fields."""
    calls = write_tools(request) if dialect.tools else {}
    body: dict[str, Any] = {
        "model": model,
        "messages": write_turns(
            request.messages if dialect.system else _join_system(request.messages), request.functions if calls else {}
        ),
        dialect.limit: request.max_tokens,
    }
    if dialect.temperature:
        body["temperature"] = request.temperature
    if calls:
        body |= calls
    elif dialect.takes(request.schema):
        wanted = {"name": "reply", "schema": request.schema, "strict": True}
        body["response_format"] = {"type": "json_schema", "json_schema": wanted}
    if request.top_logprobs and dialect.logprobs:
        body |= {"logprobs": True, "top_logprobs": request.top_logprobs}
    if request.seed is not None and dialect.seed:
        body["seed"] = request.seed
    return body | dict(extra or {})


def _join_system(messages: Sequence[Message]) -> list[Message]:
    """Put the texts of system messages before that of the first message of the user."""
    texts = [text for role, text in messages if role == "system"]
    others = [(role, text) for role, text in messages if role != "system"]
    first = next((place for place, (role, _) in enumerate(others) if role == "user"), None)
    if first is None:
        return [("user", "\n\n".join(texts)), *others]
    return [*others[:first], ("user", "\n\n".join([*texts, others[first][1]])), *others[first + 1 :]]


def read_bound(body: Mapping[str, Any]) -> ReplyBound:
    """Read the bound that the body of a request sets for its reply."""
    tokens = body.get("max_completion_tokens") or body.get("max_tokens")
    alternatives = body.get("top_logprobs") if body.get("logprobs") else 0
    return ReplyBound(tokens if isinstance(tokens, int) else None, alternatives if isinstance(alternatives, int) else 0)


def find_schema(body: Mapping[str, Any]) -> str:
    """Find the digest of the schema in the body of a request; empty if it has none."""
    try:
        return digest(body["response_format"]["json_schema"]["schema"])
    except (KeyError, TypeError):
        return ""


def find_other_dialect(dialect: Dialect, message: str, schema: str = "") -> tuple[Dialect, str] | None:
    """Find the dialect to use after an endpoint refused a request in these words, and a note; None if there is none.

    `schema` is the digest of the request's schema, if it was sent. If an endpoint finds max_tokens too large, it
    refuses the request, not the field.
    """
    for refusal in REFUSALS:
        if re.search(refusal.words, message[:REFUSAL_CHARACTERS], re.IGNORECASE | re.DOTALL):
            if refusal.part == "refused" and not schema:
                return None
            value = dialect.refused | {schema} if refusal.part == "refused" else refusal.value
            if value != getattr(dialect, refusal.part):
                change: Any = {refusal.part: value}
                return replace(dialect, **change), refusal.note
    return None


_WINDOW = re.compile(r"maximum context length (?:is|of) (\d{1,9}) tokens")
_PROMPT = re.compile(
    r"(?:has|contains) (\d{1,9}) input tokens"
    r"|(\d{1,9}) (?:in (?:the|your) (?:messages|prompt|functions)|of (?:text|tool) input|tokens from the input)"
)
"""The tokens of a prompt, or of its parts. vLLM also says "at least 4097 input tokens", which is not a count."""
HUGE_TOKENS = 100_000_000
"""More tokens than any window has. An endpoint refuses a request for so many, and tells the size of its window."""
LEAST_REPLY_TOKENS = 256
"""The fewest tokens to which a reply is shortened if the window has no room for the tokens asked for."""
SPARE_SHARE = 8
"""If the tokens of a prompt are estimated, one further token is set aside for each group of so many."""


def find_window(message: str) -> int | None:
    """Find the tokens of the window in the words of an endpoint that refuses what its window does not hold."""
    found = _WINDOW.search(message[:REFUSAL_CHARACTERS])
    return int(found[1]) if found else None


def find_room(request: Request, message: str, dialect: Dialect, again: bool) -> tuple[int, str] | None:
    """Find how many tokens a reply may have if an endpoint says that its window does not hold prompt and `max_tokens`.

    If the message does not count the tokens of the prompt, they are estimated. If the reply was shortened before
    (`again`), it gets half of its tokens. Returns these tokens and a note; None for any other message, or if the prompt
    leaves no room for a reply.
    """
    window = find_window(message)
    if window is None or request.max_tokens >= HUGE_TOKENS:
        return None
    counts = {found[0]: int(found[1] or found[2]) for found in _PROMPT.finditer(message[:REFUSAL_CHARACTERS])}
    prompt = sum(counts.values())
    if not counts:
        tools = orjson.dumps(write_tools(request) if dialect.tools else {}).decode()
        prompt = sum(map(count_tokens, [tools, *(text for _, text in request.messages)]))
        prompt += prompt // SPARE_SHARE
    room = window - prompt
    if again or room >= request.max_tokens:
        room = min(room, request.max_tokens // 2)
    note = f"takes {window:,} tokens with the reply: some replies are asked for with fewer tokens"
    return (room, note) if room >= LEAST_REPLY_TOKENS else None


def read_reply(body: Any, bound: ReplyBound) -> PaidReply:
    """Read the reply in a body with status 200, with log-probabilities if the bound has alternatives.

    `WrongReply` if the body holds no reply, one that broke off, or far more than the bound allows. `UnknownForm` names
    the members that it has in the place of a reply.

    `finish` is `length` or `stop`, by the words of `FINISHES`; a note names any other word. A server also says `length`
    if it silently lowers `max_tokens` to its window. If the model refuses, or a filter holds the reply back, the
    outcome is a `Failure`, because asking again does not help.
    """
    if not isinstance(body, dict) or body.get("error") or ("choices" not in body and tells_error(body)):
        raise WrongReply(f"an answer that is an error: {describe_error(body)}")
    choice = _find_choice(body)
    message = choice["message"]
    finish, notes = _read_finish(choice.get("finish_reason"))
    if finish == "broken off" or choice.get("error"):
        why = f": {describe_error(choice['error'])}" if choice.get("error") else ""
        raise WrongReply(f"an answer that its server broke off{why}")
    usage = _read_usage(body.get("usage"))
    text, refusal = _read_content(message.get("content"))
    if refusal := message.get("refusal") or refusal:
        return PaidReply(Failure(f"the model refuses: {describe_error(refusal)}"), usage)
    if finish == "held back":
        return PaidReply(Failure("a filter holds the reply back"), usage)
    thoughts = next((key for key in THOUGHT_KEYS if message.get(key)), None)
    if not text and finish == "stop" and thoughts:
        notes.append(f"puts all of a reply under {thoughts!r}: thoughts are not a reply")
    if text is None and not thoughts and finish != "length":
        others = {key: value for key, value in message.items() if value and key not in ("role", "content")}
        raise (UnknownForm if others else WrongReply)(f"an answer without content{name_members(others or None)}")
    reply = Reply(text or "", finish)
    if bound.alternatives:
        tokens = _read_logprobs(choice.get("logprobs"))
        reply = _place_tokens(reply, tokens or [])
        if tokens is None:
            notes.append(
                f"gives log-probabilities of another form{name_members(choice['logprobs'])}: they are left out"
            )
        elif reply.text and not reply.starts and not tokens:
            notes.append("gives no log-probabilities, which were asked for")
        elif reply.text and not reply.starts and any(token.text for token in tokens):
            notes.append("gives log-probabilities of another text than the reply's: they cannot be used")
    if bound.tokens is not None:
        room = SPARE_CHARACTERS + LONGEST_TOKEN_CHARACTERS * bound.tokens
        size = LOGPROB_CHARACTERS
        listed = sum(size + sum(size + len(token) for token in alternatives) for alternatives in reply.logprobs)
        if len(reply.text) > room or listed > room * (1 + bound.alternatives):
            raise WrongReply(
                f"an answer of {len(reply.text):,} characters, where {bound.tokens:,} tokens were asked for"
            )
    return PaidReply(reply, usage, "; ".join(notes))


def _find_choice(body: Mapping[str, Any]) -> dict[str, Any]:
    """Find the first choice, which has a message. `WrongReply` if there is none."""
    if "choices" not in body:
        raise UnknownForm(f"an answer without choices{name_members(body)}")
    try:
        choice = body["choices"][0]
    except (IndexError, KeyError, TypeError):
        raise WrongReply(f"an answer without choices: {describe_error(body)}") from None
    if not isinstance(choice, dict) or not isinstance(choice.get("message"), dict):
        raise UnknownForm(f"an answer without message in its choice{name_members(choice)}")
    return choice


def _read_finish(found: Any) -> tuple[Finish, list[str]]:
    if found in (None, ""):
        return "stop", []
    word = str(found).casefold().replace("-", "_").removeprefix("finish_reason_")
    if word in FINISHES:
        return FINISHES[word], []
    shown = show_value(found, FINISH_CHARACTERS)
    return "stop", [f"ends replies for an unknown reason ({shown}): they count as whole"]


def _read_content(content: Any) -> tuple[str | None, Any]:
    """Read the text of a message's content and the refusal in it. The text is None if there is no content."""
    if content is None or isinstance(content, str):
        return content, None
    texts, refusal = list[str](), None
    for part in content if isinstance(content, list) else [content]:
        found = {"text": part} if isinstance(part, str) else part
        kind = (found.get("type") or "text") if isinstance(found, dict) else None
        text = found.get("text") if kind in TEXT_PARTS else None
        if isinstance(text, dict):
            text = text.get("value")
        if isinstance(text, str) or (kind in TEXT_PARTS and text is None and "text" in found):
            texts.append(text or "")
        elif kind == "refusal":
            refusal = found.get("refusal") or kind
        elif kind not in OTHER_PARTS:
            raise UnknownForm(f"an answer with content that is not text{name_members(found)}")
    return "".join(texts) if content else None, refusal


def _read_usage(found: Any) -> Usage:
    def get_number(place: Any, name: str) -> Any:
        return place.get(name) if isinstance(place, dict) else None

    cached = get_number(get_number(found, "prompt_tokens_details"), "cached_tokens")
    return count_usage(get_number(found, "prompt_tokens"), cached, get_number(found, "completion_tokens"))


def count_usage(prompt: Any, cached: Any, completion: Any) -> Usage:
    """Count the usage of one call with these tokens. A value that is not a count up to `MOST_TOKENS` becomes 0."""
    numbers = (read_whole_number(one) or 0 for one in (prompt, cached, completion))
    return Usage(1, *(n if 0 <= n <= MOST_TOKENS else 0 for n in numbers))


class _Token(NamedTuple):
    """A token's own text in bytes, empty if the server leaves it out, and the log-probabilities of its alternatives."""

    text: bytes
    alternatives: dict[str, float]


def _read_logprobs(found: Any) -> list[_Token] | None:
    """Read log-probabilities; None if they have another form. Those that are null or infinite are left out."""
    listed = found.get("content", found) if isinstance(found, dict) else found
    if not listed:
        return []
    try:
        return [_Token(_read_token_text(token), _read_alternatives(token["top_logprobs"])) for token in listed]
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _read_alternatives(listed: Any) -> dict[str, float]:
    values = ((one["token"], -math.inf if one["logprob"] is None else float(one["logprob"])) for one in listed or ())
    known = [(token, value) for token, value in values if isinstance(token, str) and math.isfinite(value)]
    return dict(sorted(known, key=lambda pair: pair[1]))


def _read_token_text(token: Mapping[str, Any]) -> bytes:
    found = token.get("bytes")
    return bytes(found) if isinstance(found, list) else str(token.get("token") or "").encode(errors="surrogatepass")


def _place_tokens(reply: Reply, tokens: Sequence[_Token]) -> Reply:
    """Add to a reply the log-probabilities of its tokens and their places.

    The tokens may also cover thoughts before the text and marks after it. If their own texts do not hold the text of
    the reply, all log-probabilities stay, without places.
    """
    text, joined = reply.text.encode(errors="surrogatepass"), b"".join(token.text for token in tokens)
    at = joined.rfind(text) if text else -1
    if at < 0:
        return replace(reply, logprobs=tuple(token.alternatives for token in tokens))
    start, end, place = 0, at + len(text), 0
    starts, logprobs = list[int](), list[Mapping[str, float]]()
    for token in tokens:
        stop = start + len(token.text)
        first, last = token.text[: max(0, at - start)], token.text[max(0, end - start) :]
        if own := token.text[len(first) : len(token.text) - len(last)]:
            starts.append(place)
            logprobs.append(_cut_alternatives(token.alternatives, first, last))
            place += sum(byte & 0xC0 != 0x80 for byte in own)
        start = stop
    return replace(reply, logprobs=tuple(logprobs), starts=tuple(starts))


def _cut_alternatives(alternatives: Mapping[str, float], first: bytes, last: bytes) -> Mapping[str, float]:
    """Cut the beginning and the end that do not belong to the reply from those alternatives that have them."""
    if not first and not last:
        return alternatives
    begin, end = first.decode(errors="replace"), last.decode(errors="replace")
    own = (token for token in alternatives if token.startswith(begin) and token[len(begin) :].endswith(end))
    return {token[len(begin) : len(token) - len(end)]: alternatives[token] for token in own}
