"""Embeddings from any server that speaks OpenAI's `/v1/embeddings`.

Requests run in parallel and are repeated, after the pause that the server asks for, when it is busy, fails or
breaks off. A batch that it refuses is sent again in halves; a text that it refuses alone is cut further. A reply
that is not one vector a text, of one dimension and of finite numbers, is an error.

Tokens are the server's affair: a window of so many tokens is taken for four times as many characters, which is
about right for English, and the server's refusal corrects it where it is not.
"""

import base64
import binascii
import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from indexing.embed import Cut, TextRefused, Vectors, on_grid
from indexing.errors import UserError
from indexing.types import Tick

BATCH = 32
"""Texts of a request."""
REQUESTS = 8
"""Requests at the same time."""
RETRIES = 6
TORN = 3
"""How often a reply may end in the middle before that is an error."""
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
    """A model at a URL. The key is `OPENAI_API_KEY`; servers without keys do not look at it."""

    def __init__(self, model: str, url: str, window: int | None = None) -> None:
        import openai

        self._model, self._url, self._asked_window = model, url, window
        key = os.environ.get("OPENAI_API_KEY") or "none"
        try:
            self._client = openai.OpenAI(base_url=url, api_key=key, max_retries=RETRIES, timeout=SECONDS)
        except Exception as error:  # the client's checks of a URL raise what its transport raises
            raise UserError(f"{url}: not the URL of an endpoint: {error}") from error

    @cached_property
    def window(self) -> int:
        """Tokens of a text: as asked for, else the `max_model_len` of `/v1/models`, else 8,192."""
        if self._asked_window:
            return self._asked_window
        try:
            known = {model.id: model.to_dict().get("max_model_len") for model in self._client.models.list()}
        except Exception:  # an endpoint need not list its models; a wrong URL shows when texts are sent
            known = {}
        found = known.get(self._model)
        return found if isinstance(found, int) and found > 0 else WINDOW

    @cached_property
    def dimension(self) -> int:
        """Entries of a vector, learnt by sending a word."""
        try:
            ((_, vector, _),) = self._embed([(0, "dimension")])
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

        def embed_batch(start: int) -> None:
            batch = filled[start : start + BATCH]
            for position, vector, shorter in self._embed(batch):
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
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return result

    def _embed(
        self, batch: list[tuple[int, str]], shorter: bool = False
    ) -> Iterator[tuple[int, NDArray[np.float64], bool]]:
        """Position, vector, and whether the text had to be cut further, for texts with their positions."""
        try:
            vectors = self._ask([text for _, text in batch])
        except _Refused as refusal:
            if len(batch) > 1:
                middle = len(batch) // 2
                yield from self._embed(batch[:middle], shorter)
                yield from self._embed(batch[middle:], shorter)
                return
            ((position, text),) = batch
            if len(text) <= SHORTEST:
                raise TextRefused(position, f"{self._url}: {self._model} refused the text: {refusal}") from refusal
            yield from self._embed([(position, shortened(text, str(refusal)))], True)
            return
        for (position, _), vector in zip(batch, vectors, strict=True):
            yield position, vector, shorter

    def _ask(self, texts: list[str]) -> list[NDArray[np.float64]]:
        """One request, repeated while its reply is torn."""
        for attempt in range(TORN):
            body = self._send(texts)
            try:
                reply = orjson.loads(body)
            except orjson.JSONDecodeError as error:
                if attempt == TORN - 1:
                    raise UserError(f"{self._url}: {self._model}: a reply that is not JSON: {error}") from error
                continue
            try:
                vectors = read_reply(reply, len(texts))
                if "dimension" in self.__dict__ and len(vectors[0]) != self.dimension:
                    raise ValueError(f"found a vector of {len(vectors[0])} numbers, expected {self.dimension}")
            except ValueError as error:
                raise UserError(f"{self._url}: {self._model}: a wrong reply: {error}") from error
            return vectors
        raise AssertionError

    def _send(self, texts: list[str]) -> bytes:
        import openai

        try:
            create = self._client.embeddings.with_raw_response.create
            return create(model=self._model, input=texts, encoding_format="base64").content
        except openai.APIStatusError as error:
            if error.status_code in REFUSED:
                raise _Refused(error.message) from error
            raise UserError(f"{self._url}: {self._model}: {error.message}") from error
        except openai.APIError as error:
            cause = f": {error.__cause__}" if error.__cause__ else ""
            raise UserError(f"{self._url}: cannot be reached: {error.message}{cause}") from error


class _Refused(Exception):
    """The server takes neither this request nor the same one again."""


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
        raise ValueError(f"found the indexes {indexes}, expected 0 to {count - 1}, each once")
    vectors = [_numbers(item.get("embedding")) for item in sorted(data, key=lambda item: item["index"])]
    if len({len(vector) for vector in vectors}) > 1:
        raise ValueError(f"found vectors of {sorted({len(vector) for vector in vectors})} numbers in one reply")
    return vectors


def _numbers(found: Any) -> NDArray[np.float64]:
    """A vector sent as a list of numbers, or as little-endian float32 in base64."""
    try:
        if isinstance(found, str):
            vector = np.frombuffer(base64.b64decode(found, validate=True), dtype="<f4")
        else:
            vector = np.array(found)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"found an embedding that is no list of numbers: {error}") from error
    if vector.ndim != 1 or vector.dtype.kind not in "fi" or not np.all(np.isfinite(vector)) or not vector.any():
        raise ValueError("found an embedding that is no list of finite numbers, or all zero")
    return vector.astype(np.float64)
