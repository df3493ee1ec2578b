"""Archives: the files in a tar or zip file, one after the other, each in a temporary file while it is read."""

import stat
import struct
import tarfile
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import IO, NamedTuple
from urllib.parse import quote

from keystone.indexing.corpora.folders import is_hidden, strip_compression
from keystone.indexing.errors import BadRecord, NotWritten, Report, UserError
from keystone.indexing.io.reading import DAMAGE, open_binary
from keystone.indexing.io.writing import reason_of

TAR_SUFFIXES = (".tar", ".tgz", ".tbz", ".tbz2", ".txz", ".tzst")
SUFFIXES = (*TAR_SUFFIXES, ".zip")
"""Endings of the names of archives, in lower case; a tar file may have the ending of a compression after them."""

LONGEST_MEMBER_BYTES = 2**32
"""The largest file of an archive that is read. It lies in a temporary file, so a small archive cannot fill the disk."""

_DAMAGE = (
    *DAMAGE,
    tarfile.TarError,
    zipfile.BadZipFile,
    RuntimeError,
    ValueError,
    LookupError,
    OverflowError,
    struct.error,
)
"""The errors of archives that are damaged, encrypted or compressed in a way that Python does not know."""
_PIECE_BYTES = 2**20
_LINK = "a link is not followed"


class Member(NamedTuple):
    """A file of an archive: the temporary file that holds it, its path, its quoted path, and its name in messages."""

    file: Path
    path: PurePosixPath
    name: str
    shown: str


def is_archive(file: Path) -> bool:
    """Whether a file has the name of an archive."""
    return strip_compression(file).endswith(TAR_SUFFIXES) or file.name.lower().endswith(".zip")


def holds_archive(file: Path) -> bool:
    """Whether a file has the name of an archive or the first bytes of a tar file.

    Those of a zip file do not count, because office documents and books have them, too.
    """
    return is_archive(file) or _find_kind(file) == "tar"


def _find_kind(file: Path) -> str:
    """The kind of an archive by its first bytes, `tar` or `zip`; empty for any other file, or an unreadable one."""
    with suppress(UserError, *DAMAGE), open_binary(file) as source:
        begin = source.read(tarfile.BLOCKSIZE)
        is_tar = begin[257:262] == b"ustar" and b"\0" in begin[:257]
        return "zip" if begin.startswith(b"PK\3\4") else "tar" if is_tar else ""
    return ""


def list_names(archive: Path) -> list[PurePosixPath]:
    """The paths of the files of an archive, without hidden ones; those before the damage if it is damaged."""
    names: list[PurePosixPath] = []
    with suppress(*_DAMAGE):
        names.extend(_relative(path) for path, _, _ in _open(archive) if not is_hidden(PurePosixPath(path)))
    return names


def unpack(archive: Path, report: Report) -> Iterator[Member]:
    """The files of an archive in order, without hidden ones. Links, unreadable files and damage are reported."""
    count = 0
    try:
        with TemporaryDirectory(prefix="keystone-") as folder:
            for path, source, fault in _open(archive):
                count += 1
                if is_hidden(PurePosixPath(path)):
                    continue
                bare = _relative(path)
                shown = f"{archive}/{path}"
                if fault or source is None:
                    report(BadRecord(f"{shown}: {fault}", "link not followed" if fault == _LINK else "file not read"))
                    continue
                file = Path(folder) / _quote(bare.name or "file")[-100:]
                if _copy(source, file, shown, report):
                    yield Member(file, bare, _quote(bare.as_posix()), shown)
                file.unlink(missing_ok=True)
    except _DAMAGE as error:
        report(BadRecord(f"{archive}: cannot be read beyond file {count}: {error}", "unreadable file"))


_Opened = Iterator[tuple[str, IO[bytes] | None, str]]
"""The path of each file, its content, and the reason if it cannot be read."""


def _open(archive: Path) -> _Opened:
    kind = _find_kind(archive) or archive.suffix.lower().removeprefix(".")
    return _open_zip(archive) if kind == "zip" else _open_tar(archive)


def _relative(path: str) -> PurePosixPath:
    return PurePosixPath(path.lstrip("/"))


def _open_tar(archive: Path) -> _Opened:
    with open_binary(archive) as source:
        watched = _Watched(source)
        with tarfile.open(fileobj=watched, mode="r|", errorlevel=1) as tar:  # type: ignore[call-overload]
            for member in tar:
                if member.isfile():
                    yield member.name, tar.extractfile(member), ""
                elif not member.isdir():
                    linked = member.issym() or member.islnk()
                    yield member.name, None, _LINK if linked else "expected a file"
            while rest := tar.fileobj.read(_PIECE_BYTES):  # the end shows whether the archive is whole
                if rest.strip(b"\0"):
                    raise tarfile.ReadError("more follows, behind a damaged part or the end mark of a first archive")
        if watched.end.strip(b"\0"):
            raise tarfile.ReadError("it has no end mark")


class _Watched:
    """A tar file that remembers its last bytes: zeros if it is whole, where `tarfile` ends without an error."""

    def __init__(self, source: IO[bytes]) -> None:
        self._source = source
        self.end = b"?"

    def read(self, size: int) -> bytes:
        piece = self._source.read(size)
        self.end = piece[-tarfile.BLOCKSIZE :] or self.end
        return piece


def _open_zip(archive: Path) -> _Opened:
    with open_binary(archive) as source, zipfile.ZipFile(source) as packed:
        for member in packed.infolist():
            if member.filename.endswith("/"):
                continue
            if stat.S_ISLNK(member.external_attr >> 16):
                yield member.filename, None, _LINK
                continue
            try:
                with packed.open(member) as content:
                    yield member.filename, content, ""
            except (RuntimeError, zipfile.BadZipFile) as error:
                yield member.filename, None, f"cannot be unpacked: {error}"


def _quote(name: str) -> str:
    return quote(name.encode("utf-8", "surrogateescape"))


def _copy(source: IO[bytes], file: Path, shown: str, report: Report) -> bool:
    """Copy a file of an archive; returns whether it is whole. A file that is too long or damaged is reported.

    `NotWritten` if the disk does not take the copy.
    """
    try:
        with file.open("wb") as out:
            out.writelines(_read_pieces(source, shown))
    except BadRecord as error:
        report(error)
        return False
    except OSError as error:
        raise NotWritten(file, reason_of(error)) from error
    return True


def _read_pieces(source: IO[bytes], shown: str) -> Iterator[bytes]:
    """Yield the content of a file of an archive. `BadRecord` if it is too long or damaged."""
    size = 0
    try:
        while piece := source.read(_PIECE_BYTES):
            size += len(piece)
            if size > LONGEST_MEMBER_BYTES:
                found = f"{shown}: expected at most {LONGEST_MEMBER_BYTES} bytes, found more"
                raise BadRecord(found, "too long")
            yield piece
    except (zipfile.BadZipFile, *DAMAGE) as error:
        raise BadRecord(f"{shown}: cannot be read: {error}", "unreadable file") from error
