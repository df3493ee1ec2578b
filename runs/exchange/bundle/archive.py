"""The file of a bundle: a ZIP archive with the same bytes for the same content, and the hash of each file within."""

import errno
import shutil
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from keystone.indexing.errors import UserError
from keystone.indexing.io.reading import hash_file
from keystone.indexing.io.writing import write_whole

SUMS = "SHA256SUMS"
"""The file that holds the hash of each other file, in the form of `sha256sum`."""
DATE = (1980, 1, 1, 0, 0, 0)
"""The date of each file, the earliest that ZIP knows."""


def pack(folder: Path, out: Path) -> None:
    """Pack the files of a folder, with their hashes, into one file."""
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    (folder / SUMS).write_text("".join(f"{hash_file(folder / name)}  {name}\n" for name in names), encoding="utf-8")
    with write_whole(out) as file, zipfile.ZipFile(file, "w") as archive:
        for name in [SUMS, *names]:
            info = zipfile.ZipInfo(name, DATE)
            info.external_attr = 0o644 << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            with (folder / name).open("rb") as content, archive.open(info, "w", force_zip64=True) as member:
                while part := content.read(2**20):
                    member.write(part)


def unpack(path: Path, folder: Path, most: int) -> None:
    """Unpack a bundle of at most `most` bytes into a folder.

    `UserError` names each file that is damaged, missing or one too many.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            faults = list(_extract(archive, folder, most))
    except (OSError, ValueError, RuntimeError, zipfile.BadZipFile) as error:
        _raise_if_disk_is_full(error)
        raise UserError(f"{path}: not a bundle: expected a file made by `keystone bundle`: {error}") from error
    if not faults:
        faults = list(_compare_with_sums(folder))
    if faults:
        raise UserError("\n".join(f"{path}: {fault}" for fault in faults))


def _extract(archive: zipfile.ZipFile, folder: Path, most: int) -> Iterator[str]:
    """Extract all files; yields a fault for each name that leads out of the folder and each file that is damaged."""
    seen: set[str] = set()
    size, free = sum(info.file_size for info in archive.infolist()), shutil.disk_usage(folder.parent).free
    if size > most:
        raise UserError(f"{archive.filename}: holds {size:,} bytes, expected at most {most:,}, as --most-gb says")
    if size > free:
        raise UserError(f"{archive.filename}: holds {size:,} bytes, and {folder.parent} has room for {free:,}")
    for info in archive.infolist():
        name = PurePosixPath(info.filename)
        strange = info.is_dir() or info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
        if name.is_absolute() or ".." in name.parts or strange or info.filename in seen:
            yield f"{info.filename}: found an entry that no bundle has"
            continue
        seen.add(info.filename)
        target = folder / name
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(info) as member, target.open("wb") as out:
                while part := member.read(2**20):
                    out.write(part)
        except (OSError, EOFError, RuntimeError, ValueError, zipfile.BadZipFile, zlib.error) as error:
            _raise_if_disk_is_full(error)
            yield f"{info.filename}: damaged: {error}"


def _raise_if_disk_is_full(error: Exception) -> None:
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        raise error


def _compare_with_sums(folder: Path) -> Iterator[str]:
    """Compare the files of a folder with their hashes; yields a fault for each difference."""
    try:
        lines = (folder / SUMS).read_text(encoding="utf-8").splitlines()
        sums = {name: digest for digest, name in (line.split("  ", 1) for line in lines)}
    except (OSError, ValueError):
        yield f"{SUMS}: missing or damaged, expected the hash of each file"
        return
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()} - {SUMS}
    for name in sorted(found | sums.keys()):
        if name not in found:
            yield f"{name}: missing, though {SUMS} names it"
        elif name not in sums:
            yield f"{name}: found, though {SUMS} does not name it"
        elif (digest := hash_file(folder / name)) != sums[name]:
            yield f"{name}: was changed: found the hash {digest}, expected {sums[name]}"
