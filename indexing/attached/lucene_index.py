"""A Lucene index that Pyserini or Anserini made, used where it is: searched as it is, its stored documents the store.

The index folder of ours holds the rows of its documents (`indexing.lucene.rows`) and `index.json`, whose `at` names it.
"""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from indexing.attached.attach import adopt
from indexing.build.index import refuse_windows
from indexing.corpora import pyserini
from indexing.corpora.corpus import corpus_key
from indexing.corpora.locate import Cut, located
from indexing.corpora.official_segments import OfficialSegments
from indexing.corpora.segments import segmented
from indexing.errors import BadRecord, UserError
from indexing.index import Index
from indexing.io.files import digest
from indexing.io.staged import stage
from indexing.lucene.java import ALONE, detach_thread
from indexing.lucene.read import StoredTexts
from indexing.lucene.rows import LuceneRows, build_rows
from indexing.lucene.write import open_reader
from indexing.store import rows_of
from indexing.types import Document, Embedding, Progress, silent

BACKEND = "pyserini"
ROWS = "rows"
BATCH = 2**10
"""Documents that are fetched at once."""


def adopt_prebuilt(
    corpus: Path,
    out: Path,
    segments: Path | None = None,
    windows: bool = False,
    embedding: Embedding | None = None,
    progress: Progress = silent,
) -> tuple[Index, bool]:
    """An index of ours over the Lucene index `pyserini:NAME` or `pyserini:FOLDER`; and whether it had to be made.

    `segments`, in the same form, is an index of official segments. Where there is an embedding model, runs embed the
    documents that they find. Documents of MS MARCO V2.1 without `segments` are an error unless `windows` lets runs cut
    them. `UserError` for an index that stores no documents or whose ids cannot be used.
    """
    at = {"backend": BACKEND, "index": _place(corpus), "state": _state(corpus)}
    if segments:
        at |= {"segments": _place(segments)}
    if segments:
        OfficialSegments(segments)

    def fill(folder: Path) -> int:
        reader = open_reader(pyserini.index_folder(corpus))
        if reader.maxDoc() and StoredTexts(reader).of([0]) == [None]:
            raise UserError(f"{corpus}: stores no raw documents: take its variant that does, whose name has no -slim")
        count: int = stage(folder, ROWS, lambda path: build_rows(reader, str(corpus), path, progress))
        if not (segments or windows):
            for name in LuceneRows(folder / ROWS).ids[:1].tolist():
                refuse_windows(segmented(Document(name.decode(), "")))
        return count

    return adopt(corpus, out, at, embedding, (ROWS,), fill)


def lucene_folder(index: Index) -> Path:
    """The Lucene index that an index of ours stands for. `UserError` where it is gone or is another one by now."""
    path = Path(f"{pyserini.PREFIX}{index.at['index']}")
    if _state(path) != index.at["state"]:
        raise UserError(f"{path}: is not the index that {index.folder} was made for: make {index.folder} again")
    return pyserini.index_folder(path)


def _place(path: Path) -> str:
    """A name as it is; a folder by its absolute path."""
    name = pyserini.index_name(path)
    if name is None:
        raise UserError(f"{path}: expected pyserini:NAME or pyserini:FOLDER, an index to be used where it is")
    return str(Path(name).resolve()) if Path(name).is_dir() else name


def _state(path: Path) -> str:
    return digest(corpus_key(path, "pyserini"))


class PrebuiltStore:
    """The documents that a Lucene index stores, by row; several threads may read at the same time."""

    def __init__(self, index: Index) -> None:
        self.lucene_rows = LuceneRows(index.folder / ROWS)
        self._folder, self._path, self._state = lucene_folder(index), index.at["index"], index.at["state"]
        self._segments = index.at.get("segments")

    def __len__(self) -> int:
        return len(self.lucene_rows.ids)

    def ids(self, rows: ArrayLike) -> list[str]:
        """The document ids of rows (int[n])."""
        return [name.decode() for name in self.lucene_rows.ids[np.asarray(rows, dtype=np.int64)].tolist()]

    def rows(self, ids: Sequence[str]) -> NDArray[np.int32]:
        """The rows (int32[n]) of document ids; -1 for an id that is not in the store."""
        return rows_of(self.lucene_rows.ids, ids)

    def get(self, rows: ArrayLike) -> list[Document]:
        """The documents of rows (int[n]). `IndexError` for a row that is not in the store."""
        wanted = np.asarray(rows, dtype=np.int64)
        if wanted.size and wanted.min() < 0:
            raise IndexError(f"row {wanted.min()} is not in the store")
        numbers = self.lucene_rows.numbers(wanted).tolist()
        names = self.ids(wanted)
        try:
            with ALONE:
                raws = _texts(self._folder, self._state).of(numbers)
                cuts = _official(self._segments).of(names) if self._segments else [[] for _ in names]
        finally:
            if threading.current_thread() is not threading.main_thread():
                detach_thread()
        return [self._document(name, raw, own) for name, raw, own in zip(names, raws, cuts, strict=True)]

    def __iter__(self) -> Iterator[Document]:
        """All documents by row."""
        for start in range(0, len(self), BATCH):
            yield from self.get(range(start, min(start + BATCH, len(self))))

    def _document(self, name: str, raw: str | None, cuts: list[Cut]) -> Document:
        where = f"{pyserini.PREFIX}{self._path}: document {name}"
        if raw is None:
            raise UserError(f"{where}: is not stored: expected an index that stores all its raw documents")
        try:
            found = pyserini.document_from(raw, name, where)
        except BadRecord as error:
            raise UserError(str(error)) from error
        found = replace(found, segments=located(found, cuts, lambda _error: None)) if cuts else found
        return replace(segmented(found), place="")


@cache
def _texts(folder: Path, _state: str) -> StoredTexts:
    return StoredTexts(open_reader(folder))


@cache
def _official(name: str) -> OfficialSegments:
    return OfficialSegments(Path(f"{pyserini.PREFIX}{name}"), lambda _error: None)
