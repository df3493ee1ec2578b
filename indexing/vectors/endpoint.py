"""Embeddings from any server with OpenAI's `/v1/embeddings`.

Requests run in parallel, and failed ones are repeated (`keystone.indexing.io.server`). If the server refuses a batch,
each half is sent again. If it refuses a single text, the text is cut further. A reply must hold one vector for each
text, all of one dimension and of finite numbers; any other reply is an error.

Only the server can count tokens. The client estimates 4 characters for each token, as in English. If the server refuses
a text, its message corrects the estimate.
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

from keystone.indexing.embedder import ReportCut, Vectors, round_to_grid
from keystone.indexing.errors import Refused, TextRefused, UserError
from keystone.indexing.io.api_keys import OPENAI_KEY, choose_key
from keystone.indexing.io.error_text import name_members, show_value
from keystone.indexing.io.http import HttpRequest
from keystone.indexing.io.json_values import read_whole_number
from keystone.indexing.io.retry import refuses_content
from keystone.indexing.io.server import Asker
from keystone.indexing.types import Tick, chunks

BATCH_TEXTS = 32
MOST_REQUESTS = 8
REPLY_LIMIT_BYTES = 2**24
"""The largest reply: enough for `BATCH_TEXTS` vectors of 16,384 numbers with all digits."""
LARGEST_DIMENSION_ENTRIES = 2**16
LEAST_NORM, LARGEST_NORM = 1e-9, 1e9
"""Bounds of the norm of a vector. Scaling a vector beyond these bounds to norm 1 would lose its digits."""
REPLY_TIMEOUT_S = 120.0
WINDOW_TOKENS = 8_192
"""The model's window, if neither the user nor the server states it."""
TOKEN_CHARACTERS = 4
"""The average length of a token."""
SHORTEST_CUT_CHARACTERS = 100
"""If a server refuses a text of this length, its reason is not the length."""
CUT_WINDOW_SHARE = 0.95
"""The share of the estimated window that a cut text fills."""

_TOKEN_COUNTS = re.compile(r"(\d+) tokens\D+(\d+)")
"""Finds the window and the length of the request in a server's message, in either order."""
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}\b)")
"""Commas within numbers, as in `8,192 tokens`."""
_BASE64 = re.compile("base64|encoding_format", re.IGNORECASE)
"""Finds the field that a server does not take in its message."""


class Endpoint:
    """A model at a URL. Its key is in the environment variable `key_env`; if that is None, `choose_key` chooses it."""

    def __init__(self, model: str, url: str, window: int | None = None, key_env: str | None = None) -> None:
        self._model, self._url, self._asked_window = model, url, window
        self._takes_base64 = True
        self._asker = Asker(url, model, choose_key(url, OPENAI_KEY, key_env).secret, MOST_REQUESTS, REPLY_TIMEOUT_S)

    @cached_property
    def window(self) -> int:
        """The model's window in tokens: the user's number, else the `max_model_len` of `/v1/models`, else 8,192."""
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
                return max(0, read_whole_number(model.get("max_model_len")) or 0) or WINDOW_TOKENS
        return WINDOW_TOKENS

    @cached_property
    def dimension(self) -> int:
        """The number of entries of a vector. The first use embeds one word to count them. `UserError` if that fails."""
        try:
            ((_, vector, _),) = self._embed([(0, "dimension")], Event())
        except TextRefused as error:
            raise UserError(str(error)) from error
        return len(vector)

    def find_long(self, texts: Sequence[str]) -> list[int]:
        """The positions of the texts that are longer than the model's window by the estimate of characters."""
        return [position for position, text in enumerate(texts) if len(text) > self.window * TOKEN_CHARACTERS]

    def embed(
        self,
        texts: Sequence[str],
        threads: int = 1,  # noqa: ARG002
        tick: Tick = lambda _: None,
        cut: ReportCut = lambda _: None,
    ) -> Vectors:
        """The vectors of texts, float32[len(texts), dimension], each text cut to the model's window.

        A blank text gets the zero vector, since servers refuse it. `threads` has no effect: eight requests run at once
        on any machine. `TextRefused` if the server refuses a text at any length. `UserError` if requests fail.
        """
        result = np.zeros((len(texts), self.dimension), dtype=np.float32)
        longest = self.window * TOKEN_CHARACTERS
        for position in self.find_long(texts):
            cut(position)
        filled = [(position, text[:longest]) for position, text in enumerate(texts) if text[:longest].strip()]
        tick(len(texts) - len(filled))

        stopped = Event()

        def embed_batch(batch: list[tuple[int, str]]) -> None:
            for position, vector, shorter in self._embed(batch, stopped):
                result[position] = round_to_grid(vector[None])[0]
                if shorter and len(texts[position]) <= longest:
                    cut(position)
            tick(len(batch))

        with ThreadPoolExecutor(MOST_REQUESTS) as pool:
            jobs = [pool.submit(embed_batch, batch) for batch in chunks(filled, BATCH_TEXTS)]
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
            if not refuses_content(refusal.status, str(refusal)):
                raise
            if len(batch) > 1:
                middle = len(batch) // 2
                yield from self._embed(batch[:middle], stopped, shorter)
                yield from self._embed(batch[middle:], stopped, shorter)
                return
            ((position, text),) = batch
            if len(text) <= SHORTEST_CUT_CHARACTERS:
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
            except ValueError as error:  # no new try, since each one costs money
                raise UserError(f"{self._url}: {self._model}: a wrong reply: {error}") from error
            return vectors

        def ask(**further: str) -> list[NDArray[np.float64]]:
            body = orjson.dumps({"model": self._model, "input": texts, **further})
            return self._asker.ask(HttpRequest("POST", "/embeddings", body, REPLY_LIMIT_BYTES), read, stopped)

        if self._takes_base64:
            try:
                return ask(encoding_format="base64")
            except Refused as refusal:
                if not _BASE64.search(str(refusal)):
                    raise
                self._takes_base64 = False
        return ask()


