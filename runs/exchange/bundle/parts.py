"""The parts of a bundle: the documents and vectors of an index that a run uses, and the archive of all files.

The documents and vectors take the place of the index while a bundle is made, and while a run is reproduced.
"""

import errno
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path, PurePosixPath
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from keystone.indexing.embedder import GRID_STEP, ReportCut, Vectors
from keystone.indexing.errors import UserError
from keystone.indexing.index import Index, describe_languages
from keystone.indexing.io.reading import hash_file
from keystone.indexing.io.writing import map_array, write_whole
from keystone.indexing.languages import DEFAULT_LANGUAGE
from keystone.indexing.types import RECORDED_LOCAL, Document, Embedding, Tick

KEYS, VECTORS = "keys.npy", "vectors.npy"
"""The files of vectors in their folder."""
HASH_BYTES = 32


class PartStore:
    """The store of some ids of a larger store; see `keystone.indexing.types.Store`. `read` reads documents by id.

    The order of rows is that of the larger store.
    """

    def __init__(self, ids: Iterable[str], read: Callable[[Sequence[str]], list[Document]]) -> None:
        self._ids = sorted(set(ids), key=str.encode)
        self._row = {name: row for row, name in enumerate(self._ids)}
        self._read = read

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[Document]:
        """Yield all documents by row."""
        for row in range(len(self)):
            yield from self.get([row])

    def ids(self, rows: ArrayLike) -> list[str]:
        """Return the document ids of rows (int[n]). `IndexError` for a row that is not in the store."""
        wanted = np.asarray(rows, dtype=np.int64).tolist()
        if min(wanted, default=0) < 0:
            raise IndexError(f"row {min(wanted)} is not in the store")
        return [self._ids[row] for row in wanted]

    def rows(self, ids: Sequence[str]) -> NDArray[np.int32]:
        """Return the rows (int32[n]) of document ids; -1 for an id that is not in the store."""
        return np.array([self._row.get(name, -1) for name in ids], dtype=np.int32)

    def get(self, rows: ArrayLike) -> list[Document]:
        """Return the documents of rows (int[n]). `IndexError` for a row that is not in the store."""
        return self._read(self.ids(rows))


class KnownVectors:
    """An embedder of texts whose vectors are known; see `keystone.indexing.embedder.Embedder`.

    `known` maps the hash of a text to its vector, float32[dimension]. `find` finds the vectors of texts that are not
    known yet, and `known` keeps them.
    """

    def __init__(
        self, dimension: int, find: Callable[[Sequence[str]], Iterable[Vectors]], known: dict[bytes, Vectors]
    ) -> None:
        self.dimension, self.known, self._find, self._lock = dimension, known, find, Lock()

    def find_long(self, _texts: Sequence[str]) -> list[int]:
        """Return no positions, since nobody knows which texts are longer than the model's window."""
        return []

    def embed(
        self, texts: Sequence[str], _threads: int = 1, tick: Tick = lambda _: None, _cut: ReportCut = lambda _: None
    ) -> Vectors:
        """The vectors of texts, float32[len(texts), dimension]. Errors are those of `find`."""
        keys = list(map(hash_text, texts))
        with self._lock:
            missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in self.known}
            if missing:
                self.known |= zip(missing, self._find(list(missing.values())), strict=True)
        tick(len(texts))
        return np.array([self.known[key] for key in keys], np.float32).reshape(len(texts), self.dimension)


def hash_text(text: str) -> bytes:
    """The key of a text's vector: its SHA-256, bytes[32]."""
    return sha256(text.encode(errors="surrogatepass")).digest()


def describe_index(index: Index) -> dict[str, Any]:
    """Describe the facts about an index on which the later stages depend, as JSON."""
    prefixes = index.embedding and [index.embedding.query_prefix, index.embedding.passage_prefix]
    local = {"local": True} if index.embedding and index.embedding.is_local else {}
    return {"key": index.key, "documents": index.documents, "prefixes": prefixes, **local, **describe_languages(index)}


def open_sealed_index(facts: Mapping[str, Any], folder: Path) -> Index:
    """Open the index that `describe_index` described. It cannot be searched, and only a stand-in can embed its texts.

    `folder` is for the files that the stages keep beside an index.
    """
    query, passage = facts["prefixes"] or ("", "")
    model = RECORDED_LOCAL if facts.get("local") else "recorded"
    embedding = Embedding(model, query_prefix=query, passage_prefix=passage) if facts["prefixes"] else None
    return Index(
        folder, facts["key"], embedding, facts["documents"], {}, 0, None,
        language=facts.get("language", DEFAULT_LANGUAGE), languages=facts.get("languages", {}),
    )  # fmt: skip


def save_vectors(path: Path, known: dict[bytes, Vectors]) -> None:
    """Save vectors by the hashes of their texts, in a folder: hashes as uint8[n, 32], vectors as int16[n, dimension].

    Each entry is saved as a number of steps of the grid, which keeps its bits.
    """
    path.mkdir()
    keys = sorted(known)
    np.save(path / KEYS, np.frombuffer(b"".join(keys), np.uint8).reshape(len(keys), HASH_BYTES))
    np.save(path / VECTORS, (np.array([known[key] for key in keys]) / GRID_STEP).astype(np.int16))


def load_vectors(path: Path) -> dict[bytes, Vectors]:
    """Load the vectors that `save_vectors` saved. `ValueError` if an array has another type or shape."""
    keys, steps = (map_array(path / name) for name in (KEYS, VECTORS))
    if (keys.dtype, keys.shape[1:], steps.dtype) != (np.dtype(np.uint8), (HASH_BYTES,), np.dtype(np.int16)):
        raise ValueError(f"{KEYS} and {VECTORS}: found {keys.dtype}{keys.shape} and {steps.dtype}{steps.shape}")
    vectors = steps.astype(np.float32) * np.float32(GRID_STEP)
    return dict(zip(map(bytes, keys), vectors, strict=True))


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

    `UserError` names each file that is damaged, missing or unexpected.
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
