"""The document store of an index folder: documents and segments in bulk, by row and by id.

A row is a document's position among all ids in ascending order, so that comparing rows compares ids. The store has
three files: `documents.jsonl` in the order of arrival, `ids.npy` and `offsets.npy` by row.
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

from keystone.indexing.errors import BadRecord, Report, UserError, stop
from keystone.indexing.index import Index
from keystone.indexing.io.writing import map_array, reserve_array, unicode_name
from keystone.indexing.types import Document, Progress, Segment, Span, Store, silent

BATCH_IDS = 2**13


CHUNK_BYTES = 2**16


def build_store(documents: Iterable[Document], folder: Path, progress: Progress = silent, report: Report = stop) -> int:
    """Write the documents to a new folder; returns their number.

    The ids of all documents satisfy `is_id`. If several documents share an id, the store keeps the first; `report`
    receives the others after the last document, and `documents.jsonl` still has them, unused. `UserError` if there is
    no document. Memory: one document at a time, then about 25 bytes per document for sorting.
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
    """Sort `count` ids of at most `width` bytes, and write ids and offsets by row; returns the number of rows."""
    arrived = [folder / "arrived-ids.npy", folder / "arrived-ends.npy"]
    ids = reserve_array(arrived[0], f"S{width}", (count,))
    ends = reserve_array(arrived[1], np.int64, (count,))
    with arrivals.open("rb") as log:
        for start in range(0, count, BATCH_IDS):
            batch = [orjson.loads(line) for line in islice(log, BATCH_IDS)]
            ids[start : start + BATCH_IDS] = [name.encode() for name, _, _ in batch]
            ends[start : start + BATCH_IDS] = [end for _, _, end in batch]
    order = np.argsort(ids, kind="stable")
    repeated = np.zeros(count, dtype=bool)
    for start in range(0, count, BATCH_IDS):
        rows = order[max(0, start - 1) : start + BATCH_IDS]
        names = ids[rows]
        repeated[rows[1:]] = names[1:] == names[:-1]
    if repeated.any():
        _report_repeated(arrivals, repeated, report)
        order = order[~repeated[order]]
    rows_ids = reserve_array(folder / "ids.npy", ids.dtype, order.shape)
    offsets = reserve_array(folder / "offsets.npy", np.int64, (len(order), 2))
    for start in range(0, len(order), BATCH_IDS):
        rows = order[start : start + BATCH_IDS]
        rows_ids[start : start + BATCH_IDS] = ids[rows]
        offsets[start : start + BATCH_IDS, 0] = np.where(rows > 0, ends[rows - 1], 0)
        offsets[start : start + BATCH_IDS, 1] = ends[rows]
    for file in (rows_ids, offsets):
        file.flush()
    for path in (arrivals, *arrived):
        path.unlink()
    return len(order)


def update_store(
    older: "DocumentStore", removed: NDArray[np.int32], changed: Path, folder: Path, progress: Progress = silent
) -> None:
    """Write the store of all documents but those in the rows `removed`, then the new ones, to a new folder.

    `changed` is a file of new documents, as `documents.jsonl` holds them, whose ids do not stay. The bytes are those of
    `build_store`. Other documents are copied without being read. Memory: about 60 bytes for each of them.
    """
    folder.mkdir(parents=True)
    arrived = older.arrived()
    arrived = arrived[~np.isin(arrived, removed)]
    spans = older.spans(arrived)
    with (
        (folder / "documents.jsonl").open("wb") as out,
        changed.open("rb") as new,
        progress("Copying documents", len(arrived)) as tick,
    ):
        for part in older.read_spans(spans):
            out.write(part)
        tick(len(arrived))
        names, sizes = [], []
        for line in new:
            names.append(orjson.loads(line)["id"].encode())
            sizes.append(out.write(line))
    ends = np.cumsum(np.concatenate([spans[:, 1] - spans[:, 0], np.array(sizes, np.int64)]))
    stay, new_ids = older._ids[arrived], np.array(names, "S") if names else np.empty(0, "S1")
    width = max(int(np.char.str_len(ids).max(initial=1)) for ids in (stay, new_ids))
    ids = np.concatenate([stay.astype(f"S{width}"), new_ids.astype(f"S{width}")])
    order = np.argsort(ids, kind="stable")
    for name, array in (("ids", ids[order]), ("offsets", np.stack([np.append(0, ends[:-1])[order], ends[order]], 1))):
        file = reserve_array(folder / f"{name}.npy", array.dtype, array.shape)
        file[:] = array
        file.flush()


def _report_repeated(arrivals: Path, repeated: NDArray[np.bool_], report: Report) -> None:
    with arrivals.open("rb") as log:
        for line, again in zip(log, repeated, strict=True):
            if again:
                name, place, _ = orjson.loads(line)
                report(repeated_error(name, place))


def repeated_error(name: str, place: str) -> BadRecord:
    """Make the error for a document whose id an earlier one has."""
    where = f"{place}: " if place else ""
    return BadRecord(f"{where}document id {name!r} occurs more than once in the corpus", "repeated id")


def open_store(index: Index) -> Store:
    """Open the document store in an index folder. `UserError` if it is not whole."""
    return index.take("store", lambda: DocumentStore(index.store))