def shorten(text: str, reason: str) -> str:
    """A text cut to the window that a refusal names, or to its half if the refusal names none."""
    found = _TOKEN_COUNTS.search(_THOUSANDS.sub("", reason))
    window, length = sorted((int(found[1]), int(found[2]))) if found else (0, 0)
    share = window / length * CUT_WINDOW_SHARE if 0 < window < length else 0.5
    return text[: int(len(text) * share)]


def read_reply(reply: Any, count: int) -> list[NDArray[np.float64]]:
    """The vectors of a reply in the order of its texts. `ValueError` unless each text has one whole vector."""
    data = reply.get("data") if isinstance(reply, dict) else None
    if not isinstance(data, list) or not all(isinstance(item, dict) for item in data):
        raise ValueError(f"found no list of vectors under 'data'{name_members(reply)}")
    if len(data) != count:
        raise ValueError(f"found {len(data)} vectors for {count} texts")
    by_index = {read_whole_number(item.get("index")): item.get("embedding") for item in data}
    if by_index.keys() != set(range(count)):
        found = show_value([item.get("index") for item in data])
        raise ValueError(f"found the indexes {found}, expected 0 to {count - 1}, each once")
    vectors = [_read_vector(by_index[index]) for index in range(count)]
    if len({len(vector) for vector in vectors}) > 1:
        raise ValueError(f"found vectors of {sorted({len(vector) for vector in vectors})} numbers in one reply")
    return vectors


def _read_vector(found: Any) -> NDArray[np.float64]:
    """A vector of numbers or base64 of float32: float64[d]. `ValueError` unless finite, not zero, and not too long."""
    vector = np.empty(0)
    if isinstance(found, str):
        try:
            vector = np.frombuffer(base64.b64decode(found, validate=True), dtype="<f4").astype(np.float64)
        except (binascii.Error, ValueError) as error:
            raise ValueError(f"found an embedding that is not a list of numbers: {error}") from error
    elif isinstance(found, list) and set(map(type, found)) <= {int, float}:
        vector = np.array(found, dtype=np.float64)
    if len(vector) > LARGEST_DIMENSION_ENTRIES:
        raise ValueError(f"found a vector of {len(vector)} numbers, expected at most {LARGEST_DIMENSION_ENTRIES}")
    if not np.all(np.isfinite(vector)) or not vector.any():
        raise ValueError("found an embedding that is not a list of finite numbers, or all zero")
    with np.errstate(over="ignore"):
        length = float(np.linalg.norm(vector))
    if not LEAST_NORM <= length <= LARGEST_NORM:
        raise ValueError(f"found an embedding of length {length:g}, expected {LEAST_NORM:g} to {LARGEST_NORM:g}")
    return vector
