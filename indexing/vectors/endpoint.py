"""Embeddings from any server that speaks OpenAI's `/v1/embeddings`.

Requests run in parallel and are repeated (`indexing.io.server`). If the server refuses a batch, each half is sent
again; if it refuses a single text, the text is cut further. A reply must hold one vector for each text, all of one
dimension and of finite numbers; any other reply is an error.

Only the server can count tokens. A window of n tokens is taken for 4 n characters, which is about right for English;
if the server refuses a text, its message corrects the estimate.
"""

import base64
import binascii
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from threading import Event
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from indexing.errors import Refused, TextRefused, UserError
from indexing.io.error_text import show_value
from indexing.io.http import HttpRequest
from indexing.io.keys import OPENAI_KEY, choose_key
from indexing.io.retry import REFUSED_CONTENT_STATUSES
from indexing.io.server import Asker
from indexing.types import Tick
from indexing.vectors.types import Cut, Vectors, on_grid

BATCH_TEXTS = 32
"""Texts of a request."""
MOST_REQUESTS = 8
"""Requests at the same time."""
REPLY_LIMIT_BYTES = 2**24
"""Of a reply: enough for `BATCH_TEXTS` vectors of 16,384 numbers with all digits."""
LARGEST_DIMENSION = 2**16
LEAST_NORM, LARGEST_NORM = 1e-9, 1e9
"""The norm of a vector. Beyond these, scaling the vector to norm 1 would lose its digits."""
REPLY_TIMEOUT_S = 120.0
WINDOW_TOKENS = 8_192
"""Tokens of a text if neither the user nor the server says how many."""
TOKEN_CHARACTERS = 4
"""Characters of a token, on average."""
SHORTEST_CUT = 100
"""Characters: a server that refuses a text of this length has another reason than the length."""
CUT_SHARE = 0.95
"""How much of the estimated window a cut text fills."""

_TOKENS = re.compile(r"(\d+) tokens\D+(\d+)")
"""The window and the length of the request, as servers report them."""


class Endpoint:
    """A model at a URL; its key is in the environment variable `key_env`, else where `keys.choose_key` looks."""

    def __init__(self, model: str, url: str, window: int | None = None, key_env: str | None = None) -> None:
        self._model, self._url, self._asked_window = model, url, window
        self._asker = Asker(url, model, choose_key(url, OPENAI_KEY, key_env).secret, MOST_REQUESTS, REPLY_TIMEOUT_S)

    @cached_property
    def window(self) -> int:
        """Tokens of a text: the user's number, else the `max_model_len` of `/v1/models`, else 8,192."""
        if self._asked_window:
            return self._asked_window
        try:
            return self._asker.ask(HttpRequest("GET", "/models", None, REPLY_LIMIT_BYTES), self._listed_window)
        except UserError:  # an endpoint need not list its models; a wrong URL shows when texts are sent
            return WINDOW_TOKENS

    def _listed_window(self, reply: Any) -> int:
        models = reply.get("data") if isinstance(reply, dict) else None
        for model in models if isinstance(models, list) else ():
            if isinstance(model, dict) and model.get("id") == self._model:
                found = model.get("max_model_len")
                return found if type(found) is int and found > 0 else WINDOW_TOKENS
        return WINDOW_TOKENS

    @cached_property
    def dimension(self) -> int:
        """Entries of a vector; the first use embeds one word to count them."""
        try:
            ((_, vector, _),) = self._embed([(0, "dimension")], Event())
        except TextRefused as error:
            raise UserError(str(error)) from error
        return len(vector)

    def embed(
        self,
        texts: Sequence[str],
        threads: int = 1,  # noqa: ARG002
        tick: Tick = lambda _: None,
        cut: Cut = lambda _: None,
    ) -> Vectors:
        """The vectors of texts, float32[len(texts), dimension], each text cut to the model's window.

        A blank text, which servers refuse, gets the zero vector. `threads` changes nothing: eight requests run at
        once on any machine.
        """
        result = np.zeros((len(texts), self.dimension), dtype=np.float32)
        longest = self.window * TOKEN_CHARACTERS
        for position, text in enumerate(texts):
            if len(text) > longest:
                cut(position)
        filled = [(position, text[:longest]) for position, text in enumerate(texts) if text[:longest].strip()]
        tick(len(texts) - len(filled))

        stopped = Event()

        def embed_batch(start: int) -> None:
            batch = filled[start : start + BATCH_TEXTS]
            for position, vector, shorter in self._embed(batch, stopped):
                result[position] = on_grid(vector[None])[0]
                if shorter and len(texts[position]) <= longest:
                    cut(position)
            tick(len(batch))

        with ThreadPoolExecutor(MOST_REQUESTS) as pool:
            jobs = [pool.submit(embed_batch, start) for start in range(0, len(filled), BATCH_TEXTS)]
            try:
                for job in jobs:
                    job.result()
            except BaseException:
                stopped.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return result

    def _embed(
        self, batch: list[tuple[int, str]], stopped: Event, shorter: bool = False
    ) -> Iterator[tuple[int, NDArray[np.float64], bool]]:
        """Position, vector, and whether the text was cut further, for texts with their positions."""
        try:
            vectors = self._ask([text for _, text in batch], stopped)
        except Refused as refusal:
            if refusal.status not in REFUSED_CONTENT_STATUSES:
                raise
            if len(batch) > 1:
                middle = len(batch) // 2
                yield from self._embed(batch[:middle], stopped, shorter)
                yield from self._embed(batch[middle:], stopped, shorter)
                return
            ((position, text),) = batch
            if len(text) <= SHORTEST_CUT:
                raise TextRefused(position, f"{refusal}: the text is refused") from refusal
            yield from self._embed([(position, shorten(text, str(refusal)))], stopped, True)
            return
        for (position, _), vector in zip(batch, vectors, strict=True):
            yield position, vector, shorter

    def _ask(self, texts: list[str], stopped: Event) -> list[NDArray[np.float64]]:
        def read(reply: Any) -> list[NDArray[np.float64]]:
            try:
                vectors = read_reply(reply, len(texts))
                if "dimension" in self.__dict__ and len(vectors[0]) != self.dimension:
                    raise ValueError(f"found a vector of {len(vectors[0])} numbers, expected {self.dimension}")
            except ValueError as error:  # asking again is paid for again
                raise UserError(f"{self._url}: {self._model}: a wrong reply: {error}") from error
            return vectors

        body = orjson.dumps({"model": self._model, "input": texts, "encoding_format": "base64"})
        return self._asker.ask(HttpRequest("POST", "/embeddings", body, REPLY_LIMIT_BYTES), read, stopped)


