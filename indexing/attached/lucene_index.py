"""A Lucene index that Pyserini or Anserini built, used in place: Keystone searches it and reads its stored documents.

Keystone's index folder holds the rows of its documents (`keystone.indexing.lucene.read`), and `index.json`, which names
it.

An index of impacts holds weights of learned sparse retrieval as frequencies of terms. Its postings are copied, with our
rows, since Keystone searches impacts by mapped postings.

A Lucene index records neither its analyzer nor its similarity. So the fields, the lengths and the terms of some
documents show whether it can be searched by BM25 with Anserini's English analyzer.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from keystone.indexing.attached.attach import DEFAULTS, AttachSettings, adopt
from keystone.indexing.corpora import pyserini
from keystone.indexing.corpora.corpus import make_corpus_key
from keystone.indexing.corpora.locate import SegmentRecord, locate_segments
from keystone.indexing.corpora.pyserini import OfficialSegments
from keystone.indexing.corpora.segments import cut_segments, refuse_windows
from keystone.indexing.errors import BadRecord, UserError
from keystone.indexing.index import Index
from keystone.indexing.io.json_values import digest
from keystone.indexing.io.staged import stage
from keystone.indexing.lucene.analyzer import stems_of
from keystone.indexing.lucene.java import hold_java, java_class
from keystone.indexing.lucene.postings import write_counts, write_postings
from keystone.indexing.lucene.read import LuceneRows, StoredTexts, build_rows
from keystone.indexing.lucene.write import CONTENTS_FIELD, open_reader
from keystone.indexing.store import rows_of
from keystone.indexing.types import Document, Progress, Store, silent

BACKEND = "pyserini"
ROWS = "rows"
KEPT_READERS = 8
"""The Lucene indexes whose texts stay open."""


def adopt_prebuilt(
    corpus: Path | str, out: Path, settings: AttachSettings = DEFAULTS, progress: Progress = silent
) -> tuple[Index, bool]:
    """Make an index folder over the Lucene index `pyserini:NAME` or `pyserini:FOLDER`; also returns whether it is new.

    The function raises `UserError` if an index does not suit BM25 with Anserini's English analyzer, stores no
    documents, or has unusable ids. It also does so if `out` holds another index, and for documents of MS MARCO V2.1
    with neither `segments` nor `windows` in the settings.
    """
    corpus, segments = Path(corpus), settings.segments
    at = {"backend": BACKEND, "index": _place(corpus), "state": _state(corpus)}
    if segments:
        at |= {"segments": _place(segments)}
        OfficialSegments(segments)

    def fill(folder: Path) -> int:
        reader = open_reader(pyserini.index_folder(corpus))
        check_field(reader, str(corpus), holds_impacts=bool(settings.impacts))
        if reader.maxDoc() and StoredTexts(reader).of([0]) == [None]:
            raise UserError(f"{corpus}: stores no raw documents: take its variant that does, whose name has no -slim")
        if not settings.impacts:
            _check_analyzer(reader, str(corpus))
        count: int = stage(folder, ROWS, lambda path: build_rows(reader, str(corpus), path, progress))
        for name in settings.impacts:
            (folder / "impacts").mkdir(exist_ok=True)
            stage(
                folder / "impacts", name, lambda path: _copy_impacts(corpus, LuceneRows(folder / ROWS), path, progress)
            )
        if not (segments or settings.windows):
            for name in LuceneRows(folder / ROWS).ids[:1].tolist():
                refuse_windows(cut_segments(Document(name.decode(), "")))
        return count

    if len(settings.impacts) > 1:
        raise UserError(f"{corpus}: found {len(settings.impacts)} --impacts, expected one: the model of the index")
    parts = (ROWS, "impacts") if settings.impacts else (ROWS,)
    return adopt(corpus, out, at, settings, fill, parts)


def _copy_impacts(corpus: Path, rows: LuceneRows, folder: Path, progress: Progress) -> None:
    """Copy the postings of an index of impacts into a new folder, each term's by our rows in ascending order."""
    write_postings(pyserini.index_folder(corpus), folder, progress)
    owned, impacts = (np.load(folder / f"{name}.npy", mmap_mode="r+") for name in ("rows", "frequencies"))
    for begin, end in pairwise(np.load(folder / "offsets.npy").tolist()):
        own = rows.rows(owned[begin:end])
        order = np.argsort(own)
        owned[begin:end], impacts[begin:end] = own[order], impacts[begin:end][order]
    owned.flush()
    impacts.flush()
    (folder / "counts.json").unlink()
    write_counts(folder, len(rows.ids), int(impacts.sum(dtype=np.int64)))


