"""Replies on disk by the content of their requests: one SQLite file that several processes can share.

Each reply is committed when it comes. In write-ahead mode it survives any end of the process. Failures are not kept, so
the next run asks again.

The table `replies` holds the replies, and the table `unusable` those that no reader could use, by attempt. So a
repeated run finds these too, and a run that asks for better ones knows which they are.
"""

import math
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson

from keystone.generation.llm.chat import PaidReply, count_usage
from keystone.generation.llm.model import make_request_key
from keystone.generation.types import Reply, Request
from keystone.indexing.errors import UserError, printable

APPLICATION_ID = 0x4B535231
"""SQLite's `application_id` of Keystone's files of replies."""
WRITER_TIMEOUT_S = 60.0
"""How long a process waits while others write."""
_RECORD = (
    "CREATE TABLE IF NOT EXISTS unusable "
    "(key TEXT NOT NULL, attempt INTEGER NOT NULL, reply BLOB NOT NULL, PRIMARY KEY (key, attempt))"
)
_LAST_UNUSABLE = "SELECT reply FROM unusable WHERE key = ?1 ORDER BY attempt DESC LIMIT 1"
_PLACE_ERRORS = ("SQLITE_BUSY", "SQLITE_CANTOPEN", "SQLITE_FULL", "SQLITE_IOERR", "SQLITE_PERM", "SQLITE_READONLY")
"""Errors of the disk, the folder or other processes. The file's content is not at fault."""


