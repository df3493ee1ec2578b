"""Folders made in stages that a later try goes on with.

Until it is whole, the folder `NAME` lies beside its place as `.NAME.partial`, with `key`: what it is made from. A
stage `S` is done when its note `S.json` is there, which is written last; what an unfinished stage left is removed.
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
    """A folder to fill by `stage`; at the end of the block its `parts` are kept and it takes its name.

    What an earlier try with the same key has done is still there, of another key nothing. An error leaves what is
    done for the next try, and nothing if no stage is done. `UserError` while another process fills the folder,
    `NotWritten` with the name that a file would have had where it cannot be written.
    In the names of `parts`, `*` is any text.
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
    """Make the file or folder `name` unless an earlier try has; returns what `make` said then or says now (JSON)."""
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
