"""Requests as OpenAI batch files, to be answered by `vllm run-batch`, a batch service, or anyone.

Requests without a reply in the cache are written to `<digest>.requests.jsonl` in a folder, and the run ends with
`Waits`. The user puts the replies beside it as `<digest>.replies.jsonl`, in any order, and the same command goes on.
Replies go to the cache when they are first read.

If a request was refused for its content, it is a `Failure` as long as the file of the refusal lies there. If it failed
otherwise, or if its reply cannot be used, it is written again. If the refusal names a field that can be written in
another way, the request is written so. A message counts and names unusable replies and repeated requests, because the
user pays for them again.
"""

import logging
import os
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson

from generation.llm.cache import Cache
from generation.llm.chat import (
    REPLY_LIMIT_BYTES,
    Dialect,
    PaidReply,
    ReplyBound,
    combine,
    keyed_name,
    other_dialect,
    read_bound,
    read_reply,
    refuses_schema,
    write_body,
)
from generation.llm.model import OpenModel, key_of
from generation.llm.settings import BATCHES, ModelSettings
from generation.llm.usage import add
from generation.types import Failure, Reply, Request, Usage
from indexing.errors import BadRecord, Report, UserError, Waits, WrongReply, printable, stop
from indexing.io.error_text import error_text
from indexing.io.files import LONGEST_LINE, digest, json_lines
from indexing.io.retry import CONTENT_REFUSALS

MOST_REQUESTS, MOST_BYTES = 50_000, 190_000_000
"""Requests and bytes of one file: the limits of OpenAI's batch service."""
REQUESTS, REPLIES = ".requests.jsonl", ".replies.jsonl"
MOST_NAMED = 3
"""Requests or lines that a message names."""

_log = logging.getLogger(__name__)


@asynccontextmanager
async def open_backend(settings: ModelSettings, folder: Path) -> AsyncIterator[OpenModel]:
    """The model of the replies in a folder of batch files; ends with `Waits` if any are missing."""
    with closing(Cache(settings.replies_in(folder))) as cache:
        batch = Batch(settings.name, folder / BATCHES, cache, settings.extra)
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
        self._answered: dict[str, str] = {}
        """The fate of each request that has a reply already, by its key."""
        self._waiting: defaultdict[str, list[Path]] = defaultdict(list)
        """The files that hold a request and wait for replies, by the request's key."""
        self._dialects: defaultdict[str, Dialect] = defaultdict(Dialect)
        self._dialect = Dialect()
        self._without_schema: set[str] = set()
        self._asked: set[str] = set()
        self._files: list[_Requests] = []
        with _writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        self._new = self._read_replies()

    async def complete(self, requests: Iterable[Request]) -> AsyncIterator[tuple[int, Reply | Failure]]:
        """The known outcomes; then `Waits`, if any reply is missing."""
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
            raise Waits(f"{self.name}: {_waits(missing)} for replies")

    def flush(self) -> None:
        """Write the files of missing requests and raise `Waits`, which names them; do nothing if none is missing."""
        if not self._files:
            return
        with _writing(self._folder):
            named = [file.finish() for file in self._files]
        asked = sorted(self._asked)
        self._files, self._asked = [], set()
        message = [
            f"{self.name}: {_waits(len(asked))} for replies, and the same command goes on when they are there:",
            *(f"  {file}\n  replies expected in {replies_of(file).name} beside it" for file in named),
        ]
        if again := [f"{key} ({self._answered[key]})" for key in asked if key in self._answered]:
            message.append(f"{len(again):,} of these {len(asked):,} had been asked before: {_named(again)}")
        if twice := [f"{key} ({file.name})" for key in asked for file in self._waiting[key][:1] if file not in named]:
            message.append(
                f"{len(twice):,} of these {len(asked):,} stand in other files too, which wait for replies. If those "
                f"are being answered, wait for them, so that nothing is paid twice: {_named(twice)}"
            )
        raise Waits("\n".join(message))

    def discard(self) -> None:
        """Forget the recorded requests."""
        for file in self._files:
            file.discard()
        self._files, self._asked = [], set()

    def _record(self, key: str, request: Request) -> None:
        if key in self._asked:
            return
        self._asked.add(key)
        if key in self._without_schema:
            request = replace(request, schema=None)
        body = write_body(self._model, request, self._extra, combine(self._dialect, self._dialects[key]))
        line = orjson.dumps({"custom_id": key, "method": "POST", "url": "/v1/chat/completions", "body": body}) + b"\n"
        with _writing(self._folder):
            if not self._files or not self._files[-1].takes(line):
                self._files.append(_Requests(self._folder))
            self._files[-1].write(key, line)

    def _read_replies(self) -> set[str]:
        """Take all replies of the folder into the cache; returns the keys of the new ones."""
        known: dict[str, ReplyBound] = {}
        for file in sorted(self._folder.glob(f"*{REQUESTS}")):
            replies = replies_of(file)
            for _, record in _lines(file):
                key, body = record["custom_id"], record.get("body")
                known[key] = read_bound(body if isinstance(body, dict) else {})
                if replies.exists():
                    self._answered[key] = f"{replies.name} holds no reply"
                else:
                    self._waiting[key].append(file)
        files = {file: _FileAccount(file) for file in sorted(self._folder.glob(f"*{REPLIES}"))}
        new = (
            self._cache.put(reply for account in files.values() for reply in self._replies(account, known))
            if files
            else set()
        )
        for account in files.values():
            account.failed = {key: why for key, why in account.failed.items() if not self._cache.get(key)}
            if account.is_odd:
                self.notes.append(str(account))
            if account.is_odd or not new.isdisjoint(account.taken):
                _log.warning("%s", account)
        for key, dialect in self._dialects.items():
            if self._cache.get(key):  # what was refused for a text that names these fields is refused without them too
                self._dialect = combine(self._dialect, dialect)
        return new

    def _replies(self, account: "_FileAccount", known: Mapping[str, ReplyBound]) -> Iterator[tuple[str, PaidReply]]:
        """The replies of a file, while its account grows; `known` holds the bound of each request."""
        for number, record in _lines(account.file, account.add_broken, REPLY_LIMIT_BYTES):
            key = record["custom_id"]
            if key not in known:
                account.unknown.append(printable(key))
                continue
            try:
                answered = read_line(record, known[key])
            except (WrongReply, ValueError) as error:
                self._answered[key] = account.failed[key] = f"line {number}: {error}"
                continue
            if not isinstance(answered.outcome, Failure):
                account.taken.append(key)
                yield key, answered
            elif self._rewritten(key, record):
                self._answered[key] = f"{answered.outcome.reason}, and is asked in another way"
            else:
                self._refused[key] = answered.outcome
                account.refused[key] = answered.outcome.reason

    def _rewritten(self, key: str, record: Mapping[str, Any]) -> bool:
        """Whether a refusal names a field that can be written in another way; the next file writes it so."""
        response = record["response"]
        if response["status_code"] not in CONTENT_REFUSALS - {413}:
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


