"""A probe of a language model's server: does it repeat its replies, and which fields of requests does it accept?

Each probe is a few requests to the server, without cache: 27 at most, and all but two of them short.
"""

import asyncio
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, NamedTuple
from uuid import uuid4

import orjson

from keystone.generation.grading.umbrela import read_grades, request_grades
from keystone.generation.llm.chat import HUGE_TOKENS, RESPONSES, PaidReply
from keystone.generation.llm.endpoints import Endpoints
from keystone.generation.llm.model import LEAST_TOKENS
from keystone.generation.llm.settings import LEAST_WINDOW, ModelSettings
from keystone.generation.rerank.open import read_ranking, request_ranking
from keystone.generation.types import Failure, Reply, Request
from keystone.indexing.errors import Unreached, Unusable, UserError
from keystone.indexing.io.api_keys import OPENAI_KEY, choose_key
from keystone.indexing.io.http import HttpRequest, Sender
from keystone.indexing.io.json_values import parse_json, read_whole_number
from keystone.runs.doctor.machine import Finding
from keystone.runs.doctor.server_records import PairOrder, ServerFacts, normalise_url


class Host(NamedTuple):
    """A host: its name, a pattern of its URLs, the owners of models that it lists, and what to know about it."""

    name: str
    urls: str
    owners: tuple[str, ...]
    advice: str


HOSTS = (
    Host("OpenAI", r"//api\.openai\.com/", ("openai", "system", "openai-internal"),
         "models that think take max_completion_tokens and no temperature; set model.thinking"),
    Host("Azure", r"\.(openai\.azure|services\.ai\.azure)\.com/", (),
         "the URL ends with /openai/v1, and model.name is the name of the deployment"),
    Host("Anthropic", r"//api\.anthropic\.com/", ("anthropic",),
         "schemas, seeds and log-probabilities are ignored; replies are checked, and repaired"),
    Host("Gemini", r"//generativelanguage\.googleapis\.com/", ("google",),
         "thoughts count as tokens of a reply: set model.thinking, or reasoning_effort in model.extra"),
    Host("OpenRouter", r"//openrouter\.ai/", (),
         "set provider: {require_parameters: true} in model.extra, or some of its providers ignore schemas"),
    Host("Ollama", r":11434(/|$)", ("library",),
         "longer prompts than its window are cut in silence: raise num_ctx, or set model.window"),
    Host("llama.cpp", r"", ("llamacpp",), "all requests under way (-np) share the window (-c)"),
    Host("SGLang", r":30000(/|$)", ("sglang",), "takes JSON schemas by its grammar backend"),
    Host("LM Studio", r":1234(/|$)", ("organization_owner",),
         "answers few requests at the same time: set model.concurrency, and load the model with a large enough window"),
    Host("vLLM", r"", ("vllm",), "takes JSON schemas, seeds and log-probabilities"),
)  # fmt: skip
"""The known hosts. The first one that fits counts; owners are asked before URLs."""


def name_host(url: str, owners: Iterable[str] = ()) -> Host | None:
    """Name the host of a base URL; None for an unknown one.

    A host is recognised by its URL, or by the owner that its list of models names (`owned_by` in `GET /models`).
    """
    listed = {owner.casefold() for owner in owners}
    by_owner = (host for host in HOSTS if listed & set(host.owners))
    by_url = (host for host in HOSTS if host.urls and re.search(host.urls, url + "/"))
    return next(by_owner, None) or next(by_url, None)


BATCH_REQUESTS = 16
"""How many requests the probe of a batch sends at the same time."""
CALL_TIMEOUT_S = 120.0
PATIENCE_S = 5.0
"""How long the probe tries a server that cannot be reached, or is busy."""
LISTING_TIMEOUT_S = 30.0
PROSE_TOKENS = 64
LONG_PROMPTS = (12_000, 48_000)
"""The lengths of two prompts in characters. Their counts of tokens show a window that the server does not tell."""
LEAST_SHARE = 0.9
"""If a server counts a smaller share of the tokens that are expected for a prompt, it has cut the prompt."""

QUESTION = "How do honey bees tell each other where flowers are?"
BETTER = "A worker that has found flowers dances on the comb. The angle of her dance tells other bees the direction."
WORSE = "The tram to the harbour leaves every ten minutes. Tickets are sold at the kiosk and in the tram."

