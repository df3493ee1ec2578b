"""Reading files: plain or compressed, whole or line by line, within limits of size; and the hash of a file."""

import bz2
import codecs
import gzip
import hashlib
import io
import lzma
import math
import re
import shutil
import stat
import zlib
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryFile, gettempdir
from typing import IO, Any

import numpy as np
import zstandard
from numpy.typing import NDArray

from keystone.indexing.errors import BadRecord, NotWritten, Report, UserError, stop
from keystone.indexing.io.json_values import parse_json

STDIN = Path("/dev/stdin")
"""The path that stands for standard input."""

COMPRESS = (".z", ".0z", ".1z", ".2z")
"""Endings of files of the program compress; those with a number are on TREC's disks."""

COMPRESSIONS = (".gz", ".zst", ".bz2", ".xz", *COMPRESS)
"""Endings of the names of compressed files, in lower or upper case."""

DAMAGE = (OSError, EOFError, zlib.error, lzma.LZMAError)
"""The errors of a compressed file that is damaged or cut off."""

_COMPRESSED = re.compile(
    rb"(?P<gz>\x1f\x8b\x08)|(?P<zst>\x28\xb5\x2f\xfd)|(?P<xz>\xfd7zXZ\0)|(?P<z>\x1f\x9d\x90)"
    rb"|(?P<bz2>BZh[1-9](?:1AY&SY|\x17rE8P\x90))"
)
"""The beginning of a compressed file. No UTF-8 begins like this, except with bzip2's mark of a block or end."""

LONGEST_LINE_BYTES = 2**28
"""The longest line that is read. The JSON of a document of 10 MB has at most a quarter of these bytes."""

HELD_LIMIT_BYTES = 2**32
"""The largest file that is held in memory, decompressed: a run of about eighty million rows."""

IN_UTF16 = "found UTF-16, expected UTF-8: iconv -f UTF-16 -t UTF-8 converts it"

TEXT_LIMIT_BYTES = 2**20
"""The largest file of settings."""

OWN_PIPE_PREFIXES = ("/dev/fd/", "/proc/self/fd/", "/dev/stdin")
"""The beginnings of the names of pipes that a shell gives to a process, as `<(...)` does."""


def resolve_source(path: Path) -> Path:
    """The file to read for a path: the file itself, or a copy of what standard input or the process's own pipe holds.

    These can be read once, their copy as often as needed. `UserError` if the path leads to nothing, to a folder or to a
    device. `UserError` also for a named pipe, since perhaps nobody writes into it.
    """
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"{str(path)!r}: cannot be read: {error}") from error
    if stat.S_ISREG(mode) and path != STDIN:
        return path
    is_own = stat.S_ISFIFO(mode) and str(path).startswith(OWN_PIPE_PREFIXES)
    if is_own or (path == STDIN and (stat.S_ISREG(mode) or stat.S_ISSOCK(mode))):
        return Path(_copy_pipe(path).name)
    kinds = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a named pipe"), (stat.S_ISCHR, "a device"))
    found = next((name for is_kind, name in kinds if is_kind(mode)), "no file")
    raise UserError(f"{path}: is {found}, expected a file")


@cache
def _copy_pipe(path: Path) -> Any:
    copy = NamedTemporaryFile(prefix="keystone-")  # noqa: SIM115
    try:
        with _open_stdin() if path == STDIN else path.open("rb") as pipe:
            shutil.copyfileobj(pipe, copy)
        copy.flush()
    except OSError as error:
        raise UserError(f"{path}: cannot be read, or cannot be kept: {error.strerror}") from error
    return copy


def _open_stdin() -> IO[bytes]:
    return open(0, "rb", closefd=False)  # by number, since standard input can be a socket, which has no name


def open_binary(path: Path) -> IO[bytes]:
    """Open a plain or compressed file for reading; a compressed file may have several members or frames.

    The first bytes tell the compression, or else the ending of the name. `UserError` if the file cannot be opened.
    Where the content is damaged, the reader raises one of `DAMAGE`; it never ends there without an error.
    """
    source = resolve_source(path)
    try:
        match _find_compression(source) or path.suffix.lower():
            case found if found in COMPRESSIONS and not source.stat().st_size:
                return io.BufferedReader(_Empty())
            case ".gz":
                return gzip.open(source, "rb")  # type: ignore[return-value]
            case ".bz2":
                return bz2.open(source, "rb")
            case ".xz":
                return lzma.open(source, "rb")
            case ".zst":
                return io.BufferedReader(_Zstandard(source.open("rb")), 2**17)
            case found if found in COMPRESS:
                return io.BufferedReader(_Lzw(source), 2**17)
            case _:
                return source.open("rb")
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error


def _find_compression(source: Path) -> str | None:
    with source.open("rb") as file:
        found = _COMPRESSED.match(file.read(10))
    return f".{found.lastgroup}" if found else None


class _Reader(io.RawIOBase):
    def readable(self) -> bool:
        return True


class _Empty(_Reader):
    """The content of a file with the name of a compressed one, and without any byte."""

    def readinto(self, _buffer: Any) -> int:
        raise EOFError("the file is empty, expected a compressed one")


