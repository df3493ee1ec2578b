"""The files of a corpus in a folder: which of them are read, which links are followed, and the names of documents."""

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path, PurePath
from urllib.parse import quote

from keystone.indexing.errors import UserError
from keystone.indexing.io.reading import COMPRESSIONS


def list_files(folder: Path, names: re.Pattern[str]) -> list[Path]:
    """Files below a folder by path, without hidden ones and links out of it.

    Names match whole: lower case, without a compression.
    """
    inside = _find_roots(folder)
    return sorted(
        file
        for file in _list_shown(folder)
        if names.fullmatch(strip_compression(file)) and file.is_file() and not _leads_out(file, inside)
    )


def find_unfollowed_links(folder: Path) -> Iterator[Path]:
    """The links of a folder that Keystone does not follow: those that leave the folder, and those to folders."""
    inside = _find_roots(folder)
    for file in sorted(_list_shown(folder)):
        if _leads_out(file, inside) or (file.is_symlink() and file.is_dir()):
            yield file


def is_hidden(path: PurePath) -> bool:
    """Whether a file within a corpus, or a folder of it, is hidden, or is one that macOS adds to archives."""
    return any(part.startswith((".", "__MACOSX")) and part not in (".", "..") for part in path.parts)


def _list_shown(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if not is_hidden(path.relative_to(folder)))


def _find_roots(folder: Path) -> tuple[Path, ...]:
    """Where links may lead: the folder, and `blobs` beside `snapshots` in a download of Hugging Face's hub."""
    inside = folder.resolve()
    return inside, *(above.parent / "blobs" for above in inside.parents if above.name == "snapshots")


def _leads_out(file: Path, roots: tuple[Path, ...]) -> bool:
    return file.is_symlink() and file.exists() and not any(map(file.resolve().is_relative_to, roots))


def is_folder(path: Path) -> bool:
    """Whether a path is a folder. `UserError` if it leads to nothing."""
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: no such file or folder") from error


def strip_compression(file: PurePath) -> str:
    """A file's name in lower case, without the ending of a compression."""
    name = file.name.lower()
    return name[: -len(file.suffix)] if name.endswith(COMPRESSIONS) else name


def relative_name(file: Path, folder: Path) -> str:
    """The path of a file below a folder, URL-quoted, so that any file name gives a valid id."""
    return quote(os.fsencode(file.relative_to(folder).as_posix()))


def name_documents(file: Path, corpus: Path) -> str:
    """The name of documents without an id of their own; compressing the file does not change it."""
    name = relative_name(file, corpus if file != corpus else corpus.parent)
    return name[: -len(file.suffix)] if name.lower().endswith(COMPRESSIONS) else name