def _check_analyzer(reader: Any, where: str) -> None:
    """Raise `UserError` unless the index holds the English stems of its documents."""
    raws = dict(zip(numbers := choose_documents(reader), StoredTexts(reader).of(numbers), strict=True))
    texts, are_marked_up = dict[int, str](), False
    for number, raw in raws.items():
        with suppress(BadRecord):  # found by whoever reads the document
            texts[number] = pyserini.parse_stored_document(raw or "", str(number), where).text
            are_marked_up = are_marked_up or texts[number] == raw
    check_terms(reader, where, texts, are_marked_up)


def lucene_folder(index: Index) -> Path:
    """Return the folder of the Lucene index that an index folder names. `UserError` if it is gone or has changed."""
    path = Path(f"{pyserini.PREFIX}{index.at['index']}")
    if _state(path) != index.at["state"]:
        raise UserError(f"{path}: is not the index that {index.folder} was made for: make {index.folder} again")
    return pyserini.index_folder(path)


def _place(path: Path) -> str:
    """Return the name of an index, or the absolute path of a folder. `UserError` without the prefix `pyserini:`."""
    name = pyserini.index_name(path)
    if name is None:
        raise UserError(f"{path}: expected pyserini:NAME or pyserini:FOLDER, an index to be used where it is")
    return str(Path(name).resolve()) if Path(name).is_dir() else name


def _state(path: Path) -> str:
    return digest(make_corpus_key(path, "pyserini"))


class PrebuiltStore(Store):
    """Documents that a Lucene index stores, for any threads. `UserError` if the index is gone or has changed."""

    def __init__(self, index: Index) -> None:
        self.lucene_rows = LuceneRows(index.folder / ROWS)
        self._folder, self._path, self._state = lucene_folder(index), index.at["index"], index.at["state"]
        self._segments = index.at.get("segments")

    def __len__(self) -> int:
        return len(self.lucene_rows.ids)

    def ids(self, rows: ArrayLike) -> list[str]:
        """Return the document ids of rows (int[n])."""
        return [name.decode() for name in self.lucene_rows.ids[np.asarray(rows, dtype=np.int64)].tolist()]

    def rows(self, ids: Sequence[str]) -> NDArray[np.int32]:
        """Return the rows (int32[n]) of document ids; -1 for an id that is not in the store."""
        return rows_of(self.lucene_rows.ids, ids)

    def get(self, rows: ArrayLike) -> list[Document]:
        """Return the documents of rows (int[n]). `IndexError` for an unknown row, `UserError` for one not stored."""
        raws, names = self.raws(rows), self.ids(rows)
        cuts: list[list[SegmentRecord]] = [[] for _ in names]
        if self._segments:
            with hold_java():
                cuts = _official(self._segments).of(names)
        return [self._document(name, raw, own) for name, raw, own in zip(names, raws, cuts, strict=True)]

    def raws(self, rows: ArrayLike) -> list[str | None]:
        """Return documents by row (int[n]) as stored; None for one that is not. `IndexError` for an unknown row."""
        wanted = np.asarray(rows, dtype=np.int64)
        if wanted.size and wanted.min() < 0:
            raise IndexError(f"row {wanted.min()} is not in the store")
        numbers = self.lucene_rows.numbers(wanted).tolist()
        with hold_java():
            return _texts(self._folder, self._state).of(numbers)

    def _document(self, name: str, raw: str | None, cuts: list[SegmentRecord]) -> Document:
        where = f"{pyserini.PREFIX}{self._path}: document {name}"
        if raw is None:
            raise UserError(f"{where}: is not stored: expected an index that stores all its raw documents")
        try:
            found = pyserini.parse_stored_document(raw, name, where)
        except BadRecord as error:
            raise UserError(str(error)) from error
        found = replace(found, segments=locate_segments(found, cuts, lambda _error: None)) if cuts else found
        return replace(cut_segments(found), place="")


@lru_cache(KEPT_READERS)
def _texts(folder: Path, _state: str) -> StoredTexts:
    return StoredTexts(open_reader(folder))


@lru_cache(KEPT_READERS)
def _official(name: str) -> OfficialSegments:
    return OfficialSegments(Path(f"{pyserini.PREFIX}{name}"), lambda _error: None)