def shorten(text: str, reason: str) -> str:
    """A text cut to the window that a refusal names, or to its half if the refusal names none."""
    found = _TOKENS.search(reason)
    window, length = (int(found[1]), int(found[2])) if found else (0, 0)
    share = window / length * CUT_SHARE if 0 < window < length else 0.5
    return text[: int(len(text) * share)]


def read_reply(reply: Any, count: int) -> list[NDArray[np.float64]]:
    """The vectors of a reply in the order of its texts. `ValueError` unless each text has one whole vector."""
    data = reply.get("data") if isinstance(reply, dict) else None
    if not isinstance(data, list) or not all(isinstance(item, dict) for item in data):
        raise ValueError("found no list of vectors under 'data'")
    if len(data) != count:
        raise ValueError(f"found {len(data)} vectors for {count} texts")
    indexes = [item.get("index") for item in data]
    if not all(type(index) is int for index in indexes) or sorted(indexes) != list(range(count)):
        raise ValueError(f"found the indexes {show_value(indexes)}, expected 0 to {count - 1}, each once")
    vectors = [_numbers(item.get("embedding")) for item in sorted(data, key=lambda item: item["index"])]
    if len({len(vector) for vector in vectors}) > 1:
        raise ValueError(f"found vectors of {sorted({len(vector) for vector in vectors})} numbers in one reply")
    return vectors


def _numbers(found: Any) -> NDArray[np.float64]:
    """A vector that was sent as a list of numbers, or as little-endian float32 in base64."""
    vector = np.empty(0)
    if isinstance(found, str):
        try:
            vector = np.frombuffer(base64.b64decode(found, validate=True), dtype="<f4").astype(np.float64)
        except (binascii.Error, ValueError) as error:
            raise ValueError(f"found an embedding that is no list of numbers: {error}") from error
    elif isinstance(found, list) and set(map(type, found)) <= {int, float}:
        vector = np.array(found, dtype=np.float64)
    if len(vector) > LARGEST_DIMENSION:
        raise ValueError(f"found a vector of {len(vector)} numbers, expected at most {LARGEST_DIMENSION}")
    if not np.all(np.isfinite(vector)) or not vector.any():
        raise ValueError("found an embedding that is no list of finite numbers, or all zero")
    with np.errstate(over="ignore"):
        length = float(np.linalg.norm(vector))
    if not LEAST_NORM <= length <= LARGEST_NORM:
        raise ValueError(f"found an embedding of length {length:g}, expected {LEAST_NORM:g} to {LARGEST_NORM:g}")
    return vector