_WINDOW = re.compile(r"context (?:length|window)(?: is| of)?\D{0,20}?([\d,]{3,12})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Probe:
    """The outcome of a probe: lines for the user, and the facts to keep."""

    findings: tuple[Finding, ...]
    facts: ServerFacts


def probe_model_server(url: str, name: str | None = None, key_env: str | None = None) -> Probe:
    """Probe a model of a server at a base URL. Without a name, the server must list exactly one model.

    `UserError` if the server cannot be reached, refuses the key, or does not answer a plain request.
    """
    listed = _list_models(url.rstrip("/").removesuffix(RESPONSES), key_env)
    host = name_host(url, (str(one.get("owned_by")) for one in listed.values()))
    if name is None:
        if len(listed) != 1:
            names = ", ".join(sorted(listed))
            found = f"serves the models {names}" if names else "has no list of models at /models"
            raise UserError(f"{url}: {found}; expected the name of one by --name")
        (name,) = listed
    named = {"name": name, "urls": [url]} | ({} if key_env is None else {"key_env": key_env})
    limits = {"call_seconds": CALL_TIMEOUT_S, "patience_seconds": PATIENCE_S}
    settings = ModelSettings.model_validate(named | limits)
    probed = asyncio.run(_probe(settings, _as_window(listed.get(name, {}).get("max_model_len"))))
    dialect = [Finding("ok", "dialect", f"{host.name}: {host.advice}")] if host else []
    return replace(probed, findings=(*dialect, *probed.findings))


def _list_models(url: str, key_env: str | None) -> dict[str, dict[str, Any]]:
    """List the models of a server by their names, as it describes them. A server that lists none is no error."""
    key = choose_key(url, OPENAI_KEY, key_env, required=key_env is not None).secret
    try:
        reply = Sender(url, f"Bearer {key}" if key else None, 1).send(HttpRequest("GET", "/models"), LISTING_TIMEOUT_S)
    except Unreached as error:
        raise UserError(f"{url}: cannot be reached: {error}") from error
    if reply.status in (401, 403):
        raise UserError(f"{url}: refused with status {reply.status}; expected a key in {key_env or OPENAI_KEY}")
    try:
        found = parse_json(reply.body) if reply.status == 200 else None
    except ValueError:
        found = None
    models = found.get("data") if isinstance(found, dict) else None
    listed = [one for one in models if isinstance(one, dict)] if isinstance(models, list) else []
    return {one["id"]: one for one in listed if one.get("id") and isinstance(one["id"], str)}


def _as_window(value: Any) -> int | None:
    window = read_whole_number(value)
    return window if window and window > 0 else None


async def _probe(settings: ModelSettings, listed_window: int | None) -> Probe:
    backend = Endpoints(settings)
    try:
        repeated, same_when_warm, same_in_batch = await _probe_repeats(backend)
        ordered, pair = await _probe_pair(backend)
        schema = await _probe_schema(backend)
        logprobs = await _probe_logprobs(backend)
        window = listed_window or await _probe_window(backend)
        counts = (0, 0) if window else await _count_long_prompts(backend)
    finally:
        await backend.close()
    notes = list(dict.fromkeys(backend.notes))
    date = datetime.now(UTC).date().isoformat()
    url = normalise_url(settings.urls[0])
    facts = ServerFacts(
        url, settings.name, date, same_when_warm, same_in_batch, pair, schema.state == "ok", logprobs.state == "ok",
        window or find_cut(counts), notes,
    )  # fmt: skip
    context = Finding("ok", "context length", f"{window:,} tokens") if window else _describe_counts(counts)
    dialect = (Finding("note", "dialect", note) for note in notes)
    return Probe((*repeated, ordered, schema, logprobs, context, *dialect), facts)


async def _probe_repeats(backend: Endpoints) -> tuple[list[Finding], bool | None, bool | None]:
    """Send a request cold, warm, and among others at the same time. `UserError` if the first one fails."""
    nonce = uuid4().hex  # so that no cache of the server has the prompt
    request = _ask_prose(f"{nonce} {QUESTION}")
    began = time.perf_counter()
    cold = await backend.answer(request)
    middle = time.perf_counter()
    warm = await backend.answer(request)
    seconds = middle - began, time.perf_counter() - middle
    if isinstance(cold.outcome, Failure):
        raise UserError(f"{cold.outcome.reason}; expected a reply to a plain request")
    others = [_ask_prose(f"{nonce} {number}. {QUESTION}") for number in range(BATCH_REQUESTS - 1)]
    batch = await asyncio.gather(*map(backend.answer, [*others, request]))
    failed = [one.outcome.reason for one in batch if isinstance(one.outcome, Failure)]
    same_when_warm, same_in_batch = _is_same(cold, warm), _is_same(cold, batch[-1])
    cached = f", {warm.usage.cached_tokens:,} of {warm.usage.prompt_tokens:,} prompt tokens from its cache"
    said = f"{seconds[0]:.2f} s cold, {seconds[1]:.2f} s warm{cached if warm.usage.prompt_tokens else ''}"
    findings = [
        Finding("ok", "reply", said),
        _describe_sameness("warm", same_when_warm, "the same request again"),
        _describe_sameness("batch", same_in_batch, f"the same request among {BATCH_REQUESTS} at the same time"),
    ]
    if failed:
        findings.append(Finding("problem", "batch", f"{len(failed)} of {BATCH_REQUESTS} requests failed: {failed[0]}"))
    return findings, same_when_warm, same_in_batch


def _ask_prose(text: str) -> Request:
    return Request("probe", (("user", text),), PROSE_TOKENS)


def _is_same(one: PaidReply, other: PaidReply) -> bool | None:
    texts = [reply.outcome.text for reply in (one, other) if isinstance(reply.outcome, Reply)]
    return texts[0] == texts[1] if len(texts) == 2 else None


def _describe_sameness(subject: str, same: bool | None, asked: str) -> Finding:
    if same is None:
        return Finding("problem", subject, f"{asked}: no reply")
    if same:
        return Finding("ok", subject, f"{asked}: the same reply")
    return Finding("note", subject, f"{asked}: another reply; repeat runs from kept replies (model.backend: replay)")


async def _probe_pair(backend: Endpoints) -> tuple[Finding, PairOrder]:
    """Ask for the order of a good and a bad passage, shown in both orders."""
    right = 0
    for place, passages in enumerate(([BETTER, WORSE], [WORSE, BETTER])):
        reply = (await backend.answer(request_ranking(QUESTION, passages))).outcome
        try:
            if isinstance(reply, Failure):
                raise Unusable(reply.reason)
            right += read_ranking(reply, 2)[0] == place
        except Unusable as error:
            return Finding("note", "pair", f"no ranking of two passages: {error}"), "none"
    orders: Sequence[PairOrder] = ("wrong in both", "right in one", "right in both")
    said = f"the better one of two passages is first in {right} of 2 orders"
    return Finding("ok" if right == 2 else "note", "pair", said), orders[right]


async def _probe_schema(backend: Endpoints) -> Finding:
    """Ask for a grade with a JSON schema. A note if the reply does not follow it, or the server refuses it."""
    outcome = (await backend.answer(request_grades([QUESTION], BETTER, "pointwise"))).outcome
    if isinstance(outcome, Failure):
        return Finding("note", "JSON schema", outcome.reason)
    if any("schema" in note for note in backend.notes):
        return Finding("note", "JSON schema", "refused; requests go without it, and replies are repaired")
    try:
        value = parse_json(outcome.text)
        read_grades(outcome, ["grade"])
    except (ValueError, Unusable) as error:
        return Finding("note", "JSON schema", f"a reply does not follow it: {error}")
    return Finding("ok", "JSON schema", f"a reply follows it: {orjson.dumps(value).decode()}")


async def _probe_logprobs(backend: Endpoints) -> Finding:
    """Ask for log-probabilities, which `grading.expected` needs."""
    outcome = (await backend.answer(replace(_ask_prose(QUESTION), max_tokens=2, top_logprobs=4))).outcome
    if isinstance(outcome, Reply) and outcome.logprobs:
        return Finding("ok", "log-probabilities", f"{len(outcome.logprobs[0])} alternatives of a token")
    return Finding("note", "log-probabilities", "none; grading.expected then takes the grade that a reply names")


async def _probe_window(backend: Endpoints) -> int | None:
    """Ask for more tokens than any window has, and read the window from the refusal."""
    outcome = (await backend.answer(replace(_ask_prose("Reply with one word."), max_tokens=HUGE_TOKENS))).outcome
    found = _WINDOW.search(outcome.reason) if isinstance(outcome, Failure) else None
    return int(found[1].replace(",", "")) if found else None


async def _count_long_prompts(backend: Endpoints) -> tuple[int, int]:
    """Count the tokens of two long prompts, as the server reports them; 0 if it gives no reply."""
    counts = []
    for characters in LONG_PROMPTS:
        lines = (f"{number}. {BETTER}\n" for number in range(characters // len(BETTER)))
        answered = await backend.answer(_ask_prose("".join(lines) + QUESTION))
        counts.append(answered.usage.prompt_tokens if isinstance(answered.outcome, Reply) else 0)
    return counts[0], counts[1]


def find_cut(counts: tuple[int, int]) -> int | None:
    """Find the window to which a server cuts prompts, from the tokens of the two long ones; None if it cuts neither."""
    short, long = counts
    expected = short * LONG_PROMPTS[1] / LONG_PROMPTS[0]
    return long if LEAST_TOKENS <= long < LEAST_SHARE * expected else None


def _describe_counts(counts: tuple[int, int]) -> Finding:
    if cut := find_cut(counts):
        other = f", or set model.window to {cut}" if cut >= LEAST_WINDOW else ""
        said = (
            f"{cut:,} tokens: the server cuts longer prompts and does not say so. Raise its window (such as num_ctx of "
            f"Ollama){other}"
        )
        return Finding("note", "context length", said)
    read = f"; it read a prompt of {max(counts):,} tokens whole" if min(counts) >= LEAST_TOKENS else ""
    return Finding("note", "context length", f"the server does not tell it: set model.window{read}")
