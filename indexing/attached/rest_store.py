"""The documents of an index on a REST server: those that searches have found, kept in the index folder.

A server has no list of its ids, so `found.sqlite` holds each document that any search has found, by id. Rows belong
to one `RestStore`: what outlives a store is kept by id. `searches.sqlite` holds the ids and scores of each search.
"""

import re
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import orjson
from numpy.typing import ArrayLike, NDArray

from keystone.indexing.attached.attach import DEFAULTS, KEY_ENV, MAX_RATE, REST, AttachSettings, adopt
from keystone.indexing.attached.rest_server import ROUTIR, ROUTIR_PREFIX, Parameters, Server, address, form_of
from keystone.indexing.corpora.jsonl import TEXT_KEYS, make_document
from keystone.indexing.corpora.segments import cut_segments
from keystone.indexing.errors import BadRecord, UserError
from keystone.indexing.index import Index
from keystone.indexing.io.fields import find_field
from keystone.indexing.io.json_values import digest, try_json
from keystone.indexing.io.kept import open_kept
from keystone.indexing.store import from_record, rows_of, to_record
from keystone.indexing.types import (
    LONGEST_DOCUMENT_ID,
    Document,
    Progress,
    Segment,
    Span,
    Store,
    chunks,
    describe_id,
    is_id,
    silent,
)

FOUND = "found.sqlite"
SEARCHES = "searches.sqlite"
BATCH_IDS = 500
MOST_ROWS = 2**31 - 1
PROBES: Mapping[tuple[str, ...], tuple[Parameters, Parameters]] = {
    ("k1", "b"): ({"k1": 0.9, "b": 0.4}, {"k1": 3.0, "b": 1.0}),
    ("feedback",): ({}, {"feedback": "rm3"}),
}
"""Two settings for each group of parameters, with which hardly any document has the same score."""
PROBE_HITS = 10
_SEGMENT = re.compile(r".+#\d+_\d+")


def adopt_server(
    corpus: Path | str, out: Path, settings: AttachSettings = DEFAULTS, _progress: Progress = silent
) -> tuple[Index, bool]:
    """Make an index folder over `rest:http://HOST:PORT/INDEX`, or `routir:http://HOST:PORT/COLLECTION?PIPELINE`.

    Also returns whether it is new. The index keeps the key of the server by the name of its variable. `UserError` if
    there is no such server or index, and if `out` holds another index.
    """
    corpus, key_env, max_rate = Path(corpus), settings.key_env, settings.max_rate
    found = address(corpus)
    if found is None:
        raise UserError(f"{corpus}: expected rest:http://HOST:PORT/INDEX")
    url, name = found
    if str(corpus).startswith(ROUTIR_PREFIX):
        form, languages = ROUTIR, dict[str, Any]()
        Server(url, name, form, key_env, max_rate).search(["document"], 1)
    else:
        form, languages = form_of(url, name, key_env, max_rate)
    at = {"backend": REST, "url": url, "name": name, "api": form}
    at |= {KEY_ENV: key_env} if key_env else {}
    at |= {MAX_RATE: str(max_rate)} if max_rate else {}
    return adopt(corpus, out, at, settings, lambda _folder: None, languages=languages)


@dataclass(frozen=True, slots=True)
class _Numbering:
    """Rows of documents: the document `ids[i]` has the row `first + i`. The ids ascend as UTF-8."""

    first: int
    ids: NDArray[np.bytes_]

    @property
    def end(self) -> int:
        """The first row after these."""
        return self.first + len(self.ids)


