"""Reading files line by line, and writing files that appear whole or not at all."""

import errno
import fcntl
import gzip
import hashlib
import io
import math
import os
import shutil
import stat
import zlib
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Any

import numpy as np
import orjson
import zstandard
from numpy.lib.format import open_memmap
from numpy.typing import DTypeLike, NDArray

from indexing.errors import BadRecord, NotWritten, Report, UserError, stop
from indexing.io.untrusted_json import parse_json

STDIN = Path("/dev/stdin")
"""The path that stands for standard input, which can be read once."""

COMPRESSIONS = (".gz", ".zst")
"""Endings of file names that say how a file is compressed; upper case too."""

LONGEST_LINE = 2**28
"""Bytes of the longest line that is read; JSON of a 10 MB document has at most a quarter of them."""

HELD_LIMIT_BYTES = 2**32
"""Bytes of a file that is held in memory, decompressed: a run of some eighty million rows."""

TEXT_LIMIT_BYTES = 2**20
"""Bytes of a file of settings."""

OWN_PIPES = ("/dev/fd/", "/proc/self/fd/", "/dev/stdin")
"""The beginnings of the names of pipes that a shell gives to a process, as by `<(...)`."""


def source_of(path: Path) -> Path:
    """The file to read for a name: the file itself, or if it is the process's own pipe, a copy of its content.

    A pipe can be read once, its copy as often as needed. `UserError` for a folder, a device, or a named pipe, into
    which nobody might ever write.
    """
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"{str(path)!r}: cannot be read: {error}") from error
    if stat.S_ISREG(mode):
        return path
    if stat.S_ISFIFO(mode) and str(path).startswith(OWN_PIPES):
        return Path(_copied(path).name)
    kinds = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a named pipe"), (stat.S_ISCHR, "a device"))
    found = next((name for is_kind, name in kinds if is_kind(mode)), "no file")
    raise UserError(f"{path}: is {found}, expected a file")


@cache
def _copied(path: Path) -> Any:
    """A copy of a pipe's content in a file that lasts as long as the process."""
    copy = NamedTemporaryFile(prefix="keystone-")  # noqa: SIM115
    try:
        with path.open("rb") as pipe:
            shutil.copyfileobj(pipe, copy)
        copy.flush()
    except OSError as error:
        raise UserError(f"{path}: cannot be read, or not be kept: {error.strerror}") from error
    return copy


def open_binary(path: Path) -> IO[bytes]:
    """Open a plain, gzip or Zstandard file for reading, also one of several members or frames.

    `UserError` if it cannot be opened. A reader that comes to a damaged place gets an `OSError`, `EOFError` or
    `zlib.error`, never a silent end.
    """
    if path == STDIN:
        return open(0, "rb", closefd=False)  # by its number, since a socket cannot be opened by name
    source = source_of(path)
    try:
        match path.suffix.lower():
            case ".gz":
                return gzip.open(source, "rb")  # type: ignore[return-value]
            case ".zst":
                return io.BufferedReader(_Zstandard(source.open("rb")), 2**17)
            case _:
                return source.open("rb")
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error


