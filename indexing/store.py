"""The document store: documents and segments in bulk, by row and by id.

A row is a document's position among all ids in ascending order, so that comparing rows compares ids.
Files: `documents.jsonl` in the order of arrival; `ids.npy`, `offsets.npy` by row.
"""

import os
import weakref
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import ArrayLike, NDArray

from indexing.errors import BadRecord, Report, UserError, stop
from indexing.index import Index
from indexing.io.files import reserved, unicode_name
from indexing.types import Document, Progress, Segment, Span, Store, document_id, silent

BATCH = 2**13
"""Ids that are handled at once."""


def build_store(documents: Iterable[Document], folder: Path, progress: Progress = silent, report: Report = stop) -> int:
    """Write the documents to a new folder; returns their number. `UserError` for no document.

    Ids satisfy `is_id`. The first document of an id is kept; later ones, known only when all have been read, are
    reported, and `documents.jsonl` holds them without use. Memory: one document at a time, then about 25 bytes a
    document for sorting; ids and offsets stay on disk.
    """
    folder.mkdir(parents=True)
    arrivals = folder / "arrivals.jsonl"
    count = width = end = 0
    with (
        (folder / "documents.jsonl").open("wb") as out,
        arrivals.open("wb") as log,
        progress("Reading documents", None) as tick,
    ):
        for document in documents:
            end += out.write(orjson.dumps(to_record(document)) + b"\n")
            log.write(orjson.dumps([document.id, unicode_name(document.place), end]) + b"\n")
            width = max(width, len(document.id.encode()))
            count += 1
            tick(1)
    if not count:
        raise UserError("the corpus holds no document")
    return _write_rows(folder, arrivals, count, width, report)


def _write_rows(folder: Path, arrivals: Path, count: int, width: int, report: Report) -> int:
    arrived = [folder / "arrived-ids.npy", folder / "arrived-ends.npy"]
    ids = reserved(arrived[0], f"S{width}", (count,))
    ends = reserved(arrived[1], np.int64, (count,))
    with arrivals.open("rb") as log:
        for start in range(0, count, BATCH):
            batch = [orjson.loads(line) for line in islice(log, BATCH)]
            ids[start : start + BATCH] = [name.encode() for name, _, _ in batch]
            ends[start : start + BATCH] = [end for _, _, end in batch]
    order = np.argsort(ids, kind="stable")
    repeated = np.zeros(count, dtype=bool)
    for start in range(0, count, BATCH):
        rows = order[max(0, start - 1) : start + BATCH]
        names = ids[rows]
        repeated[rows[1:]] = names[1:] == names[:-1]
    if repeated.any():
        _report_repeated(arrivals, repeated, report)
        order = order[~repeated[order]]
    rows_ids = reserved(folder / "ids.npy", ids.dtype, order.shape)
    offsets = reserved(folder / "offsets.npy", np.int64, (len(order), 2))
    for start in range(0, len(order), BATCH):
        rows = order[start : start + BATCH]
        rows_ids[start : start + BATCH] = ids[rows]
        offsets[start : start + BATCH, 0] = np.where(rows > 0, ends[rows - 1], 0)
        offsets[start : start + BATCH, 1] = ends[rows]
    for file in (rows_ids, offsets):
        file.flush()
    for path in (arrivals, *arrived):
        path.unlink()
    return len(order)


def _report_repeated(arrivals: Path, repeated: NDArray[np.bool_], report: Report) -> None:
    with arrivals.open("rb") as log:
        for line, again in zip(log, repeated, strict=True):
            if again:
                name, place, _ = orjson.loads(line)
                where = f"{place}: " if place else ""
                report(BadRecord(f"{where}document id {name!r} occurs more than once in the corpus", "repeated id"))


def open_store(index: Index) -> Store:
    """Open the document store in an index folder. `UserError` if it is not whole."""
    return DocumentStore(index.store)


