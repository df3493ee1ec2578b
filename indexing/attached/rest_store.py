"""The documents of an index on a REST server: those that searches have returned, kept in the index folder.

A server has no list of its ids. `found.sqlite` holds each document that was ever found, by id; rows are the ranks of
the ids that a store knew when it was opened or last given documents. They change from store to store: what is kept
longer than a store is kept by id.
"""

import re
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import ArrayLike, NDArray

from indexing.attached.attach import adopt
from indexing.attached.rest_server import Server, address, form_of
from indexing.corpora.jsonl import TEXT_KEYS
from indexing.corpora.pyserini import document_of_object
from indexing.corpora.segments import segmented
from indexing.errors import BadRecord, UserError
from indexing.index import Index
from indexing.store import from_record, rows_of, to_record
from indexing.types import LONGEST_DOCUMENT_ID, Document, Embedding, Segment, Span, is_id

BACKEND = "rest"
FOUND = "found.sqlite"
_BATCH = 500
_SEGMENT = re.compile(r".+#\d+_\d+")


def adopt_server(corpus: Path, out: Path, embedding: Embedding | None = None) -> tuple[Index, bool]:
    """An index of ours over `rest:http://HOST:PORT/INDEX`; and whether it had to be made.

    `UserError` where there is no such server or index.
    """
    found = address(corpus)
    if found is None:
        raise UserError(f"{corpus}: expected rest:http://HOST:PORT/INDEX")
    url, name = found
    at = {"backend": BACKEND, "url": url, "name": name, "api": form_of(url, name)}
    return adopt(corpus, out, at, embedding, (), lambda _folder: None)


def open_server(index: Index) -> Server:
    """The server that holds an index."""
    return Server(index.at["url"], index.at["name"], index.at["api"])


class RestStore:
    """The documents of an index that are known, by row; several threads may read at the same time."""

    def __init__(self, index: Index) -> None:
        self._path, self.server = index.folder / FOUND, open_server(index)
        with self._opened() as registry, registry:
            registry.execute("CREATE TABLE IF NOT EXISTS documents (id TEXT PRIMARY KEY, record BLOB NOT NULL)")
        self._ids = np.empty(0, "S1")
        self.renumber()

    def __len__(self) -> int:
        return len(self._ids)

    def ids(self, rows: ArrayLike) -> list[str]:
        """The document ids of rows (int[n]). `UserError` for a document that was found once and is not known now."""
        wanted = np.asarray(rows, dtype=np.int64)
        if wanted.size and wanted.min() < 0:
            raise UserError(f"{self._path}: lacks documents that the run has found: make the run anew, in another out")
        return [name.decode() for name in self._ids[wanted].tolist()]

    def rows(self, ids: Sequence[str]) -> NDArray[np.int32]:
        """The rows (int32[n]) of document ids; -1 for an id that is not known."""
        return rows_of(self._ids, ids)

    def get(self, rows: ArrayLike) -> list[Document]:
        """The documents of rows (int[n]). `IndexError` for a row that is not in the store."""
        names = self.ids(rows)
        records = self._records(sorted(set(names)))
        return [from_record(orjson.loads(records[name])) for name in names]

    def __iter__(self) -> Iterator[Document]:
        """All documents by row."""
        for start in range(0, len(self), _BATCH):
            yield from self.get(range(start, min(start + _BATCH, len(self))))

    def keep(self, found: Iterable[tuple[str, Any]]) -> None:
        """Keep documents, by id and with what came of each, without changing any row; see `renumber`.

        What came without a text is fetched. `UserError` for a document that has none even so.
        """
        payloads = dict(found)
        known = self._records(list(payloads))
        new = {name: payload for name, payload in payloads.items() if name not in known}
        without = [name for name, payload in new.items() if not _has_text(payload)]
        new.update(self.server.documents(without))
        records = [(name, orjson.dumps(to_record(self._document(name, payload)))) for name, payload in new.items()]
        with self._opened() as registry, registry:
            registry.executemany("INSERT OR IGNORE INTO documents VALUES (?, ?)", records)

    def renumber(self) -> None:
        """Number the rows anew, by all documents that are known now."""
        with self._opened() as registry:
            names = [name.encode() for (name,) in registry.execute("SELECT id FROM documents ORDER BY id")]
        self._ids = np.array(names, dtype=np.bytes_)

    def _records(self, names: Sequence[str]) -> dict[str, bytes]:
        records: dict[str, bytes] = {}
        with self._opened() as registry:
            for start in range(0, len(names), _BATCH):
                batch = names[start : start + _BATCH]
                marks = ", ".join("?" * len(batch))
                records.update(registry.execute(f"SELECT id, record FROM documents WHERE id IN ({marks})", batch))
        return records

    def _document(self, name: str, payload: Any) -> Document:
        where = f"{self.server.url}: document {name}"
        if not is_id(name, LONGEST_DOCUMENT_ID):
            raise UserError(f"{where}: expected an id without space, found {name!r}")
        try:
            return segmented(document_of_payload(payload, name, where))
        except BadRecord as error:
            raise UserError(str(error)) from error

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self._path, timeout=60)) as registry:
                yield registry
        except sqlite3.DatabaseError as error:
            raise UserError(
                f"{self._path}: cannot be used: {error}: documents that are found are kept there"
            ) from error


def document_of_payload(payload: Any, name: str, where: str) -> Document:
    """The document of what a server sends of it: an object, JSON of one inside a string, or a plain text.

    A plain text with the id of a segment (`DOCUMENT#NUMBER_OFFSET`) is its own segment. `BadRecord` for anything else.
    """
    record = _object(payload)
    if record is not None:
        return document_of_object(record, name, where)
    if not isinstance(payload, str):
        raise BadRecord(f"{where}: expected a document, found {type(payload).__name__}", "wrong type")
    own = (Segment(name, Span(name, 0, len(payload))),) if _SEGMENT.fullmatch(name) else ()
    return Document(name, payload, segments=own)


def _object(payload: Any) -> dict[str, Any] | None:
    """The object that a payload is or whose JSON it is, None where it is neither."""
    if isinstance(payload, str) and payload.lstrip().startswith("{"):
        with suppress(orjson.JSONDecodeError):
            payload = orjson.loads(payload)
    return payload if isinstance(payload, dict) else None


def _has_text(payload: Any) -> bool:
    record = _object(payload)
    if record is None:
        return isinstance(payload, str) and bool(payload)
    return not record.keys().isdisjoint((*TEXT_KEYS, "segment"))