class _Zstandard(io.RawIOBase):
    """The content of a Zstandard file; unlike the library's readers, it raises an error for a truncated file."""

    CHUNK = 2**14
    PIECE = 2**11
    """Compressed bytes that are decompressed at once: they can hold 2**26 bytes at most."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._frame: zstandard.ZstdDecompressionObj | None = None
        self._compressed = self._content = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._content:
            self._compressed = self._compressed or memoryview(self._file.read(self.CHUNK))
            if not self._compressed:
                if self._frame:
                    raise EOFError("Compressed file ended before the end of a frame")
                return 0
            self._decompress()
        size = min(len(buffer), len(self._content))
        buffer[:size], self._content = self._content[:size], self._content[size:]
        return size

    def _decompress(self) -> None:
        try:
            self._frame = self._frame or zstandard.ZstdDecompressor(max_window_size=2**31).decompressobj()
            piece, rest = self._compressed[: self.PIECE], self._compressed[self.PIECE :]
            self._content = memoryview(self._frame.decompress(piece))
        except zstandard.ZstdError as error:
            raise OSError(f"Not a Zstandard file, or a damaged one: {error}") from error
        unused = len(self._frame.unused_data)
        self._compressed = self._compressed[len(piece) - unused :] if unused else rest
        if self._frame.eof:
            self._frame = None

    def close(self) -> None:
        self._file.close()
        super().close()


def byte_lines(
    path: Path, report: Report = stop, longest: int | None = None, limit: float = math.inf
) -> Iterator[tuple[int, bytes]]:
    """The lines of a file with their numbers from 1 and with their ends.

    `report` receives each line above `longest` bytes (None: `LONGEST_LINE`). If the file becomes unreadable, or has
    more decompressed bytes than the limit, the function yields the lines before that place and reports the rest.
    """
    longest = longest or LONGEST_LINE
    number = size = 0
    try:
        with open_binary(path) as file:
            while line := file.readline(longest):
                number += 1
                size += len(line)
                if size > limit:
                    report(BadRecord(f"{path}: expected a file of at most {limit} bytes, found more", "too long"))
                    return
                if len(line) < longest or line.endswith(b"\n"):
                    yield number, line
                    continue
                while line and not line.endswith(b"\n"):
                    line = file.readline(longest)
                report(BadRecord(f"{path}:{number}: expected a line of at most {longest} bytes", "line too long"))
    except (OSError, EOFError, zlib.error) as error:
        report(BadRecord(f"{path}: cannot be read beyond line {number}: {error}", "unreadable file"))


def read_bytes(path: Path, limit: int = HELD_LIMIT_BYTES) -> NDArray[np.uint8]:
    """The content of a plain or compressed file: uint8[bytes], read-only, in large pages if the system has them.

    `UserError` if the file has more decompressed bytes than the limit.
    """
    try:
        with open_binary(path) as file:
            content, size = np.empty(min(limit, source_of(path).stat().st_size) + 1, np.uint8), 0
            while got := file.readinto(content.data[size:]):  # type: ignore[attr-defined]
                size += got
                if size > limit:
                    raise UserError(f"{path}: expected a file of at most {limit} bytes, found more")
                if size == len(content):
                    content = np.concatenate([content, np.empty_like(content)])
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path}: cannot be read: {error}") from error
    content.flags.writeable = False
    return content[:size]


def read_text(path: Path, limit: int = TEXT_LIMIT_BYTES) -> str:
    """The content of a small UTF-8 file. `UserError` if it is not UTF-8, or has more bytes than the limit."""
    try:
        return read_bytes(path, limit).tobytes().decode()
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: cannot be read: {error}") from error


def lines(
    path: Path, report: Report = stop, longest: int | None = None, limit: float = math.inf
) -> Iterator[tuple[int, str]]:
    """The lines of a UTF-8 file with their numbers from 1, without their ends and the byte order mark."""
    for number, line in byte_lines(path, report, longest, limit):
        try:
            yield number, line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            found = f"{path}:{number}: not UTF-8: {error.reason} at byte {error.start} of the line"
            report(BadRecord(found, "not UTF-8"))


def json_lines(
    path: Path,
    report: Report = stop,
    longest: int | None = None,
    limit: float = math.inf,
    numbered: Iterable[tuple[int, str]] | None = None,
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a JSONL file with their line numbers; blank lines are skipped. A JSON array is no JSONL.

    `numbered` are its `lines`, if the caller has read them already.
    """
    numbered = lines(path, report, longest, limit) if numbered is None else numbered
    filled = ((number, line) for number, line in numbered if line.strip())
    for position, (number, line) in enumerate(filled):
        if position == 0 and line.lstrip().startswith("["):
            report(BadRecord(f"{path}:{number}: expected a JSON object a line, found a JSON array", "JSON array"))
            return
        try:
            record = parse_json(line)
        except ValueError as error:
            report(BadRecord(f"{path}:{number}: not JSON: {error}", "not JSON"))
            continue
        if isinstance(record, dict):
            yield number, record
        else:
            found = f"{path}:{number}: expected a JSON object, found {type(record).__name__}"
            report(BadRecord(found, "no JSON object"))


