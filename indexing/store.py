"""The document store: documents and segments in bulk, by row and by id.

A row is a document's position among all ids in ascending order, so that comparing rows compares ids.
Files: `documents.jsonl` in the order of arrival; `ids.npy`, `offsets.npy` by row.
"""

import mmap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import ArrayLike, NDArray

from indexing.errors import UserError
from indexing.types import Document, Progress, Segment, Span, silent


def build_store(documents: Iterable[Document], folder: Path, progress: Progress = silent) -> int:
    """Write the documents to a new folder; returns their number. `UserError` for a repeated id or no document."""
    folder.mkdir(parents=True)
    ids: list[bytes] = []
    offsets: list[int] = [0]
    with (folder / "documents.jsonl").open("wb") as out, progress("Reading documents", None) as tick:
        for document in documents:
            record = orjson.dumps(_to_record(document)) + b"\n"
            out.write(record)
            ids.append(document.id.encode())
            offsets.append(offsets[-1] + len(record))
            tick(1)
    if not ids:
        raise UserError("the corpus holds no document")
    names = np.array(ids, dtype=np.bytes_)
    order = np.argsort(names, kind="stable")
    names = names[order]
    repeated = np.flatnonzero(names[1:] == names[:-1])
    if repeated.size:
        raise UserError(f"document id {names[repeated[0]].decode()!r} occurs more than once in the corpus")
    starts = np.array(offsets, dtype=np.int64)
    np.save(folder / "ids.npy", names)
    np.save(folder / "offsets.npy", np.stack([starts[:-1][order], starts[1:][order]], axis=1))
    return len(ids)


class DocumentStore:
    """A store opened for reading; files are mapped into memory, not read."""

    def __init__(self, folder: Path) -> None:
        try:
            self._ids: NDArray[np.bytes_] = np.load(folder / "ids.npy", mmap_mode="r")
            self._offsets: NDArray[np.int64] = np.load(folder / "offsets.npy", mmap_mode="r")
            with (folder / "documents.jsonl").open("rb") as file:
                self._records = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise UserError(f"{folder}: not a whole document store: build the index again: {error}") from error

    def __len__(self) -> int:
        return len(self._ids)

    def ids(self, rows: ArrayLike) -> list[str]:
        """The document ids of rows (int[n])."""
        return [name.decode() for name in self._ids[np.asarray(rows, dtype=np.int64)].tolist()]

    def rows(self, ids: Sequence[str]) -> NDArray[np.int32]:
        """The rows (int32[n]) of document ids; -1 for an id that is not in the store."""
        wanted = np.array([name.encode() for name in ids], dtype=np.bytes_)
        found = np.minimum(np.searchsorted(self._ids, wanted), len(self._ids) - 1)
        return np.where(self._ids[found] == wanted, found, -1).astype(np.int32)

    def get(self, rows: ArrayLike) -> list[Document]:
        """The documents of rows (int[n]). `IndexError` for a row that is not in the store."""
        wanted = np.asarray(rows, dtype=np.int64)
        if wanted.size and wanted.min() < 0:
            raise IndexError(f"row {wanted.min()} is not in the store")
        spans = self._offsets[wanted].tolist()
        return [_from_record(orjson.loads(self._records[start:end])) for start, end in spans]

    def segments(self, ids: Sequence[str]) -> list[Segment | None]:
        """Segments by id; None for one that is not in the store."""
        rows = self.rows([name.rsplit("#", 1)[0] for name in ids])
        known = {row: {s.id: s for s in self.get([row])[0].segments} for row in np.unique(rows[rows >= 0]).tolist()}
        return [known.get(row, {}).get(name) for row, name in zip(rows.tolist(), ids, strict=True)]

    def __iter__(self) -> Iterator[Document]:
        """All documents by row."""
        for row in range(len(self)):
            yield from self.get([row])


def _to_record(document: Document) -> dict[str, Any]:
    segments = [[s.id, s.span.start, s.span.end] for s in document.segments]
    return {
        "id": document.id,
        "title": document.title,
        "url": document.url,
        "headings": document.headings,
        "text": document.text,
        "segments": segments,
    }


def _from_record(record: dict[str, Any]) -> Document:
    segments = tuple(Segment(name, Span(record["id"], start, end)) for name, start, end in record["segments"])
    return Document(record["id"], record["text"], record["title"], record["url"], record["headings"], segments)
