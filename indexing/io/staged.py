"""Folders that are made in stages, so that a later try can continue after a stop.

Until the folder `NAME` is whole, it is called `.NAME.partial`; its file `key` identifies the sources. A stage `S`
writes its note `S.json` last. If the note is missing, the next try removes the stage's files.
"""

import shutil
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import orjson

from keystone.indexing.errors import NotWritten, Unneeded
from keystone.indexing.io.writing import exchange, lock_folder, reason_of, write_whole

KEY_FILE = "key"


@contextmanager
def partial_folder(path: Path, key: str, parts: Collection[str], replaces: bool = False) -> Iterator[Path]:
    """A folder to fill by `stage`. At the end of the block, it keeps only its `parts` and gets its name.

    If it `replaces` a folder of that name, the name leads to one of them at any moment, and the old folder is removed.

    If an earlier try had the same key, its finished stages are in the folder; otherwise the folder is empty. After an
    error, finished stages stay for the next try; if no stage is finished, the folder is removed. In the names of
    `parts`, `*` stands for any text.

    `UserError` if another process fills the folder. `NotWritten` if a file cannot be written, with its final name.
    """
    beside = path.with_name(f".{path.name}.partial")
    with lock_folder(beside):
        try:
            if _key_of(beside) != key:
                _empty(beside, keep=())
                with write_whole(beside / KEY_FILE) as out:
                    out.write(key.encode())
            yield beside
            _empty(beside, keep=(*parts, KEY_FILE))
            if replaces:
                exchange(beside, path)
            else:
                beside.replace(path)
            # last, since a folder without its key is made anew
            (path / KEY_FILE).unlink(missing_ok=True)
            if replaces:
                shutil.rmtree(beside, ignore_errors=True)
        except Unneeded:
            shutil.rmtree(beside, ignore_errors=True)
        except BaseException as error:
            if not any(note.stat().st_nlink == 1 for note in beside.rglob("*.json")):  # others are an older index's
                shutil.rmtree(beside, ignore_errors=True)
            if isinstance(error, NotWritten) and error.path.is_relative_to(beside):
                raise NotWritten(path / error.path.relative_to(beside), error.reason) from error
            if isinstance(error, OSError):
                raise NotWritten(path, reason_of(error)) from error
            raise


def recover(path: Path) -> Path:
    """Give a folder its name again, or remove it, if a stop during three renames of `exchange` has left it aside.

    Returns the folder: if `path` is a link, that to which it leads.
    """
    path = path.resolve() if path.is_symlink() else path
    aside = path.with_name(f".{path.name}.partial.old")
    if aside.exists():
        if path.exists():
            shutil.rmtree(aside, ignore_errors=True)
        else:
            aside.rename(path)
    return path


def stage(folder: Path, name: str, make: Callable[[Path], Any]) -> Any:
    """Make a file or folder, unless an earlier try has; returns what `make` returned, of JSON types."""
    note = folder / f"{name}.json"
    if note.exists():
        return orjson.loads(note.read_bytes())
    _remove(folder / name)
    result = make(folder / name)
    with write_whole(note) as out:
        out.write(orjson.dumps(result))
    return result


def write_description(folder: Path, meta: Mapping[str, Any]) -> None:
    """Write `index.json`, the description of an index, which makes its folder whole."""
    with write_whole(folder / "index.json") as file:
        file.write(orjson.dumps(meta, option=orjson.OPT_INDENT_2))


def _key_of(folder: Path) -> str | None:
    try:
        return (folder / KEY_FILE).read_text()
    except OSError:
        return None


def _empty(folder: Path, keep: Collection[str]) -> None:
    for path in folder.iterdir():
        if not any(fnmatchcase(path.name, name) for name in keep):
            _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