@contextmanager
def written(path: Path) -> Iterator[IO[bytes]]:
    """A file to write, which gets its name only if the block ends without an error; compressed if its name says so.

    `NotWritten` if the disk does not take it.
    """
    if path.is_dir():
        raise UserError(f"{path}: is a folder, expected the name of a file to write")
    beside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with beside.open("wb") as file:
            with _compressing(file, path) as content:
                yield content
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        raise NotWritten(path, reason_of(error)) from error
    finally:
        with suppress(OSError):
            beside.unlink()


def append(file: IO[bytes], content: bytes) -> None:
    """Write all of the bytes to a file that was opened without a buffer; `OSError` as soon as it takes no more."""
    rest = memoryview(content)
    while rest:
        rest = rest[file.write(rest) :]


def remove(path: Path) -> None:
    """Remove a file if it exists. `NotWritten` if it cannot be removed."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise NotWritten(path, reason_of(error)) from error


def reserved(path: Path, dtype: DTypeLike, shape: tuple[int, ...]) -> np.memmap[Any, Any]:
    """A new array in a `.npy` file, mapped into memory, with its space reserved on the disk.

    `NotWritten` if the disk lacks the space: a write to such an array would end the process by a signal.
    """
    size = int(np.dtype(dtype).itemsize * np.prod(shape))
    try:
        mapped = open_memmap(path, "w+", np.dtype(dtype), shape)
        with path.open("r+b") as file:
            _take(file, size)
    except OSError as error:
        raise NotWritten(path, f"{reason_of(error)}; it takes {size / 1e6:,.1f} MB") from error
    return mapped


def _take(file: IO[bytes], size: int) -> None:
    """Reserve space on the disk for the last `size` bytes of a file, which are zeros."""
    end = os.fstat(file.fileno()).st_size
    try:
        os.posix_fallocate(file.fileno(), end - size, size)
    except AttributeError:  # a system that has no such call
        _fill(file, end - size, end)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            raise
        _fill(file, end - size, end)


def _fill(file: IO[bytes], start: int, end: int) -> None:
    file.seek(start)
    while file.tell() < end:
        file.write(bytes(min(2**20, end - file.tell())))
    file.flush()


def reason_of(error: OSError) -> str:
    """The system's reason for an error; errors of numpy hold it in their text alone."""
    return error.strerror or str(error)


def _compressing(file: IO[bytes], path: Path) -> AbstractContextManager[Any]:
    """A writer into a file, in the compression that `open_binary` expects under the name of `path`."""
    match path.suffix.lower():
        case ".gz":
            return gzip.GzipFile("", "wb", fileobj=file, mtime=0)
        case ".zst":
            return zstandard.ZstdCompressor().stream_writer(file, closefd=False)
        case _:
            return nullcontext(file)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make a folder if it is missing, and lock it. `UserError` if another process holds the lock."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise NotWritten(folder, reason_of(error)) from error
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not folder.exists() or not os.path.samestat(os.fstat(handle), folder.stat()):
            raise BlockingIOError  # renamed between opening and locking
        yield
    except BlockingIOError:
        raise UserError(f"{folder}: another process is writing here: wait for it, or write elsewhere") from None
    finally:
        os.close(handle)


def unicode_name(path: Path | str) -> str:
    """The name of a file, or of a place in it, as text to write; bytes that are not UTF-8 become U+FFFD."""
    return os.fsencode(path).decode(errors="replace")


def sha256(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    try:
        with source_of(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error


def digest(value: Any) -> str:
    """A key for a value made of JSON types: the SHA-256 of its canonical form."""
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()
