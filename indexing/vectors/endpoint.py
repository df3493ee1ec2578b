"""Embeddings from any server that speaks OpenAI's `/v1/embeddings`.

Requests run in parallel and are repeated (`indexing.io.server`). A batch that the server refuses is sent again in
halves; a text that it refuses alone is cut further. A reply that is not one vector a text, of one dimension and of
finite numbers, is an error.

Tokens are the server's affair: a window of so many tokens is taken for four times as many characters, which is
about right for English, and the server's refusal corrects it where it is not.
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

from indexing.errors import UserError
from indexing.io.http import said
from indexing.io.keys import key_for
from indexing.io.server import Asked, Asker, Refused
from indexing.types import Tick
from indexing.vectors.types import Cut, TextRefused, Vectors, on_grid

BATCH = 32
"""Texts of a request."""
REQUESTS = 8
"""Requests at the same time."""
KEY = "OPENAI_API_KEY"
"""The environment variable of the key where none is named."""
REPLY_LIMIT_BYTES = 2**24
"""Of a reply: enough for `BATCH` vectors of 16,384 numbers with all digits."""
LARGEST_DIMENSION = 2**16
LENGTHS = 1e-9, 1e9
"""Between which the length of a vector lies. Outside, what it says would be lost when it is given length 1."""
SECONDS = 120.0
"""How long a reply may take."""
WINDOW = 8_192
"""Tokens of a text, where neither the user nor the server says how many."""
CHARACTERS = 4
"""Of a token, on average."""
SHORTEST = 100
"""Characters: a text that is refused at this length is refused for another reason."""
REFUSED = (400, 413, 422)
MARGIN = 0.95

_TOKENS = re.compile(r"(\d+) tokens\D+(\d+)")
"""A window and the length of what was sent, as servers report them."""


class Endpoint:
    """A model at a URL. Its key is in the environment variable `key_env`, else as `indexing.io.keys.key_for` has it."""

    def __init__(self, model: str, url: str, window: int | None = None, key_env: str | None = None) -> None:
        self._model, self._url, self._asked_window = model, url, window
        self._asker = Asker(url, model, key_for(url, KEY, key_env), REQUESTS, SECONDS)

    @cached_property
    def window(self) -> int:
        """Tokens of a text: as asked for, else the `max_model_len` of `/v1/models`, else 8,192."""
        if self._asked_window:
            return self._asked_window
        try:
            return self._asker.ask(Asked("GET", "/models", None, REPLY_LIMIT_BYTES), self._listed_window)
        except UserError:  # an endpoint need not list its models; a wrong URL shows when texts are sent
            return WINDOW

    def _listed_window(self, reply: Any) -> int:
        models = reply.get("data") if isinstance(reply, dict) else None
        for model in models if isinstance(models, list) else ():
            if isinstance(model, dict) and model.get("id") == self._model:
                found = model.get("max_model_len")
                return found if type(found) is int and found > 0 else WINDOW
        return WINDOW

    @cached_property
    def dimension(self) -> int:
        """Entries of a vector, learnt by sending a word."""
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
        """Embed texts, each cut to the model's window; a blank text, which servers refuse, has the zero vector.

        `threads` is of no account: eight requests run at once, whatever this machine has.
        """
        result = np.zeros((len(texts), self.dimension), dtype=np.float32)
        longest = self.window * CHARACTERS
        for position, text in enumerate(texts):
            if len(text) > longest:
                cut(position)
        filled = [(position, text[:longest]) for position, text in enumerate(texts) if text[:longest].strip()]
        tick(len(texts) - len(filled))

        stopped = Event()

        def embed_batch(start: int) -> None:
            batch = filled[start : start + BATCH]
            for position, vector, shorter in self._embed(batch, stopped):
                result[position] = on_grid(vector[None])[0]
                if shorter and len(texts[position]) <= longest:
                    cut(position)
            tick(len(batch))

        with ThreadPoolExecutor(REQUESTS) as pool:
            jobs = [pool.submit(embed_batch, start) for start in range(0, len(filled), BATCH)]
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
        """Position, vector, and whether the text had to be cut further, for texts with their positions."""
        try:
            vectors = self._ask([text for _, text in batch], stopped)
        except Refused as refusal:
            if refusal.status not in REFUSED:
                raise
            if len(batch) > 1:
                middle = len(batch) // 2
                yield from self._embed(batch[:middle], stopped, shorter)
                yield from self._embed(batch[middle:], stopped, shorter)
                return
            ((position, text),) = batch
            if len(text) <= SHORTEST:
                raise TextRefused(position, f"{refusal}: the text is refused") from refusal
            yield from self._embed([(position, shortened(text, str(refusal)))], stopped, True)
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
        return self._asker.ask(Asked("POST", "/embeddings", body, REPLY_LIMIT_BYTES), read, stopped)


def shortened(text: str, reason: str) -> str:
    """A text cut to the window that a refusal names, else to its half."""
    found = _TOKENS.search(reason)
    window, length = (int(found[1]), int(found[2])) if found else (0, 0)
    share = window / length * MARGIN if 0 < window < length else 0.5
    return text[: int(len(text) * share)]


def read_reply(reply: Any, count: int) -> list[NDArray[np.float64]]:
    """The vectors of a reply in the order of its texts. `ValueError` for anything but one whole vector each."""
    data = reply.get("data") if isinstance(reply, dict) else None
    if not isinstance(data, list) or not all(isinstance(item, dict) for item in data):
        raise ValueError("found no list of vectors under 'data'")
    if len(data) != count:
        raise ValueError(f"found {len(data)} vectors for {count} texts")
    indexes = [item.get("index") for item in data]
    if not all(type(index) is int for index in indexes) or sorted(indexes) != list(range(count)):
        raise ValueError(f"found the indexes {said(indexes)}, expected 0 to {count - 1}, each once")
    vectors = [_numbers(item.get("embedding")) for item in sorted(data, key=lambda item: item["index"])]
    if len({len(vector) for vector in vectors}) > 1:
        raise ValueError(f"found vectors of {sorted({len(vector) for vector in vectors})} numbers in one reply")
    return vectors


def _numbers(found: Any) -> NDArray[np.float64]:
    """A vector sent as a list of numbers, or as little-endian float32 in base64."""
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
    if not LENGTHS[0] <= length <= LENGTHS[1]:
        raise ValueError(f"found an embedding of length {length:g}, expected {LENGTHS[0]:g} to {LENGTHS[1]:g}")
    return vector