class Cache:
    """The replies in a file. A missing file is made. `UserError` if it is damaged or another program's.

    If `retry` is true, a reply that no reader could use counts as missing, until its request gets another one.
    """

    def __init__(self, path: Path, retry: bool = False) -> None:
        self._path, self._retry = path, retry
        self._tried: set[str] = set()
        """The requests that got a reply, or had one refused, since the file was opened."""
        self._doubtful: set[str] = set()
        """The requests whose reply came from the record of unusable ones."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"{path}: cannot be written: {error.strerror}") from error
        with self._translate_errors():
            self._file = sqlite3.connect(path, timeout=WRITER_TIMEOUT_S, isolation_level=None)
            try:
                self._prepare()
            except BaseException:
                self._file.close()
                raise

    def _prepare(self) -> None:
        if self._read_application_id() != APPLICATION_ID:
            self._file.execute("BEGIN IMMEDIATE")
            if self._read_application_id() != APPLICATION_ID:  # no other process made it in the meantime
                if self._file.execute("SELECT 1 FROM sqlite_master").fetchone():
                    raise UserError(f"{self._path}: another program's database, expected a cache of replies")
                self._file.execute("CREATE TABLE replies (key TEXT PRIMARY KEY, reply BLOB NOT NULL)")
                self._file.execute(_RECORD)
                self._file.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            self._file.execute("COMMIT")
        deadline = time.monotonic() + WRITER_TIMEOUT_S
        while True:  # while another process changes the mode, SQLite fails at once
            try:
                self._file.execute("PRAGMA journal_mode = WAL")
                break
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
        self._file.execute("PRAGMA synchronous = NORMAL")

    def _read_application_id(self) -> int:
        (form,) = self._file.execute("PRAGMA application_id").fetchone()
        return int(form)

    def get(self, key: str) -> PaidReply | None:
        """Get the reply to a request, with its cost at the time; None if the file has none."""
        with self._translate_errors():
            row = self._file.execute("SELECT reply FROM replies WHERE key = ?", (key,)).fetchone()
            if row is None and (not self._retry or key in self._tried) and self._has_record():
                row = self._file.execute(_LAST_UNUSABLE, (key,)).fetchone()
                if row is not None:
                    self._doubtful.add(key)
        return None if row is None else self._read(key, row[0])

    def put(self, replies: Iterable[tuple[str, PaidReply]], anew: bool | None = None) -> set[str]:
        """Keep replies by one commit; returns the keys of the new ones. After an error, none is kept.

        If a key has a reply already, the old reply stays. If no reader could use that one, it stays unless the new one
        is a further attempt: `anew`, by default whether the file was opened for such attempts.
        """
        new = set()
        insert = "INSERT OR IGNORE INTO replies VALUES (?, ?)"
        with self._change():
            if not (self._retry if anew is None else anew) and self._has_record():
                insert = (
                    "INSERT OR IGNORE INTO replies SELECT ?1, ?2 "
                    "WHERE NOT EXISTS (SELECT 1 FROM unusable WHERE key = ?1)"
                )
            for key, answered in replies:
                if self._file.execute(insert, (key, encode_reply(answered))).rowcount > 0:
                    new.add(key)
                    self._tried.add(key)
        return new

    def refuse(self, keys: Iterable[str]) -> None:
        """Move replies that no reader could use from the replies to the record beside them."""
        with self._change():
            self._file.execute(_RECORD)
            for key in keys:
                self._tried.add(key)
                self._file.execute(
                    "INSERT INTO unusable SELECT key, (SELECT count(*) FROM unusable WHERE key = ?1), reply "
                    "FROM replies WHERE key = ?1",
                    (key,),
                )
                self._file.execute("DELETE FROM replies WHERE key = ?", (key,))

    def accept(self, keys: Iterable[str]) -> None:
        """Move replies that a reader could use after all from the record back to the replies."""
        if not self._doubtful or not (found := self._doubtful.intersection(keys)):
            return
        with self._change():
            for key in found:
                self._file.execute(f"INSERT OR IGNORE INTO replies SELECT ?1, ({_LAST_UNUSABLE})", (key,))
                self._file.execute(
                    "DELETE FROM unusable WHERE key = ?1 "
                    "AND attempt = (SELECT max(attempt) FROM unusable WHERE key = ?1)",
                    (key,),
                )
        self._doubtful -= found

    def count_unusable(self, key: str) -> int:
        """Count the replies to a request that no reader could use."""
        with self._translate_errors():
            if not self._has_record():
                return 0
            (number,) = self._file.execute("SELECT count(*) FROM unusable WHERE key = ?", (key,)).fetchone()
        return int(number)

    def items(self) -> Iterator[tuple[str, PaidReply]]:
        """Yield all replies in the order of their keys, unusable ones too, so that a repeated run goes the same way."""
        query = "SELECT key, reply FROM replies"
        with self._translate_errors():
            if self._has_record():
                query += (
                    " UNION ALL SELECT key, reply FROM unusable WHERE key NOT IN (SELECT key FROM replies) "
                    "AND (key, attempt) IN (SELECT key, max(attempt) FROM unusable GROUP BY key)"
                )
            for key, reply in self._file.execute(f"{query} ORDER BY key"):
                yield key, self._read(key, reply)

    def _has_record(self) -> bool:
        """Whether the file has a record of unusable replies. Older versions made files without the record."""
        found = self._file.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'unusable'")
        return found.fetchone() is not None

    @contextmanager
    def _change(self) -> Iterator[None]:
        """Change the file by one commit, or not at all."""
        with self._translate_errors():
            self._file.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._file.execute("COMMIT")
            except BaseException:
                self._file.rollback()
                raise

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _read(self, key: str, reply: bytes) -> PaidReply:
        try:
            return decode_reply(reply)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise UserError(
                f"{self._path}: the reply {printable(key)} is damaged: {error}. If that row of the table replies is "
                "deleted, the same command asks for this reply again"
            ) from error

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            cause = getattr(error, "sqlite_errorname", None) or "SQLITE_ERROR"
            message = f"{self._path}: not a usable cache of replies: {error}"
            if cause.startswith(_PLACE_ERRORS):
                raise UserError(message) from error
            raise UserError(
                f"{message}. Nothing in it was changed: put back a copy, or save its replies with `sqlite3 FILE "
                ".recover`, or name another file as model.cache, for which all replies are asked again"
            ) from error


def keep_outcome(cache: Cache, model: str, asked: Sequence[Request], refusal: str) -> None:
    """Keep the replies to the requests of one step as usable, or as unusable if there is a `refusal`."""
    if asked:
        change = cache.refuse if refusal else cache.accept
        change(make_request_key(model, request) for request in asked)


def encode_reply(answered: PaidReply) -> bytes:
    """Encode a reply as JSON: `text`, `finish`, `logprobs`, `usage` (prompt, cached and reply tokens), any `starts`."""
    reply, usage = answered.outcome, answered.usage
    assert isinstance(reply, Reply)
    tokens = usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens
    kept = {"text": reply.text, "finish": reply.finish, "logprobs": reply.logprobs, "usage": tokens}
    return orjson.dumps(kept | ({"starts": reply.starts} if reply.starts else {}))


def decode_reply(kept: bytes | Mapping[str, Any]) -> PaidReply:
    """Decode the bytes or the parsed value of `encode_reply`. All keys but `text` may be absent.

    Log-probabilities that are not finite are left out; older files hold them as null. `AttributeError`, `KeyError`,
    `TypeError` or `ValueError` if the value has another form.
    """
    found = orjson.loads(kept) if isinstance(kept, bytes) else kept
    if not isinstance(found["text"], str):
        raise ValueError("no text")
    prompt, cached, completion = found.get("usage", (0, 0, 0))
    logprobs = tuple(
        {str(token): float(p) for token, p in each.items() if p is not None and math.isfinite(float(p))}
        for each in found.get("logprobs", ())
    )
    starts = tuple(map(int, found.get("starts", ())))
    if starts and (len(starts) != len(logprobs) or list(starts) != sorted(starts) or starts[0]):
        raise ValueError("not the places of the tokens")
    return PaidReply(
        Reply(found["text"], str(found.get("finish", "stop")), logprobs, starts),
        count_usage(prompt, cached, completion),
    )
