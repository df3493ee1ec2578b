"""Requests as OpenAI batch files, to be answered by `vllm run-batch`, a batch service, or anyone.

What the cache does not hold is written to `<digest>.requests.jsonl` in a folder, and the run ends with `Waits`; replies
are put beside it as `<digest>.replies.jsonl`, in any order, and the same command goes on. Replies go to the cache when
they are first read. A request that was refused for its content is a `Failure` for as long as the file that says so
lies there; one that failed otherwise, or whose reply is no reply, is written again, and so is one of which a field was
refused that can be written in another way.
"""

import os
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from generation.cache import Cache
from generation.chat import (
    Answered,
    Dialect,
    Faulty,
    body_of,
    both,
    keyed_name,
    other_dialect,
    read_answer,
    refuses_schema,
    words,
)
from generation.model import Waits, key_of
from generation.types import Failure, Reply, Request, Usage
from generation.usage import add
from indexing.errors import UserError
from indexing.files import digest, json_lines

MOST_REQUESTS, MOST_BYTES = 50_000, 190_000_000
"""Of one file, which are the limits of OpenAI's batch service."""
REFUSED = (400, 404, 413, 422)
REQUESTS, REPLIES = ".requests.jsonl", ".replies.jsonl"


@contextmanager
def open_batch(model: str, folder: Path, cache: Cache, extra: Mapping[str, Any]) -> Iterator["Batch"]:
    """The model of the replies in a folder; ends with `Waits` where any are missing."""
    batch = Batch(model, folder, cache, extra)
    try:
        with suppress(Waits):  # which cannot name the file yet
            yield batch
        batch.flush()
    finally:
        batch.discard()


class Batch:
    """The `Model` whose replies are made elsewhere."""

    def __init__(self, model: str, folder: Path, cache: Cache, extra: Mapping[str, Any]) -> None:
        self.name = keyed_name(model, extra)
        self.usage: defaultdict[str, Usage] = defaultdict(Usage)
        self.notes: list[str] = []
        self._model, self._folder, self._cache, self._extra = model, folder, cache, extra
        self._refused: dict[str, Failure] = {}
        self._dialects: defaultdict[str, Dialect] = defaultdict(Dialect)
        self._dialect = Dialect()
        self._without_schema: set[str] = set()
        self._asked: set[str] = set()
        self._files: list[_Requests] = []
        with _writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        self._new = self._read_replies()

    async def complete(self, requests: Iterable[Request]) -> AsyncIterator[tuple[int, Reply | Failure]]:
        """What is known; then `Waits`, if anything is not."""
        missing = 0
        for number, request in enumerate(requests):
            key = key_of(self.name, request)
            known = self._cache.get(key)
            outcome = known.outcome if known else self._refused.get(key)
            if outcome is None:
                missing += 1
                self._record(key, request)
                continue
            new = known is not None and key in self._new
            self._new.discard(key)
            self._account(request.purpose, known.usage if new and known else Usage(cache_hits=1))
            yield number, outcome
        if missing:
            raise Waits(f"{self.name}: {missing:,} requests wait for replies")

    def flush(self) -> None:
        """Name the files of what was asked and is missing, and raise `Waits`; nothing where nothing is missing."""
        if not self._files:
            return
        with _writing(self._folder):
            named = [file.finish() for file in self._files]
        total = len(self._asked)
        self._files, self._asked = [], set()
        where = "\n".join(f"  {file}\n  replies expected in {replies_of(file).name} beside it" for file in named)
        raise Waits(
            f"{self.name}: {total:,} requests wait for replies, and the same command goes on when they are there:\n"
            f"{where}"
        )

    def discard(self) -> None:
        """Forget what was recorded."""
        for file in self._files:
            file.discard()
        self._files, self._asked = [], set()

    def _record(self, key: str, request: Request) -> None:
        if key in self._asked:
            return
        self._asked.add(key)
        if key in self._without_schema:
            request = replace(request, schema=None)
        body = body_of(self._model, request, self._extra, both(self._dialect, self._dialects[key]))
        line = orjson.dumps({"custom_id": key, "method": "POST", "url": "/v1/chat/completions", "body": body}) + b"\n"
        with _writing(self._folder):
            if not self._files or not self._files[-1].takes(line):
                self._files.append(_Requests(self._folder))
            self._files[-1].write(key, line)

    def _read_replies(self) -> set[str]:
        """Take all replies in the folder into the cache; the keys of those that were not there."""
        files = sorted(self._folder.glob(f"*{REPLIES}"))
        if not files:
            return set()
        known = {
            record["custom_id"]: isinstance(body := record.get("body"), dict) and bool(body.get("logprobs"))
            for file in sorted(self._folder.glob(f"*{REQUESTS}"))
            for _, record in _lines(file)
        }
        new = self._cache.put(reply for file in files for reply in self._replies(file, known))
        for key, dialect in self._dialects.items():
            if self._cache.get(key):  # what was refused for a text that names these fields is refused without them too
                self._dialect = both(self._dialect, dialect)
        return new

    def _replies(self, file: Path, known: Mapping[str, bool]) -> Iterator[tuple[str, Answered]]:
        """The replies of a file; `known` says of which requests, and whether with log-probabilities."""
        unknown = unusable = 0
        for number, record in _lines(file):
            key = record["custom_id"]
            if key not in known:
                unknown += 1
                continue
            try:
                answered = read_line(record, known[key])
            except Faulty:
                unusable += 1
                continue
            except ValueError as error:
                raise UserError(f"{file}:{number}: {error}") from None
            if isinstance(answered.outcome, Failure):
                if not self._rewritten(key, record):
                    self._refused[key] = answered.outcome
            else:
                yield key, answered
        if unknown:
            self.notes.append(f"{file.name}: {unknown:,} replies to requests of no file in the folder are left out")
        if unusable:
            self.notes.append(f"{file.name}: {unusable:,} requests without a usable reply are asked again")

    def _rewritten(self, key: str, record: Mapping[str, Any]) -> bool:
        """Whether the refusal of a request names what can be written in another way, as it will be."""
        response = record["response"]
        if response["status_code"] not in (400, 422):
            return False
        said = orjson.dumps(response.get("body") or record.get("error")).decode()
        if refuses_schema(said) and key not in self._without_schema:
            self._without_schema.add(key)
            note = "refuses a schema: its replies are asked for without"
        elif other := other_dialect(self._dialects[key], said):
            self._dialects[key], note = other
        else:
            return False
        if (note := f"{self._model} {note}") not in self.notes:
            self.notes.append(note)
        return True

    def _account(self, purpose: str, usage: Usage) -> None:
        self.usage[purpose] = add(self.usage[purpose], usage)


