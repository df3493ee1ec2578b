"""Ranking by the scores of a reranking model: one behind `/rerank` or `/score`, or a checkpoint on this machine.

Each passage is scored once for a narrative. Its score is on disk as soon as it comes, so a run that was killed asks for
no score twice. If the server refuses a batch, each half is sent again. If it refuses a single passage, the passage is
cut in half.

Rerankers that answer yes or no need a template, which the server must have. Without it, vLLM scores the bare texts, and
the scores are noise. So such a model first scores a passage that answers a question, and one that does not.
"""

import asyncio
import math
import re
import struct
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from threading import Event, Lock
from typing import Any

import orjson

from keystone.generation.llm.ask import run_together
from keystone.generation.rerank.open import Candidates, Means, Rerank, Reranked, list_passages
from keystone.generation.rerank.settings import RerankEndpoint, RerankSettings
from keystone.indexing.errors import Refused, UserError
from keystone.indexing.io.api_keys import choose_key
from keystone.indexing.io.error_text import name_members
from keystone.indexing.io.http import HttpRequest
from keystone.indexing.io.json_values import read_whole_number
from keystone.indexing.io.kept import hash_parts, open_kept
from keystone.indexing.io.retry import refuses_content
from keystone.indexing.io.server import Asker

SCORES_FILE = "scores.sqlite"
"""The name of the file of scores in the folder of runs."""
BATCH_PASSAGES = 32
"""The passages of one request."""
MOST_REQUESTS = 8
"""Requests at the same time."""
REPLY_LIMIT_BYTES = 2**26
"""The largest reply. Some servers repeat the passages in it."""
REPLY_TIMEOUT_S = 120.0
SHORTEST_CUT_CHARACTERS = 100
"""If a server refuses a passage of this length, its reason is not the length."""
PROBE = ("What is the capital of France?", "Paris is the capital of France.", "Tomatoes need much sun and water.")
"""A question, a passage that answers it, and one that does not."""
LEAST_MARGIN = 0.1
"""With its template, a model that answers yes or no scores the answer higher by at least this much."""


@dataclass(frozen=True, slots=True)
class Form:
    """A form of requests and replies: the path below the base URL, and the names of the members."""

    path: str
    query: str
    passages: str
    items: str
    score: str


FORMS = {
    "rerank": Form("/rerank", "query", "documents", "results", "relevance_score"),
    "score": Form("/score", "text_1", "text_2", "data", "score"),
}
"""The forms by `rerank.endpoint.form`."""


@asynccontextmanager
async def open_endpoint(settings: RerankSettings, means: Means) -> AsyncIterator[Rerank]:
    """Open the reranker `endpoint`. `UserError` for a wrong URL or key."""
    endpoint, stopped = settings.endpoint, Event()
    assert endpoint is not None
    client, maker = Client(endpoint, stopped), orjson.dumps([endpoint.name, endpoint.form])
    doubts = list[str]()
    score = _probe_first(endpoint, client.score, doubts) if answers_by_template(endpoint.name) else client.score
    try:
        async with open_scored(settings, means, maker, score, MOST_REQUESTS) as rerank:

            async def rerank_in_doubt(candidates: Candidates) -> Reranked:
                found = await rerank(candidates)
                return replace(found, warning=doubts[0]) if doubts else found

            yield rerank_in_doubt
    finally:
        stopped.set()


ScorePassages = Callable[[str, Sequence[str]], list[float]]
"""A function of a query and passages that returns the scores of the passages."""


def answers_by_template(name: str) -> bool:
    """Tell by its name whether a reranker is a model of text that answers yes or no after a template."""
    from keystone.indexing.encoders.pairs import TEMPLATES

    return any(re.search(pattern, name.lower()) for pattern in TEMPLATES)


def _probe_first(endpoint: RerankEndpoint, score_passages: ScorePassages, doubts: list[str]) -> ScorePassages:
    """Let the first call probe whether the server has the template of its model.

    If an answer scores hardly more than another text, `doubts` receives a message. `UserError` if it scores less.
    """
    lock, probed = Lock(), Event()

    def score(query: str, passages: Sequence[str]) -> list[float]:
        with lock:
            if not probed.is_set():
                question, answer, other = PROBE
                found = score_passages(question, [answer, other])
                message = (
                    f"{endpoint.url}: {endpoint.name}: found the score {found[0]:.4g} for an answer and "
                    f"{found[1]:.4g} for another text, expected {LEAST_MARGIN} more for the answer: the server seems "
                    "to lack the template of this model: start vLLM with --hf-overrides and --chat-template "
                    "(see the page on methods)"
                )
                if found[0] < found[1]:
                    raise UserError(message)
                if found[0] - found[1] < LEAST_MARGIN:
                    doubts.append(message)
                probed.set()
        return score_passages(query, passages)

    return score