@dataclass(slots=True)
class _FileAccount:
    """The content of a file of replies: the keys of those taken, and all others with the reason."""

    file: Path
    taken: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    def add_broken(self, error: BadRecord) -> None:
        """A `Report`; a file that cannot be read to its end is an error."""
        if error.kind == "unreadable file":
            raise error
        self.broken.append(f"line {str(error).removeprefix(f'{self.file}:')}")

    @property
    def is_odd(self) -> bool:
        """Whether the file holds anything but replies that are taken."""
        return bool(self.failed or self.refused or self.unknown or self.broken)

    def __str__(self) -> str:
        others = {
            "not usable": [f"{key} ({why})" for key, why in self.failed.items()],
            "refused": [f"{key} ({why})" for key, why in self.refused.items()],
            "to no request in the folder": self.unknown,
            "on broken lines": self.broken,
        }
        taken = "1 reply is" if len(self.taken) == 1 else f"{len(self.taken):,} replies are"
        parts = [f"{len(names):,} {what}: {_named(names)}" for what, names in others.items() if names]
        return "; ".join([f"{self.file}: {taken} taken", *parts])


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
        """Give the file its name by the set of its requests; a new one if replies of that name do not answer them."""
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


def _named(names: Sequence[str]) -> str:
    """The first of some names, and the number of the others."""
    more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
    return f"{', '.join(names[:MOST_NAMED])}{more}"


def _waits(number: int) -> str:
    return "1 request waits" if number == 1 else f"{number:,} requests wait"


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"{folder}: cannot be written: {error.strerror}") from error


def replies_of(requests: Path) -> Path:
    """The file of the replies to a file of requests."""
    return requests.with_name(requests.name.removesuffix(REQUESTS) + REPLIES)


def read_line(record: Mapping[str, Any], bound: ReplyBound) -> PaidReply:
    """The outcome of a request in one line of a batch's output.

    `WrongReply` if the request has to be sent again. `ValueError` if the line is no line of a batch.
    """
    response, error = record.get("response"), record.get("error")
    if response is None and error is not None:
        raise WrongReply(error_text(error))
    if not isinstance(response, dict) or not isinstance(response.get("status_code"), int):
        raise ValueError("not a line of a batch's output: expected response.status_code")
    status, body = response["status_code"], response.get("body")
    if status == 200:
        return read_reply(body, bound)
    if status in CONTENT_REFUSALS or status == 404:
        return PaidReply(Failure(f"refused with status {status}: {error_text(body or error)}"))
    raise WrongReply(f"{status}: {error_text(body or error)}")


def _lines(file: Path, report: Report = stop, longest: int = LONGEST_LINE) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, record in json_lines(file, report, longest):
        if isinstance(record.get("custom_id"), str):
            yield number, record
        else:
            report(BadRecord(f"{file}:{number}: expected a line of a batch, with a custom_id", "no line of a batch"))
