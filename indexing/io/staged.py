"""Folders that are made in stages, so that a later try can go on after a stop.

Until the folder `NAME` is whole, it lies beside its place as `.NAME.partial`; its file `key` identifies the sources.
A stage `S` writes its note `S.json` last. If the note is missing, the next try removes the stage's files.
"""

import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import orjson

from indexing.errors import NotWritten
from indexing.io.files import locked, reason_of, written

KEY = "key"


@contextmanager
def partial_folder(path: Path, key: str, parts: Collection[str]) -> Iterator[Path]:
    """A folder to fill by `stage`; at the end of the block it keeps only its `parts` and gets its name.

    The stages of an earlier try with the same key are still there; those with another key are removed. After an error
    the finished stages stay for the next try; if none is finished, the folder is removed. `UserError` if another
    process fills the folder. `NotWritten` with the final name of a file that cannot be written. In the names of
    `parts`, `*` stands for any text.
    """
    beside = path.with_name(f".{path.name}.partial")
    with locked(beside):
        try:
            if _key_of(beside) != key:
                _empty(beside, keep=())
                with written(beside / KEY) as out:
                    out.write(key.encode())
            yield beside
            _empty(beside, keep=parts)
            beside.replace(path)
        except BaseException as error:
            if not any(beside.glob("*.json")):
                shutil.rmtree(beside, ignore_errors=True)
            if isinstance(error, NotWritten) and error.path.is_relative_to(beside):
                raise NotWritten(path / error.path.relative_to(beside), error.reason) from error
            if isinstance(error, OSError):
                raise NotWritten(path, reason_of(error)) from error
            raise


def stage(folder: Path, name: str, make: Callable[[Path], Any]) -> Any:
    """Make the file or folder `name`, unless an earlier try has; returns the result of `make`, then or now (JSON)."""
    note = folder / f"{name}.json"
    if note.exists():
        return orjson.loads(note.read_bytes())
    _remove(folder / name)
    said = make(folder / name)
    with written(note) as out:
        out.write(orjson.dumps(said))
    return said


def _key_of(folder: Path) -> str | None:
    try:
        return (folder / KEY).read_text()
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