@asynccontextmanager
async def open_model(settings: RerankSettings, means: Means) -> AsyncIterator[Rerank]:
    """Open the reranker `model`, on this machine. `UserError` for a checkpoint that is not a reranker."""
    from keystone.indexing.encoders.checkpoint import read_checkpoint
    from keystone.indexing.encoders.pairs import list_reading, open_pair_scorer
    from keystone.indexing.encoders.vllm import find_engine_device

    assert settings.model is not None
    score_pairs = await asyncio.to_thread(open_pair_scorer, settings.model, settings.backend)
    checkpoint = read_checkpoint(settings.model)
    maker = orjson.dumps([settings.backend or "model", checkpoint.compute_digest(), *list_reading(checkpoint)])

    def score(query: str, passages: Sequence[str]) -> list[float]:
        found: list[float] = score_pairs(query, passages, means.threads).tolist()
        return found

    device = find_engine_device() if settings.backend else ""
    async with open_scored(settings, means, maker, score, 1, device) as rerank:
        yield rerank


@asynccontextmanager
async def open_scored(
    settings: RerankSettings, means: Means, maker: bytes, score_passages: ScorePassages, at_once: int, device: str = ""
) -> AsyncIterator[Rerank]:
    """Open a reranker that scores passages for a query, `at_once` batches at a time.

    Scores are kept in `SCORES_FILE`, each by its `maker`, its query and its passage. `device` is that of `Reranked`.
    """
    loop = asyncio.get_running_loop()
    means.folder.mkdir(parents=True, exist_ok=True)
    pool = ThreadPoolExecutor(at_once, "reranking")
    with open_kept(means.folder / SCORES_FILE) as kept:

        async def score(query: str, passages: Sequence[str]) -> dict[str, float]:
            """Score passages for a query; returns the score of each text."""
            keys = {passage: hash_parts(maker, [query, passage]) for passage in passages}
            known = kept.get(list(keys.values()))
            missing = [passage for passage, key in keys.items() if key not in known]

            async def score_batch(batch: Sequence[str]) -> None:
                scores = await loop.run_in_executor(pool, score_passages, query, batch)
                made = {keys[passage]: struct.pack("<d", one) for passage, one in zip(batch, scores, strict=True)}
                kept.put(made)
                known.update(made)

            batches = [missing[start : start + BATCH_PASSAGES] for start in range(0, len(missing), BATCH_PASSAGES)]
            await run_together([partial(score_batch, batch) for batch in batches], at_once)
            return {passage: struct.unpack("<d", known[key])[0] for passage, key in keys.items()}

        async def rerank(candidates: Candidates) -> Reranked:
            passages = await asyncio.to_thread(list_passages, candidates, settings)
            scores = await score(candidates.narrative, [text for own in passages for text in own])
            best = [max((scores[text] for text in own), default=-math.inf) for own in passages]
            return Reranked(sorted(range(len(best)), key=lambda place: -best[place]), device=device)

        try:
            yield rerank
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


class Client:
    """A reranking model at a URL; many threads may call `score` at once. If `stopped` is set, it tries no more."""

    def __init__(self, endpoint: RerankEndpoint, stopped: Event) -> None:
        key = choose_key(endpoint.url, endpoint.key_env, endpoint.key_env).secret if endpoint.key_env else None
        self._where, self._name, self._stopped = f"{endpoint.url}: {endpoint.name}", endpoint.name, stopped
        self._form = FORMS[endpoint.form]
        self._asker = Asker(endpoint.url, endpoint.name, key, MOST_REQUESTS, REPLY_TIMEOUT_S)

    def score(self, query: str, passages: Sequence[str]) -> list[float]:
        """Score passages for a query. `UserError` if the requests fail, or a short passage is refused."""
        try:
            return self._ask(query, passages)
        except Refused as refusal:
            if not refuses_content(refusal.status, str(refusal)):
                raise
            if len(passages) > 1:
                middle = len(passages) // 2
                return [*self.score(query, passages[:middle]), *self.score(query, passages[middle:])]
            if len(passages[0]) <= SHORTEST_CUT_CHARACTERS:
                size = f"{len(query):,} and {len(passages[0])} characters"
                raise UserError(f"{refusal}: found a narrative and a passage of {size}") from refusal
            return self.score(query, [passages[0][: len(passages[0]) // 2]])

    def _ask(self, query: str, passages: Sequence[str]) -> list[float]:
        def read(reply: Any) -> list[float]:
            try:
                return read_scores(reply, self._form, len(passages))
            except ValueError as error:  # no new try, since each one costs money
                raise UserError(f"{self._where}: a wrong reply: {error}") from error

        body = orjson.dumps({"model": self._name, self._form.query: query, self._form.passages: list(passages)})
        return self._asker.ask(HttpRequest("POST", self._form.path, body, REPLY_LIMIT_BYTES), read, self._stopped)


def read_scores(reply: Any, form: Form, count: int) -> list[float]:
    """Read the scores of a reply in the order of its passages. `ValueError` unless each has one finite score."""
    items = reply.get(form.items) if isinstance(reply, dict) else None
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise ValueError(f"found no list of scores under {form.items!r}{name_members(reply)}")
    found = {read_whole_number(item.get("index")): item.get(form.score) for item in items}
    if len(items) != count or found.keys() != set(range(count)):
        raise ValueError(f"found {len(items)} items, expected one for each index from 0 to {count - 1}")
    scores = [found[index] for index in range(count)]
    if not all(type(one) in (int, float) and abs(one) < math.inf for one in scores):
        raise ValueError(f"found an item without a finite number under {form.score!r}")
    return [float(one) for one in scores]
