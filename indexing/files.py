"""Files that are read line by line and that appear whole or not at all."""

import fcntl
import gzip
import hashlib
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import orjson

from indexing.errors import UserError


def open_binary(path: Path) -> IO[bytes]:
    """Open a plain or gzip file for reading; `UserError` if it is not there."""
    try:
        return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error


def lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a UTF-8 file with their numbers from 1, without their ends."""
    number = 0
    try:
        with open_binary(path) as file:
            for number, line in enumerate(file, start=1):
                yield number, line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}:{number}: not UTF-8: {error.reason} at byte {error.start} of the line") from error
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path}: cannot be read beyond line {number}: {error}") from error


def json_lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a JSONL file with their line numbers; blank lines are skipped."""
    for number, line in lines(path):
        if not line.strip():
            continue
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise UserError(f"{path}:{number}: not JSON: {error}") from error
        if not isinstance(record, dict):
            raise UserError(f"{path}:{number}: expected a JSON object, found {type(record).__name__}")
        yield number, record


@contextmanager
def written(path: Path) -> Iterator[IO[bytes]]:
    """A file to write that takes its name only when the block ends without an error."""
    if path.is_dir():
        raise UserError(f"{path}: is a folder, expected the name of a file to write")
    beside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with beside.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be written: {error.strerror}") from error
    finally:
        with suppress(OSError):
            beside.unlink()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make a folder if need be and hold it alone. `UserError` if another process holds it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise UserError(f"{folder}: cannot be written: {error.strerror}") from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not folder.exists() or not os.path.samestat(os.fstat(handle), folder.stat()):
            raise BlockingIOError  # renamed between opening and locking
        yield
    except BlockingIOError:
        raise UserError(f"{folder}: another process is writing here: wait for it, or write elsewhere") from None
    finally:
        os.close(handle)


def sha256(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error


def digest(value: Any) -> str:
    """A key for a value made of JSON types: the SHA-256 of its canonical form."""
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()