class DocumentStore:
    """A store opened for reading: ids and offsets are mapped into memory, documents are read when asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            self._ids: NDArray[np.bytes_] = np.load(folder / "ids.npy", mmap_mode="r")
            self._offsets: NDArray[np.int64] = np.load(folder / "offsets.npy", mmap_mode="r")
            self._records = os.open(folder / "documents.jsonl", os.O_RDONLY)
            weakref.finalize(self, os.close, self._records)
            self._size = os.fstat(self._records).st_size
            if not self._size:
                raise ValueError("documents.jsonl is empty")
            if self._ids.dtype.kind != "S" or (self._offsets.dtype, self._offsets.shape) != (np.int64, (len(self), 2)):
                raise ValueError("ids.npy and offsets.npy are not those of one store")
        except (OSError, EOFError, TypeError, ValueError) as error:
            raise UserError(f"{folder}: not a whole document store: build the index again: {error}") from error

    def __len__(self) -> int:
        return len(self._ids)

    def ids(self, rows: ArrayLike) -> list[str]:
        """The document ids of rows (int[n])."""
        return [name.decode() for name in self._ids[np.asarray(rows, dtype=np.int64)].tolist()]

    def rows(self, ids: Sequence[str]) -> NDArray[np.int32]:
        """The rows (int32[n]) of document ids; -1 for an id that is not in the store."""
        return rows_of(self._ids, ids)

    def get(self, rows: ArrayLike) -> list[Document]:
        """The documents of rows (int[n]). `IndexError` for a row that is not in the store."""
        try:
            return [from_record(orjson.loads(record)) for record in self.records(rows)]
        except (KeyError, TypeError, ValueError) as error:
            raise self._damaged(str(error)) from error

    def records(self, rows: ArrayLike) -> Iterator[bytes]:
        """The documents of rows (int[n]) as JSON, for `from_record`, each read when it is asked for."""
        wanted = np.asarray(rows, dtype=np.int64)
        if wanted.size and wanted.min() < 0:
            raise IndexError(f"row {wanted.min()} is not in the store")
        spans = self._offsets[wanted]
        if spans.size and not (spans.min() >= 0 and spans.max() <= self._size and (spans[:, 0] < spans[:, 1]).all()):
            raise self._damaged("it does not hold what offsets.npy says")
        return (os.pread(self._records, end - start, start) for start, end in spans.tolist())

    def _damaged(self, why: str) -> UserError:
        return UserError(f"{self.folder / 'documents.jsonl'}: damaged: build the index again: {why}")

    def segments(self, ids: Sequence[str]) -> list[Segment | None]:
        """Segments by id; None for one that is not in the store."""
        rows = self.rows([document_id(name) for name in ids])
        known = {row: {s.id: s for s in self.get([row])[0].segments} for row in np.unique(rows[rows >= 0]).tolist()}
        return [known.get(row, {}).get(name) for row, name in zip(rows.tolist(), ids, strict=True)]

    def __iter__(self) -> Iterator[Document]:
        """All documents by row."""
        for row in range(len(self)):
            yield from self.get([row])


def rows_of(known: NDArray[np.bytes_], ids: Sequence[str]) -> NDArray[np.int32]:
    """The places (int32[n]) of ids in an ascending array of them as UTF-8; -1 for one that is not there."""
    if not len(known):
        return np.full(len(ids), -1, dtype=np.int32)
    wanted = np.array([_searchable(name, known.dtype.itemsize) for name in ids], dtype=known.dtype)
    found = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return np.where(known[found] == wanted, found, -1).astype(np.int32)


def _searchable(name: str, width: int) -> bytes:
    """An id as bytes; the empty one, which no document has, where numpy would take it for another's."""
    found = name.encode("utf-8", "surrogatepass")
    return b"" if name.endswith("\0") or len(found) > width else found


def to_record(document: Document) -> dict[str, Any]:
    """A document as JSON, which `from_record` reads."""
    segments = [[s.id, s.span.start, s.span.end] for s in document.segments]
    return {
        "id": document.id,
        "title": document.title,
        "url": document.url,
        "headings": document.headings,
        "text": document.text,
        "segments": segments,
    }


def from_record(record: dict[str, Any]) -> Document:
    """The document that `to_record` wrote."""
    segments = tuple(Segment(name, Span(record["id"], start, end)) for name, start, end in record["segments"])
    return Document(record["id"], record["text"], record["title"], record["url"], record["headings"], segments)
