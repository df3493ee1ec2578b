"""Writing files that appear whole or not at all, reserving space on the disk, and locking folders."""

import bz2
import errno
import gzip
import lzma
import math
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from threading import Lock
from tokenize import TokenError
from typing import IO, Any

import numpy as np
import orjson
import zstandard
from numpy.lib import format as npy
from numpy.lib.format import open_memmap
from numpy.typing import DTypeLike, NDArray

from keystone.indexing.errors import NotWritten, UserError
from keystone.indexing.io.reading import COMPRESS
from keystone.indexing.io.system import find_lock, load_c_library, lock_file

AT_FDCWD, RENAME_EXCHANGE = -100, 2
"""Arguments of Linux's `renameat2`: paths from the working directory, and an exchange."""
RENAME_SWAP = 2
"""The same for `renamex_np` of macOS."""
HALF_WRITTEN = ".*.partial"
"""The names of files that `write_whole` was writing when the process was killed, as a pattern."""


OWN_STREAMS = ("/dev/std", "/dev/fd/", "/proc/self/fd/")
"""The beginnings of the names of a process's own streams, whatever they lead to."""


@contextmanager
def write_whole(path: Path) -> Iterator[IO[bytes]]:
    """A file to write; it gets its name only if the block ends without an error.

    The content is compressed if the name ends in `.gz`, `.zst`, `.bz2` or `.xz`. `NotWritten` if the disk does not take
    the file. `UserError` if `path` is a folder, a device or a pipe, or ends like a file of the program compress.
    """
    if path.is_dir():
        raise UserError(f"{path}: is a folder, expected the name of a file to write")
    if str(path).startswith(OWN_STREAMS) or (path.exists() and not path.is_file()):
        raise UserError(f"{path}: is a pipe or a device, expected the name of a file to write")
    if path.suffix.lower() in COMPRESS:
        raise UserError(f"{path}: found {path.suffix}, which Keystone only reads, expected .gz, .zst, .bz2 or .xz")
    beside = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with beside.open("wb") as file:
            with _compress(file, path) as content:
                yield content
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError as error:
        raise NotWritten(path, reason_of(error)) from error
    finally:
        with suppress(OSError):
            beside.unlink()


def link_whole(source: Path, path: Path) -> None:
    """Give a file a second name by a hard link, or copy it if the disk makes none. `NotWritten` as `write_whole`."""
    try:
        os.link(source, path)
    except OSError:
        with source.open("rb") as file, write_whole(path) as out:
            shutil.copyfileobj(file, out)


def exchange(one: Path, other: Path) -> None:
    """Exchange the names of two folders in one step, or by three renames. `OSError` if they cannot be renamed."""
    library = load_c_library()
    names = os.fsencode(one), os.fsencode(other)
    if swap := getattr(library, "renameat2", None):
        failed = swap(AT_FDCWD, names[0], AT_FDCWD, names[1], RENAME_EXCHANGE)
    elif swap := getattr(library, "renamex_np", None):
        failed = swap(*names, RENAME_SWAP)
    else:
        failed = True
    if failed:
        aside = one.with_name(f"{one.name}.old")
        other.rename(aside)
        one.rename(other)
        aside.rename(one)


def append(file: IO[bytes], content: bytes) -> None:
    """Write all of the bytes to a file that was opened without a buffer. `OSError` if the disk takes no more."""
    rest = memoryview(content)
    while rest:
        rest = rest[file.write(rest) :]