class _Requests:
    """A file of requests as it grows; it has its name when it is whole."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._keys: list[str] = []
        self._bytes = 0
        self._path = folder / f".{os.getpid()}.{id(self)}.partial"
        self._file = self._path.open("wb")

    def takes(self, line: bytes) -> bool:
        return len(self._keys) < MOST_REQUESTS and self._bytes + len(line) <= MOST_BYTES

    def write(self, key: str, line: bytes) -> None:
        self._keys.append(key)
        self._bytes += len(line)
        self._file.write(line)

    def finish(self) -> Path:
        """Its name, by the set of its requests; another where replies of that name are there and do not answer."""
        name = stem = digest(sorted(self._keys))[:16]
        repeat = 1
        while (self._folder / f"{name}{REPLIES}").exists():
            repeat += 1
            name = f"{stem}-{repeat}"
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return self._path.replace(self._folder / f"{name}{REQUESTS}")

    def discard(self) -> None:
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            self._path.unlink()


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"{folder}: cannot be written: {error.strerror}") from error


def replies_of(requests: Path) -> Path:
    """Where the replies to a file of requests are expected."""
    return requests.with_name(requests.name.removesuffix(REQUESTS) + REPLIES)


def read_line(record: Mapping[str, Any], logprobs: bool = False) -> Answered:
    """What a line of a batch's output says came of a request, with log-probabilities if they were asked for.

    `Faulty` where it is to be asked again; `ValueError` where the line is none of a batch.
    """
    response, error = record.get("response"), record.get("error")
    if response is None and error is not None:
        raise Faulty(words(error))
    if not isinstance(response, dict) or not isinstance(response.get("status_code"), int):
        raise ValueError("not a line of a batch's output: expected response.status_code")
    status, body = response["status_code"], response.get("body")
    if status == 200:
        return read_answer(body, logprobs)
    if status in REFUSED:
        return Answered(Failure(f"refused with status {status}: {words(body or error)}"))
    raise Faulty(f"{status}: {words(body or error)}")


def _lines(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, record in json_lines(file):
        if not isinstance(record.get("custom_id"), str):
            raise UserError(f"{file}:{number}: expected a line of a batch, with a custom_id")
        yield number, record
