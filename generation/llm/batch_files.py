"""Files of a batch: their lines, a file of requests while it is written, and the account of a file of replies."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from keystone.generation.llm.chat import PaidReply, ReplyBound, read_reply
from keystone.generation.types import Failure
from keystone.indexing.errors import BadRecord, Report, WrongReply, stop
from keystone.indexing.io.error_text import describe_error
from keystone.indexing.io.json_values import digest, read_whole_number
from keystone.indexing.io.reading import LONGEST_LINE_BYTES, read_json_lines
from keystone.indexing.io.retry import REFUSED_CONTENT_STATUSES

MOST_REQUESTS, MOST_BYTES = 50_000, 190_000_000
"""The most requests and bytes of one file: the limits of OpenAI's batch service."""
REQUESTS_SUFFIX, REPLIES_SUFFIX = ".requests.jsonl", ".replies.jsonl"
"""The ends of the names of both kinds of files."""
MOST_NAMED = 3
"""How many requests or lines a message names."""


@dataclass(slots=True)
class FileAccount:
    """The content of a file of replies: the keys of the replies taken, and all others with the reason."""

    file: Path
    taken: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    def add_broken(self, error: BadRecord) -> None:
        """Add a broken line. If the file cannot be read to its end, raise the error."""
        if error.kind == "unreadable file":
            raise error
        self.broken.append(f"line {str(error).removeprefix(f'{self.file}:')}")

    @property
    def is_odd(self) -> bool:
        """Whether the file holds anything but replies that were taken."""
        return bool(self.failed or self.refused or self.unknown or self.broken)

    def __str__(self) -> str:
        others = {
            "not usable": [f"{key} ({why})" for key, why in self.failed.items()],
            "refused": [f"{key} ({why})" for key, why in self.refused.items()],
            "to no request in the folder": self.unknown,
            "on broken lines": self.broken,
        }
        taken = "1 reply is" if len(self.taken) == 1 else f"{len(self.taken):,} replies are"
        parts = [f"{len(names):,} {what}: {join_names(names)}" for what, names in others.items() if names]
        return "; ".join([f"{self.file}: {taken} taken", *parts])


class RequestFile:
    """A file of requests while it is written. It gets its name when it is whole."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._keys: list[str] = []
        self._bytes = 0
        self._path = folder / f".{os.getpid()}.{id(self)}.partial"
        self._file = self._path.open("wb")

    def has_room_for(self, line: bytes) -> bool:
        """Return whether one more line fits."""
        return len(self._keys) < MOST_REQUESTS and self._bytes + len(line) <= MOST_BYTES

    def write(self, key: str, line: bytes) -> None:
        """Write the line of the request with this key."""
        self._keys.append(key)
        self._bytes += len(line)
        self._file.write(line)

    def finish(self) -> Path:
        """Name the file by the digest of its requests' keys. If replies of that name exist already, number the name."""
        name = stem = digest(sorted(self._keys))[:16]
        repeat = 1
        while (self._folder / f"{name}{REPLIES_SUFFIX}").exists():
            repeat += 1
            name = f"{stem}-{repeat}"
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return self._path.replace(self._folder / f"{name}{REQUESTS_SUFFIX}")

    def discard(self) -> None:
        """Remove the unfinished file."""
        with suppress(OSError):
            self._file.close()
        with suppress(OSError):
            self._path.unlink()


def join_names(names: Sequence[str]) -> str:
    """Join the first names, and the number of the others."""
    more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
    return f"{', '.join(names[:MOST_NAMED])}{more}"


def locate_replies(requests: Path) -> Path:
    """Locate the file of the replies to a file of requests."""
    return requests.with_name(requests.name.removesuffix(REQUESTS_SUFFIX) + REPLIES_SUFFIX)


def read_line(record: Mapping[str, Any], bound: ReplyBound) -> PaidReply:
    """Read the outcome of a request in one line of a batch's output.

    `WrongReply` if the request has to be sent again. `ValueError` if the line is no line of a batch.
    """
    response, error = record.get("response"), record.get("error")
    if response is None and error is not None:
        raise WrongReply(describe_error(error))
    found = response if isinstance(response, dict) else {}
    status, body = read_whole_number(found.get("status_code")), found.get("body")
    if status is None:
        raise ValueError("not a line of a batch's output: expected response.status_code")
    if status == 200:
        return read_reply(body, bound)
    if status in REFUSED_CONTENT_STATUSES or status == 404:
        return PaidReply(Failure(f"refused with status {status}: {describe_error(body or error)}"))
    raise WrongReply(f"{status}: {describe_error(body or error)}")


def read_lines(
    file: Path, report: Report = stop, longest: int = LONGEST_LINE_BYTES
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Read the lines of a file of requests or replies, with their numbers. `report` gets each broken line."""
    for number, record in read_json_lines(file, report, longest):
        if isinstance(record.get("custom_id"), str):
            yield number, record
        else:
            report(BadRecord(f"{file}:{number}: expected a line of a batch, with a custom_id", "no line of a batch"))