def remove(path: Path) -> None:
    """Remove a file if it exists. `NotWritten` if it cannot be removed."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise NotWritten(path, reason_of(error)) from error


def reserve_array(path: Path, dtype: DTypeLike, shape: tuple[int, ...]) -> np.memmap[Any, Any]:
    """A new array of zeros in a `.npy` file, mapped into memory, with its space reserved on the disk.

    `NotWritten` if the disk lacks the space. Without this check, a write to the array would end the process by a
    signal.
    """
    size = int(np.dtype(dtype).itemsize * np.prod(shape))
    try:
        mapped = open_memmap(path, "w+", np.dtype(dtype), shape)
        with path.open("r+b") as file:
            _reserve_space(file, size)
    except OSError as error:
        raise NotWritten(path, f"{reason_of(error)}; it takes {size / 1e6:,.1f} MB") from error
    return mapped


def _reserve_space(file: IO[bytes], size: int) -> None:
    """Reserve space on the disk for the last `size` bytes of a file, which are zeros."""
    end = os.fstat(file.fileno()).st_size
    try:
        os.posix_fallocate(file.fileno(), end - size, size)
    except (AttributeError, OSError) as error:  # the system has no such call, or not for this disk
        if isinstance(error, OSError) and error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            raise
        file.seek(end - size)
        while file.tell() < end:
            file.write(bytes(min(2**20, end - file.tell())))
        file.flush()


_DAMAGE = (EOFError, MemoryError, OverflowError, RecursionError, SyntaxError, TokenError, TypeError, ValueError)
"""The errors of numpy for files that are not whole arrays."""


HEADER_LOCK = Lock()
"""Held while NumPy parses the header of a file: two threads at once fail in CPython 3.11, with a `SystemError`."""


def map_array(path: Path) -> NDArray[Any]:
    """Map the array of a file into memory. `ValueError` unless the file has the size that its header says."""
    try:
        with HEADER_LOCK, path.open("rb") as file:
            version = npy.read_magic(file)
            read_header = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
            shape, _, dtype = read_header(file)
            expected, found = math.prod(shape) * dtype.itemsize, path.stat().st_size - file.tell()
        if expected != found:
            raise ValueError(f"found {found:,} bytes, expected {expected:,} for the shape {shape}")
        with HEADER_LOCK:
            array: NDArray[Any] = np.load(path, mmap_mode="r")
    except _DAMAGE as error:
        raise ValueError(f"{path.name}: not a whole array of numpy: {error}") from error
    return array


def reason_of(error: OSError) -> str:
    """The system's reason for an error; errors of numpy hold it in their text alone."""
    return error.strerror or str(error)


def _compress(file: IO[bytes], path: Path) -> AbstractContextManager[Any]:
    """A writer into a file, in the compression that `open_binary` expects under the name of `path`."""
    match path.suffix.lower():
        case ".gz":
            return gzip.GzipFile("", "wb", fileobj=file, mtime=0)
        case ".zst":
            return zstandard.ZstdCompressor().stream_writer(file, closefd=False)
        case ".bz2":
            return bz2.BZ2File(file, "wb")
        case ".xz":
            return lzma.LZMAFile(file, "wb")
        case _:
            return nullcontext(file)


def make_folder(folder: Path) -> None:
    """Make a folder and those that hold it, unless they exist. `NotWritten` if that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NotWritten(folder, reason_of(error)) from error


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Make a folder if need be, and hold its lock.

    `UserError` if another process holds it; `NotWritten` if the folder cannot be made or opened.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = find_lock(folder)
        handle = os.open(lock, os.O_RDONLY)
    except OSError as error:
        raise NotWritten(folder, reason_of(error)) from error
    try:
        lock_file(handle)
        if not folder.exists() or not os.path.samestat(os.fstat(handle), lock.stat()):
            raise BlockingIOError  # another process renamed the folder between opening and locking
        yield
    except BlockingIOError:
        raise UserError(f"{folder}: another process is writing here: wait for it, or write elsewhere") from None
    finally:
        os.close(handle)


def unicode_name(path: Path | str) -> str:
    """The name of a file, or of a place in it, as text that can be written; bytes that are not UTF-8 become U+FFFD."""
    return os.fsencode(path).decode(errors="replace")


def write_json_lines(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Write one JSON object a line. The file appears when it is whole."""
    with write_whole(path) as out:
        for record in records:
            out.write(orjson.dumps(record) + b"\n")