EXAMINED_DOCUMENTS = 20
"""The documents whose terms are examined, spread over the index."""
EXAMINED_LENGTHS = 1000
EXAMINED_WORDS = 40
MOST_OTHER_FORMS = 0.05
"""The most words that an index may hold in another form than their stems, as a share of those that have a stem."""
LEAST_STEMS = 0.5
"""The least share of the stems of its documents that an index holds. Stored markup need not be indexed."""
LEAST_STEMS_OF_MARKUP = 0.05

_WORD = re.compile(r"[^\W\d_]{2,}")


def check_field(reader: Any, where: str, holds_impacts: bool = False) -> None:
    """Raise `UserError` unless the field of texts suits BM25, or holds impacts if and only if it should."""
    infos = java_class("org.apache.lucene.index.FieldInfos").getMergedFieldInfos(reader)
    field = infos.fieldInfo(CONTENTS_FIELD)
    options = field.getIndexOptions().toString() if field else "NONE"
    if options == "NONE":
        names = ", ".join(sorted(_list_names(infos))) or "none"
        raise _report(where, f"no indexed field {CONTENTS_FIELD} (its fields: {names})")
    if options == "DOCS" or not field.hasNorms():
        missing = "frequencies of terms" if options == "DOCS" else "lengths of documents"
        raise _report(where, f"a field {CONTENTS_FIELD} without {missing}")
    terms = java_class("org.apache.lucene.index.MultiTerms").getTerms(reader, CONTENTS_FIELD)
    documents = int(terms.getDocCount()) if terms else 0
    are_impacts = bool(documents and terms.getSumTotalTermFreq() > documents and _are_all_one(reader))
    if holds_impacts and not are_impacts:
        raise UserError(f"{where}: found an index of texts, expected one of impacts: leave out --impacts")
    if are_impacts and not holds_impacts:
        mean = terms.getSumTotalTermFreq() / documents
        raise _report(
            where,
            f"impacts (the weights of learned sparse retrieval): the terms of a document sum up to {mean:,.0f}, and "
            "each document has the length 1; or say which model made them: --impacts NAME=MODEL",
        )


def _list_names(infos: Any) -> Iterator[str]:
    names = infos.iterator()
    while names.hasNext():
        yield names.next().name


def _are_all_one(reader: Any) -> bool:
    """Whether the first documents with a length all have the length 1."""
    lengths = java_class("org.apache.lucene.index.MultiDocValues").getNormValues(reader, CONTENTS_FIELD)
    for _ in range(min(EXAMINED_LENGTHS, int(reader.maxDoc()))):
        if lengths.nextDoc() >= int(reader.maxDoc()):
            break
        if lengths.longValue() != 1:
            return False
    return True


def choose_documents(reader: Any) -> list[int]:
    """The numbers of some documents, spread over the index."""
    count = int(reader.maxDoc())
    chosen: list[int] = np.linspace(0, count - 1, min(EXAMINED_DOCUMENTS, count)).astype(int).tolist()
    return chosen


def check_terms(reader: Any, where: str, texts: dict[int, str], is_markup: bool) -> None:
    """Raise `UserError` unless the index holds the English stems of the texts of these documents."""
    examined = held = inflected = 0
    others = list[tuple[str, str]]()
    for number, text in texts.items():
        for word in dict.fromkeys(_WORD.findall(text.lower()[: EXAMINED_WORDS * 20])[:EXAMINED_WORDS]):
            stems = stems_of(word)
            if not stems:
                continue
            examined += 1
            is_held = all(_holds(reader, number, stem) for stem in stems)
            held += is_held
            if stems != [word]:
                inflected += 1
                if not is_held and _holds(reader, number, word):
                    others.append((word, stems[0]))
    if len(others) > MOST_OTHER_FORMS * inflected:
        word, stem = others[0]
        raise _report(where, f"terms of another analyzer, such as {word!r} in place of {stem!r}")
    if held < examined * (LEAST_STEMS_OF_MARKUP if is_markup else LEAST_STEMS):
        raise _report(where, f"terms of another analyzer: {held:,} of {examined:,} English stems of its documents")


def _holds(reader: Any, number: int, term: str) -> bool:
    """Whether the index has a term for a document."""
    ref = java_class("org.apache.lucene.util.BytesRef")(term.encode())
    postings = java_class("org.apache.lucene.index.MultiTerms").getTermPostingsEnum(reader, CONTENTS_FIELD, ref, 0)
    return postings is not None and int(postings.advance(number)) == number


def _report(where: str, found: str) -> UserError:
    return UserError(
        f"{where}: expected an index for BM25 with Anserini's English analyzer, found {found}: search it where it was "
        "made, and name its run files under retrieval.runs; or index its documents anew, without --in-place"
    )
