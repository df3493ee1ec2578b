"""Requests as OpenAI batch files, to be answered by `vllm run-batch`, a batch service, or anyone.

What the cache does not hold is written to `<digest>.requests.jsonl` in a folder, and the run ends with `Waits`; replies
are put beside it as `<digest>.replies.jsonl`, in any order, and the same command goes on. Replies go to the cache when
they are first read. A request that was refused for its content is a `Failure` for as long as the file that says so
lies there; one that failed otherwise, or whose reply is no reply, is written again, and so is one of which a field was
refused that can be written in another way. Replies that cannot be used, and requests that are written again, are
counted and named: whoever has them answered pays for them again.
"""

import logging
import os
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import orjson

from generation.llm.cache import Cache
from generation.llm.chat import (
    REPLY_LIMIT_BYTES,
    Answered,
    Asked,
    Dialect,
    Faulty,
    asked_of,
    body_of,
    both,
    keyed_name,
    other_dialect,
    read_answer,
    refuses_schema,
    words,
)
from generation.llm.model import Waits, key_of
from generation.llm.usage import add
from generation.types import Failure, Reply, Request, Usage
from indexing.errors import BadRecord, Report, UserError, printable, stop
from indexing.io.files import LONGEST_LINE, digest, json_lines

MOST_REQUESTS, MOST_BYTES = 50_000, 190_000_000
"""Of one file, which are the limits of OpenAI's batch service."""
REFUSED = (400, 404, 413, 422)
REQUESTS, REPLIES = ".requests.jsonl", ".replies.jsonl"
MOST_NAMED = 3
"""Of the requests or lines that a message counts."""

_log = logging.getLogger(__name__)


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
        self._answered: dict[str, str] = {}
        """What became of the requests to which there are replies already, by their keys."""
        self._waiting: defaultdict[str, list[Path]] = defaultdict(list)
        """The files that hold a request and have no replies yet, by its key."""
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
            raise Waits(f"{self.name}: {_waits(missing)} for replies")

    def flush(self) -> None:
        """Name the files of what was asked and is missing, and raise `Waits`; nothing where nothing is missing."""
        if not self._files:
            return
        with _writing(self._folder):
            named = [file.finish() for file in self._files]
        asked = sorted(self._asked)
        self._files, self._asked = [], set()
        told = [
            f"{self.name}: {_waits(len(asked))} for replies, and the same command goes on when they are there:",
            *(f"  {file}\n  replies expected in {replies_of(file).name} beside it" for file in named),
        ]
        if again := [f"{key} ({self._answered[key]})" for key in asked if key in self._answered]:
            told.append(f"{len(again):,} of these {len(asked):,} had been asked before: {_named(again)}")
        if twice := [f"{key} ({file.name})" for key in asked for file in self._waiting[key][:1] if file not in named]:
            told.append(
                f"{len(twice):,} of these {len(asked):,} stand in other files too, which wait for replies. If those "
                f"are being answered, wait for them, so that nothing is paid twice: {_named(twice)}"
            )
        raise Waits("\n".join(told))

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
        known: dict[str, Asked] = {}
        for file in sorted(self._folder.glob(f"*{REQUESTS}")):
            replies = replies_of(file)
            for _, record in _lines(file):
                key, body = record["custom_id"], record.get("body")
                known[key] = asked_of(body if isinstance(body, dict) else {})
                if replies.exists():
                    self._answered[key] = f"{replies.name} holds no reply"
                else:
                    self._waiting[key].append(file)
        files = {file: _Told(file) for file in sorted(self._folder.glob(f"*{REPLIES}"))}
        new = (
            self._cache.put(reply for told in files.values() for reply in self._replies(told, known))
            if files
            else set()
        )
        for told in files.values():
            told.failed = {key: why for key, why in told.failed.items() if not self._cache.get(key)}
            if told.is_odd:
                self.notes.append(str(told))
            if told.is_odd or not new.isdisjoint(told.taken):
                _log.warning("%s", told)
        for key, dialect in self._dialects.items():
            if self._cache.get(key):  # what was refused for a text that names these fields is refused without them too
                self._dialect = both(self._dialect, dialect)
        return new

    def _replies(self, told: "_Told", known: Mapping[str, Asked]) -> Iterator[tuple[str, Answered]]:
        """The replies of a file, in which the account of it grows; `known` says how much each request asks for."""
        for number, record in _lines(told.file, told.add_broken, REPLY_LIMIT_BYTES):
            key = record["custom_id"]
            if key not in known:
                told.unknown.append(printable(key))
                continue
            try:
                answered = read_line(record, known[key])
            except (Faulty, ValueError) as error:
                self._answered[key] = told.failed[key] = f"line {number}: {error}"
                continue
            if not isinstance(answered.outcome, Failure):
                told.taken.append(key)
                yield key, answered
            elif self._rewritten(key, record):
                self._answered[key] = f"{answered.outcome.reason}, and is asked in another way"
            else:
                self._refused[key] = answered.outcome
                told.refused[key] = answered.outcome.reason

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


@dataclass(slots=True)
class _Told:
    """What a file of replies holds: the keys of those that are taken, and what cannot be, with the reason."""

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
        """Whether there is anything but replies that are taken."""
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


def _named(names: Sequence[str]) -> str:
    """The first of some names, and how many more there are."""
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
    """Where the replies to a file of requests are expected."""
    return requests.with_name(requests.name.removesuffix(REQUESTS) + REPLIES)


def read_line(record: Mapping[str, Any], asked: Asked) -> Answered:
    """What a line of a batch's output says came of a request that asked for so much.

    `Faulty` where it is to be asked again; `ValueError` where the line is none of a batch.
    """
    response, error = record.get("response"), record.get("error")
    if response is None and error is not None:
        raise Faulty(words(error))
    if not isinstance(response, dict) or not isinstance(response.get("status_code"), int):
        raise ValueError("not a line of a batch's output: expected response.status_code")
    status, body = response["status_code"], response.get("body")
    if status == 200:
        return read_answer(body, asked)
    if status in REFUSED:
        return Answered(Failure(f"refused with status {status}: {words(body or error)}"))
    raise Faulty(f"{status}: {words(body or error)}")


def _lines(file: Path, report: Report = stop, longest: int = LONGEST_LINE) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, record in json_lines(file, report, longest):
        if isinstance(record.get("custom_id"), str):
            yield number, record
        else:
            report(BadRecord(f"{file}:{number}: expected a line of a batch, with a custom_id", "no line of a batch"))
