"""Recorded replies that replace a model."""

from collections import defaultdict
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, closing, nullcontext
from dataclasses import replace
from pathlib import Path

import orjson

from keystone.generation.llm.cache import Cache, decode_reply, encode_reply
from keystone.generation.llm.chat import REPLY_LIMIT_BYTES, PaidReply, make_keyed_name
from keystone.generation.llm.model import OpenModel, PromptSizes, make_request_key
from keystone.generation.llm.settings import ModelSettings
from keystone.generation.types import Failure, Reply, Request, Usage
from keystone.indexing.errors import NotRecorded, UserError
from keystone.indexing.io.reading import read_json_lines
from keystone.indexing.io.writing import write_whole


@asynccontextmanager
async def open_backend(settings: ModelSettings, folder: Path, retry: bool = False) -> AsyncIterator[OpenModel]:
    """Open the model of recorded replies and of the replies in the cache. `UserError` for `retry`: it asks nobody."""
    if retry:
        raise UserError("model.backend: found 'replay', which asks nobody again, expected another backend")
    cache = settings.replies_in(folder)
    with closing(Cache(cache)) if cache.exists() else nullcontext() as known:
        yield Replay(make_keyed_name(settings.name, settings.extra), settings.replies, known)


class Replay:
    """The `Model` of the replies in a JSONL file, in a cache, or in both.

    Its usage has the tokens that the replies took when they were recorded: a run shows what it would cost.
    """

    def __init__(self, name: str, recorded: Path | None, cache: Cache | None = None) -> None:
        self.name = name
        self.usage: defaultdict[str, Usage] = defaultdict(Usage)
        self.notes: list[str] = []
        self.prompts = PromptSizes()
        self._recorded = {} if recorded is None else read_recorded(recorded)
        self._cache = cache

    async def complete(self, requests: Iterable[Request]) -> AsyncIterator[tuple[int, Reply | Failure]]:
        """Yield each request's recorded reply, in order. `NotRecorded` if a request has none."""
        for number, request in enumerate(requests):
            key = make_request_key(self.name, request)
            found = self._recorded.get(key) or (self._cache and self._cache.get(key))
            if not found:
                raise NotRecorded(f"{self.name}: no recorded reply to a request of {request.purpose!r}, key {key}")
            self.prompts.note(request, found.usage)
            paid = replace(found.usage, calls=0, retries=0, seconds=0.0, cache_hits=1)
            self.usage[request.purpose] += paid
            yield number, found.outcome


def read_recorded(path: Path) -> dict[str, PaidReply]:
    """Read the replies of a JSONL file by their `key`, each as `decode_reply` does. `UserError` names a wrong line."""
    found = {}
    for number, row in read_json_lines(path, longest=REPLY_LIMIT_BYTES):
        try:
            found[str(row["key"])] = decode_reply(row)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise UserError(f"{path}:{number}: not a recorded reply, expected key, text and finish") from None
    return found


def record_replies(cache: Path, path: Path) -> int:
    """Write the replies of a cache to a file of recorded ones; returns their number. `UserError` if that is missing."""
    if not cache.exists():
        raise UserError(f"{cache}: no such file, expected a cache of replies")
    number = 0
    with closing(Cache(cache)) as replies, write_whole(path) as file:
        for key, answered in replies.items():
            file.write(orjson.dumps({"key": key, **orjson.loads(encode_reply(answered))}) + b"\n")
            number += 1
    return number