class DocumentStore:
    """A document store in a folder, opened for reading.

    The store maps ids and offsets into memory and reads each document on demand.
    `UserError` if the folder holds no complete store. Several threads may read at the same time.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            self._ids: NDArray[np.bytes_] = np.asarray(map_array(folder / "ids.npy"))
            self._offsets: NDArray[np.int64] = np.asarray(map_array(folder / "offsets.npy"))
            self._records = os.open(folder / "documents.jsonl", os.O_RDONLY)
            weakref.finalize(self, os.close, self._records)
            self._size = os.fstat(self._records).st_size
            if not self._size:
                raise ValueError("documents.jsonl is empty")
            pairs = self._offsets.dtype == np.int64 and self._offsets.shape == (len(self), 2)
            if self._ids.dtype.kind != "S" or not pairs:
                raise ValueError("ids.npy and offsets.npy are not those of one store")
        except (OSError, EOFError, TypeError, ValueError) as error:
            raise UserError(f"{folder}: not a whole document store: build the index again: {error}") from error

    def __reduce__(self) -> tuple[type["DocumentStore"], tuple[Path]]:
        """Let another process open the same folder."""
        return DocumentStore, (self.folder,)

    def __len__(self) -> int:
        return len(self._ids)

    def ids(self, rows: ArrayLike) -> list[str]:
        """Return the document ids of rows (int[n])."""
        return [name.decode() for name in self._ids[np.asarray(rows, dtype=np.int64)].tolist()]

    def rows(self, ids: Sequence[str]) -> NDArray[np.int32]:
        """Return the rows (int32[n]) of document ids; -1 for an id that is not in the store."""
        return rows_of(self._ids, ids)

    def rows_in(self, other: "DocumentStore") -> NDArray[np.int64]:
        """Return the row in another store of each document by its id: int64[documents], -1 if it has none there."""
        found = np.minimum(np.searchsorted(other._ids, self._ids), len(other) - 1)
        return np.where(other._ids[found] == self._ids, found, -1)

    def arrived(self) -> NDArray[np.int64]:
        """Return all rows in the order in which the build read their documents: int64[documents]."""
        return np.argsort(self._offsets[:, 0], kind="stable")

    def get(self, rows: ArrayLike) -> list[Document]:
        """Return documents by row (int[n]). `IndexError` for an unknown row, `UserError` for a damaged store."""
        try:
            return [from_record(orjson.loads(record)) for record in self.records(rows)]
        except (KeyError, TypeError, ValueError) as error:
            raise self._damaged(str(error)) from error

    def records(self, rows: ArrayLike) -> Iterator[bytes]:
        """Yield the documents of rows (int[n]) as JSON for `from_record`, each read on demand; errors as from `get`."""
        return (os.pread(self._records, end - start, start) for start, end in self.spans(rows).tolist())

    def spans(self, rows: ArrayLike) -> NDArray[np.int64]:
        """Return where documents begin and end in `documents.jsonl`, int64[n, 2], by row; errors as from `get`."""
        wanted = np.asarray(rows, dtype=np.int64)
        if wanted.size and wanted.min() < 0:
            raise IndexError(f"row {wanted.min()} is not in the store")
        spans: NDArray[np.int64] = self._offsets[wanted]
        if spans.size and not (spans.min() >= 0 and spans.max() <= self._size and (spans[:, 0] < spans[:, 1]).all()):
            raise self._damaged("it does not hold what offsets.npy says")
        return spans

    def read_spans(self, spans: NDArray[np.int64]) -> Iterator[bytes]:
        """Yield the bytes of parts of `documents.jsonl`, neighbours together, at most `CHUNK_BYTES` at a time."""
        breaks = np.flatnonzero(spans[1:, 0] != spans[:-1, 1])
        starts, ends = np.append(spans[:1, 0], spans[breaks + 1, 0]), np.append(spans[breaks, 1], spans[-1:, 1])
        for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
            for place in range(start, end, CHUNK_BYTES):
                yield os.pread(self._records, min(CHUNK_BYTES, end - place), place)

    def _damaged(self, why: str) -> UserError:
        return UserError(f"{self.folder / 'documents.jsonl'}: damaged: build the index again: {why}")

    def __iter__(self) -> Iterator[Document]:
        """Yield all documents by row."""
        for row in range(len(self)):
            yield from self.get([row])


SAMPLED_DOCUMENTS = 120
"""The most documents by which the languages of an index are guessed, and narratives made."""


def sample_documents(store: Store) -> list[Document]:
    """Read at most `SAMPLED_DOCUMENTS`, evenly spread over a store."""
    count = min(SAMPLED_DOCUMENTS, len(store))
    return store.get([place * len(store) // count for place in range(count)])


def rows_of(known: NDArray[np.bytes_], ids: Sequence[str]) -> NDArray[np.int32]:
    """Return the places (int32[n]) of ids in `known`, ids as UTF-8, ascending; -1 for an id that is not there."""
    if not len(known):
        return np.full(len(ids), -1, dtype=np.int32)
    wanted = np.array([_searchable(name, known.dtype.itemsize) for name in ids], dtype=known.dtype)
    found = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return np.where(known[found] == wanted, found, -1).astype(np.int32)


def _searchable(name: str, width: int) -> bytes:
    """Return an id as UTF-8, or the empty id, which no document has, if numpy would confuse the id with another."""
    found = name.encode("utf-8", "surrogatepass")
    return b"" if name.endswith("\0") or len(found) > width else found


def to_record(document: Document) -> dict[str, Any]:
    """Return a document as a JSON object, which `from_record` reads."""
    segments = [[s.id, s.span.start, s.span.end] for s in document.segments]
    return {
        "id": document.id,
        "title": document.title,
        "url": document.url,
        "headings": document.headings,
        "text": document.text,
        "segments": segments,
        **({"language": document.language} if document.language else {}),
    }


def from_record(record: dict[str, Any]) -> Document:
    """Read a document that `to_record` wrote. `KeyError`, `TypeError` or `ValueError` for another object."""
    segments = tuple(Segment(name, Span(record["id"], start, end)) for name, start, end in record["segments"])
    text, title, url, headings = (record[name] for name in ("text", "title", "url", "headings"))
    return Document(record["id"], text, title, url, headings, segments, language=record.get("language", ""))