class RestStore(Store):
    """The documents that searches have found, by row. Several threads may read, and one may search, at the same time.

    A row never changes its document. Two promises oppose each other here. Searches find new documents all the time.
    Comparing rows compares ids, so a new document belongs between the rows of old ones. Therefore, when a search has
    found new documents, `number_documents` gives all known documents new rows after all earlier ones. The earlier rows
    keep their documents: rankings that hold them stay valid. `rows`, `len` and iteration use the newest rows. So the
    rows of one search, or of one call of `rows`, compare as ids; those of two searches may not.

    Each numbering holds all known ids, about 30 bytes each. If many topics search one after another, open a store for
    each, which frees its numberings with the topic. `UserError` if the registry in the folder cannot be used.
    """

    def __init__(self, index: Index) -> None:
        at, rate = index.at, index.at.get(MAX_RATE)
        self.server = Server(at["url"], at["name"], at["api"], at.get(KEY_ENV), float(rate) if rate else None)
        self._path = index.folder / FOUND
        self._language_field = "language" if index.languages else ""
        self._searches = index.folder / SEARCHES
        with self._opened() as registry, registry:
            registry.execute("CREATE TABLE IF NOT EXISTS documents (id TEXT PRIMARY KEY, record BLOB NOT NULL)")
        self._numberings: tuple[_Numbering, ...] = (_Numbering(0, self._known_ids()),)

    def __len__(self) -> int:
        return len(self._numberings[-1].ids)

    def ids(self, rows: ArrayLike) -> list[str]:
        """Return ids of rows (int[n]), of any numbering. `IndexError` for a row that the store has never given.

        `UserError` for -1, by which `rows` says that the registry lacks a document that a run has found.
        """
        wanted = np.asarray(rows, dtype=np.int64)
        if wanted.size and wanted.min() < 0:
            raise UserError(f"{self._path}: lacks documents that the run has found: run it again with another out")
        numberings = self._numberings
        newest = numberings[-1]
        if wanted.size and wanted.max() >= newest.end:
            raise IndexError(f"row {wanted.max()} is not in the store")
        if not wanted.size or wanted.min() >= newest.first:
            return [name.decode() for name in newest.ids[wanted - newest.first].tolist()]
        numbering = np.searchsorted([own.first for own in numberings], wanted, side="right") - 1
        places = zip(numbering.tolist(), wanted.tolist(), strict=True)
        return [numberings[i].ids[row - numberings[i].first].decode() for i, row in places]

    def rows(self, ids: Sequence[str]) -> NDArray[np.int32]:
        """Return the newest rows (int32[n]) of document ids; -1 for an id that no search has found."""
        newest = self._numberings[-1]
        places = rows_of(newest.ids, ids)
        return np.where(places < 0, -1, places + newest.first).astype(np.int32)

    def get(self, rows: ArrayLike) -> list[Document]:
        """Return the documents of rows (int[n]), of any numbering; errors as from `ids`."""
        names = self.ids(rows)
        records = self._records(sorted(set(names)))
        return [from_record(orjson.loads(records[name])) for name in names]

    def __iter__(self) -> Iterator[Document]:
        """Yield all documents by their newest row."""
        newest = self._numberings[-1]
        for rows in chunks(range(newest.first, newest.end), BATCH_IDS):
            yield from self.get(rows)

    def searches(
        self, queries: Iterable[tuple[int, str]], hits: int, parameters: Parameters = MappingProxyType({})
    ) -> Iterator[tuple[int, list[tuple[str, float]]]]:
        """Yield the place of each query with the ids and scores of its hits, best first, at most `hits`.

        A search that the index folder holds is read there. The server is asked for any other; its documents are kept,
        and then its ids and scores. A search whose documents the registry has lost is asked for again.
        """
        asked = dict(queries)
        keys = {place: self._key(query, hits, *([parameters] if parameters else [])) for place, query in asked.items()}
        with open_kept(self._searches) as kept:
            known = kept.get(list(set(keys.values())))
        for place in [place for place, key in keys.items() if key in known]:
            found = [(name, score) for name, score in orjson.loads(known[keys[place]])]
            if len(self._records([name for name, _ in found])) == len(found):
                del asked[place]
                yield place, found
        for place, candidates in self.server.searches(asked.items(), hits, parameters):
            self.keep((one.id, one.payload) for one in candidates)
            found = [(one.id, one.score) for one in candidates]
            with open_kept(self._searches) as kept:
                kept.put({keys[place]: orjson.dumps(found)})
            yield place, found

    def takes_parameters(self, query: str, keys: tuple[str, ...]) -> bool | None:
        """Whether the server scores by parameters of `PROBES`, as one query shows; asked once. None for no hits."""
        key = self._key("takes " + " and ".join(keys))
        with open_kept(self._searches) as kept:
            known = kept.get([key])
        if key in known:
            return bool(orjson.loads(known[key]))
        scores = [
            [score for _, found in self.searches([(0, query)], PROBE_HITS, parameters) for _, score in found]
            for parameters in PROBES[keys]
        ]
        if not any(scores):
            return None
        with open_kept(self._searches) as kept:
            kept.put({key: orjson.dumps(scores[0] != scores[1])})
        return scores[0] != scores[1]

    def _key(self, *asked: Any) -> bytes:
        """The key of what the server is asked: place, index, form, and a search's query, hits and parameters."""
        return digest([self.server.url, self.server.name, self.server.form, *asked]).encode()

    def keep(self, found: Iterable[tuple[str, Any]]) -> None:
        """Keep pairs of id and payload, without rows; fetch documents without text. `UserError` if one has none."""
        payloads = dict(found)
        known = self._records(list(payloads))
        new = {name: payload for name, payload in payloads.items() if name not in known}
        without = [name for name, payload in new.items() if not _has_text(payload)]
        new.update(self.server.documents(without))
        records = [(name, orjson.dumps(to_record(self._document(name, payload)))) for name, payload in new.items()]
        with self._opened() as registry, registry:
            registry.executemany("INSERT OR IGNORE INTO documents VALUES (?, ?)", records)

    def number_documents(self) -> None:
        """Give all documents new rows, unless the newest rows have them all. `UserError` beyond int32."""
        ids, newest = self._known_ids(), self._numberings[-1]
        if np.array_equal(ids, newest.ids):
            return
        if newest.end + len(ids) > MOST_ROWS:
            raise UserError(f"{self._path}: one command has numbered {newest.end} documents: give the command again")
        self._numberings = (*self._numberings, _Numbering(newest.end, ids))

    def _known_ids(self) -> NDArray[np.bytes_]:
        """Read all ids of the registry as UTF-8, ascending: bytes[documents]."""
        with self._opened() as registry:
            names = [name.encode() for (name,) in registry.execute("SELECT id FROM documents ORDER BY id")]
        return np.array(names, dtype=np.bytes_)

    def _records(self, names: Sequence[str]) -> dict[str, bytes]:
        records: dict[str, bytes] = {}
        with self._opened() as registry:
            for batch in chunks(names, BATCH_IDS):
                marks = ", ".join("?" * len(batch))
                records.update(registry.execute(f"SELECT id, record FROM documents WHERE id IN ({marks})", batch))
        return records

    def _document(self, name: str, payload: Any) -> Document:
        where = f"{self.server.url}: document {name}"
        if not is_id(name, LONGEST_DOCUMENT_ID):
            raise UserError(f"{where}: expected {describe_id(name, LONGEST_DOCUMENT_ID)}, found {name!r}")
        try:
            return cut_segments(document_of_payload(payload, name, where, self._language_field))
        except BadRecord as error:
            raise UserError(str(error)) from error

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self._path, timeout=60)) as registry:
                yield registry
        except sqlite3.DatabaseError as error:
            raise UserError(
                f"{self._path}: cannot be used: {error}: Keystone keeps the documents that it finds there"
            ) from error


def document_of_payload(payload: Any, name: str, where: str, language_field: str = "") -> Document:
    """Read the document in a server's payload: an object, an object's JSON in a string, or a plain text.

    If a plain text has the id of a segment (`DOCUMENT#NUMBER_OFFSET`), it is also its only segment. `BadRecord` for any
    other payload; `where` names it in the error. `language_field` names the field with its language, if any.
    """
    record = _object(payload)
    if record is not None:
        return make_document({**record, "docid": name}, where, language_field)
    if not isinstance(payload, str):
        raise BadRecord(f"{where}: expected a document, found {type(payload).__name__}", "wrong type")
    own = (Segment(name, Span(name, 0, len(payload))),) if _SEGMENT.fullmatch(name) else ()
    return Document(name, payload, segments=own)


def _object(payload: Any) -> dict[str, Any] | None:
    """Return a payload that is an object, or the object of its JSON; None for any other payload."""
    if isinstance(payload, str) and payload.lstrip().startswith("{"):
        payload = try_json(payload)
    return payload if isinstance(payload, dict) else None


def _has_text(payload: Any) -> bool:
    record = _object(payload)
    if record is None:
        return isinstance(payload, str) and bool(payload)
    return find_field(record, TEXT_KEYS) is not None