class _Zstandard(_Reader):
    """The content of a Zstandard file; unlike the library's readers, it raises an error for a truncated file."""

    READ_BYTES = 2**14
    PIECE_BYTES = 2**11
    """Compressed bytes that are decompressed at once. They become 2**26 bytes at most."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._frame: zstandard.ZstdDecompressionObj | None = None
        self._compressed = self._content = memoryview(b"")

    def readinto(self, buffer: Any) -> int:
        while not self._content:
            self._compressed = self._compressed or memoryview(self._file.read(self.READ_BYTES))
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
            piece, rest = self._compressed[: self.PIECE_BYTES], self._compressed[self.PIECE_BYTES :]
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


class _Lzw(_Reader):
    """The content of a file of compress, in a temporary file. An error comes after the part before the damage."""

    def __init__(self, source: Path) -> None:
        import ncompress

        self._content, self._damage = TemporaryFile(), ""  # noqa: SIM115  closed with this object
        try:
            with source.open("rb") as file:
                ncompress.decompress(file, _Bounded(self._content))
        except (ValueError, OSError) as error:
            self._damage = f"Not a file of compress, or a damaged one: {error}"
        self._content.seek(0)

    def readinto(self, buffer: Any) -> int:
        if not (size := self._content.readinto(buffer)) and self._damage:
            raise OSError(self._damage)
        return size

    def close(self) -> None:
        self._content.close()
        super().close()


class _Bounded:
    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._size = file, 0

    def write(self, piece: bytes) -> int:
        self._size += len(piece)
        if self._size > HELD_LIMIT_BYTES:
            raise ValueError(f"it has more than {HELD_LIMIT_BYTES} bytes")
        try:
            return self._file.write(piece)
        except OSError as error:
            raise NotWritten(Path(gettempdir()), error.strerror or str(error)) from error

    def flush(self) -> None:
        self._file.flush()


def read_byte_lines(
    path: Path, report: Report = stop, longest: int | None = None, limit: float = math.inf, live: bool = False
) -> Iterator[tuple[int, bytes]]:
    """The lines of a file with their numbers, which begin with 1, and with their line ends.

    The function reports and skips each line above `longest` bytes (None: `LONGEST_LINE_BYTES`). If the file is UTF-16,
    becomes unreadable, or has more than `limit` decompressed bytes, the function reports that and ends. If `live` is
    true, the lines of standard input come as they are written, and can be read once.
    """
    longest = longest or LONGEST_LINE_BYTES
    number = size = 0
    try:
        with _open_stdin() if live and path == STDIN else open_binary(path) as file:
            while line := file.readline(longest):
                number += 1
                if number == 1 and _is_utf16(line[:5]):
                    report(BadRecord(f"{path}:1: {IN_UTF16}", "not UTF-8"))
                    return
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
    except DAMAGE as error:
        report(BadRecord(f"{path}: cannot be read beyond line {number}: {error}", "unreadable file"))


def read_bytes(path: Path, limit: int = HELD_LIMIT_BYTES) -> NDArray[np.uint8]:
    """The content of a file: uint8[bytes], read-only. `UserError` if unreadable, UTF-16, or beyond the limit."""
    try:
        with open_binary(path) as file:
            content, size = np.empty(min(limit, resolve_source(path).stat().st_size) + 1, np.uint8), 0
            while received := file.readinto(content.data[size:]):  # type: ignore[attr-defined]
                size += received
                if size > limit:
                    raise UserError(f"{path}: expected a file of at most {limit} bytes, found more")
                if size == len(content):
                    content = np.concatenate([content, np.empty_like(content)])
    except DAMAGE as error:
        raise UserError(f"{path}: cannot be read: {error}") from error
    content.flags.writeable = False
    content = content[:size]
    if _is_utf16(content[:5].tobytes()):
        raise UserError(f"{path}:1: {IN_UTF16}")
    return content


def _is_utf16(beginning: bytes) -> bool:
    """Whether a file that begins with these bytes has UTF-16's byte-order mark, even after UTF-8's."""
    return beginning.removeprefix(codecs.BOM_UTF8).startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))


def read_text(path: Path, limit: int = TEXT_LIMIT_BYTES) -> str:
    """The content of a small UTF-8 file. `UserError` if it is not UTF-8, or has more bytes than the limit."""
    try:
        return read_bytes(path, limit).tobytes().decode()
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: cannot be read: {error}") from error


def read_text_lines(
    path: Path, report: Report = stop, longest: int | None = None, limit: float = math.inf, live: bool = False
) -> Iterator[tuple[int, str]]:
    """The lines of a UTF-8 file with their numbers, which begin with 1, without line ends and byte order mark.

    The function reports and skips a line that is not UTF-8; other reports and limits are those of `read_byte_lines`.
    """
    for number, line in read_byte_lines(path, report, longest, limit, live):
        try:
            yield number, line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
        except UnicodeDecodeError as error:
            found = f"{path}:{number}: not UTF-8: {error.reason} at byte {error.start} of the line"
            report(BadRecord(found, "not UTF-8"))


def read_json_lines(
    path: Path,
    report: Report = stop,
    longest: int | None = None,
    numbered: Iterable[tuple[int, str]] | None = None,
) -> Iterator[tuple[int, dict[str, Any]]]:
    """The objects of a JSONL file with their line numbers; blank lines are skipped.

    `numbered` is the result of `read_text_lines`, if the caller has it already. The function reports and skips a line
    that is not a JSON object. If the file begins with a JSON array, the function reports that and ends.
    """
    numbered = read_text_lines(path, report, longest) if numbered is None else numbered
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


def hash_file(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal. `UserError` if the file cannot be read."""
    try:
        with resolve_source(path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
