"""The postings of a Lucene index as files that a search maps, and reads without Java.

A folder of postings holds the terms of the field of texts, ordered by their bytes. For each term it has the rows of
the documents that hold it, in ascending order, and how often each does. For each document it has Lucene's byte for the
length. A few calls into Java copy all of this out of an index that `build_lucene` made.
"""

import sys
import zlib
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from keystone.indexing.errors import UserError
from keystone.indexing.io.writing import HEADER_LOCK
from keystone.indexing.lucene.java import call, class_of, handle_of, handles, hold_java, java_class, type_of
from keystone.indexing.lucene.read import (
    DOCUMENTS,
    OUT,
    POSTINGS,
    POSTINGS_TYPE,
    REF_TYPE,
    TERMS,
    handle_postings,
    handle_writing,
    make_term_loop,
    take_content,
)
from keystone.indexing.lucene.write import CONTENTS_FIELD, open_reader
from keystone.indexing.types import Progress, silent

TERMS_AT_ONCE = 4096
ENTRIES_BYTES = 1 << 22
"""The bytes of pairs of document and frequency that are read at a time: a multiple of the 8 of a pair."""
FEW_TERMS = 10_000
"""Up to this many terms, Python finds them sooner than a process loads Numba."""
CHECKED_BYTES = 1 << 28
"""The size of files up to which each opening compares their checksums. For larger files, it compares lengths."""
_WITH_FREQUENCIES = 1 << 3
"""Lucene's flag for postings that tell how often a document holds the term."""

_VALUES = "org.apache.lucene.index.NumericDocValues"


@dataclass(frozen=True, slots=True)
class Postings:
    """The mapped postings of an index with n documents, t terms and p postings."""

    folder: Path
    terms: NDArray[np.uint8]
    """The terms in UTF-8, one after another, in ascending order."""
    term_ends: NDArray[np.int64]
    """Where the terms begin in `terms`, then the end: int64[t + 1]."""
    offsets: NDArray[np.int64]
    """Where the postings of the terms begin, then the end: int64[t + 1]."""
    rows: NDArray[np.int32]
    """The documents of each term, in ascending order: int32[p]."""
    frequencies: NDArray[np.unsignedinteger[Any]]
    """How often the document holds the term: uint8[p], or uint32[p] if a frequency needs it."""
    lengths: NDArray[np.uint8]
    """Lucene's byte for the length of each document: uint8[n]."""
    documents: int
    """The number of documents that hold a term."""
    tokens: int
    """The number of tokens of all documents."""

    def find_terms(self, terms: Sequence[str]) -> NDArray[np.int64]:
        """Find the places of terms: int64[terms]; -1 for a term that no document holds."""
        asked = [term.encode() for term in terms]
        if len(asked) <= FEW_TERMS and "numba" not in sys.modules:
            return np.array(list(map(self._find_term, asked)), np.int64)
        from keystone.indexing.lucene.loops import find_terms

        ends = np.cumsum([0, *map(len, asked)])
        places: NDArray[np.int64] = find_terms(
            self.terms, self.term_ends, np.frombuffer(b"".join(asked), np.uint8), ends
        )
        return places

    def _find_term(self, asked: bytes) -> int:
        """Find the place of a term by bisection; -1 if no document holds it."""

        def read(place: int) -> bytes:
            return self.terms[self.term_ends[place] : self.term_ends[place + 1]].tobytes()

        places = range(len(self.term_ends) - 1)
        place = bisect_left(places, asked, key=read)
        return place if place < len(places) and read(place) == asked else -1


@hold_java()
def write_postings(lucene: Path, folder: Path, progress: Progress = silent) -> None:
    """Copy the postings of a Lucene index into a new folder. `UserError` if Lucene cannot read the index."""
    reader = open_reader(lucene)
    terms = java_class("org.apache.lucene.index.MultiTerms").getTerms(reader, CONTENTS_FIELD)
    folder.mkdir()
    sizes: list[NDArray[Any]] = [np.zeros((1, 2), np.int64)]
    most = 1
    with (
        (folder / "terms").open("wb") as names,
        (folder / "entries").open("wb") as entries,
        progress("Copying the postings", None) as tick,
    ):
        for heads, content, copied in _copy_terms(terms):
            names.write(content)
            entries.write(copied)
            most = max(most, int(np.frombuffer(copied, "<i4")[1::2].max()))
            sizes.append(heads)
            tick(len(heads))
    ends = np.cumsum(np.concatenate(sizes), axis=0, dtype=np.int64)
    for name, own in zip(("offsets", "term_ends"), ends.T, strict=True):
        np.save(folder / f"{name}.npy", np.ascontiguousarray(own))
    for name, column, kind in (("rows", 0, np.int32), ("frequencies", 1, frequency_type(most))):
        _write_column(folder / "entries", column, folder / f"{name}.npy", np.dtype(kind))
    (folder / "entries").unlink()
    np.save(folder / "lengths.npy", _copy_lengths(reader))
    write_counts(folder, *((terms.getDocCount(), terms.getSumTotalTermFreq()) if terms else (0, 0)))


def _write_column(entries: Path, column: int, out: Path, kind: np.dtype[Any]) -> None:
    """Write one column of a file of pairs as an array. Nothing is mapped: mapped pages count in a process's memory."""
    with entries.open("rb") as pairs, out.open("wb") as file:
        header = {"descr": kind.str, "fortran_order": False, "shape": (entries.stat().st_size // 8,)}
        np.lib.format.write_array_header_1_0(file, header)
        while content := pairs.read(ENTRIES_BYTES):
            file.write(np.frombuffer(content, "<i4")[column::2].astype(kind).data)


def frequency_type(most: int) -> type[np.unsignedinteger[Any]]:
    """Choose the type of frequencies of which `most` is the greatest."""
    return np.uint8 if most < 256 else np.uint32


def write_counts(folder: Path, documents: int, tokens: int) -> None:
    """Write `counts.json`, the last file of a folder of postings, with the checksums of the others."""
    checksums = {file.name: _sum_up(file) for file in sorted(folder.iterdir())}
    found = {"documents": documents, "tokens": tokens, "checksums": checksums}
    (folder / "counts.json").write_bytes(orjson.dumps(found))


def save_postings(
    folder: Path,
    terms: Sequence[bytes],
    offsets: NDArray[np.int64],
    lengths: NDArray[np.uint8],
    documents: int,
    tokens: int,
) -> None:
    """Save the other parts of `Postings` beside `rows.npy` and `frequencies.npy` in a folder. Terms are in order."""
    (folder / "terms").write_bytes(b"".join(terms))
    np.save(folder / "term_ends.npy", np.cumsum([0, *map(len, terms)], dtype=np.int64))
    np.save(folder / "offsets.npy", offsets.astype(np.int64))
    np.save(folder / "lengths.npy", lengths)
    write_counts(folder, documents, tokens)


def open_postings(folder: Path) -> Postings:
    """Map a folder of postings. `UserError` if files are missing or unfit, or small ones have other checksums."""
    try:
        counts = orjson.loads((folder / "counts.json").read_bytes())
        sizes = [(folder / name).stat().st_size for name in counts["checksums"]]
        names = ("term_ends", "offsets", "rows", "frequencies", "lengths")
        with HEADER_LOCK:
            arrays = {name: np.asarray(np.load(folder / f"{name}.npy", mmap_mode="r")) for name in names}
        terms = np.asarray(np.memmap(folder / "terms", np.uint8, "r")) if arrays["term_ends"][-1] else np.empty(0, "u1")
        found = Postings(folder, terms, documents=counts["documents"], tokens=counts["tokens"], **arrays)
    except (OSError, EOFError, ValueError, KeyError, TypeError, IndexError) as error:
        raise UserError(f"{folder}: not whole postings: build the index again") from error
    lengths = len(found.terms), len(found.rows), len(found.rows), len(found.offsets)
    if lengths != (found.term_ends[-1], found.offsets[-1], len(found.frequencies), len(found.term_ends)):
        raise UserError(f"{folder}: files of postings that do not fit together: build the index again")
    if sum(sizes) <= CHECKED_BYTES:
        for name, expected in counts["checksums"].items():
            if _sum_up(folder / name) != expected:
                raise UserError(f"{folder / name}: damaged postings: build the index again")
    return found


def _sum_up(file: Path) -> int:
    found = 0
    with file.open("rb") as opened:
        while content := opened.read(1 << 16):
            found = zlib.crc32(content, found)
    return found


def _copy_terms(terms: Any) -> Iterator[tuple[NDArray[np.int32], bytes, bytes]]:
    """Copy terms from Lucene in parts: int32[terms, 2] of their numbers of documents and lengths; their bytes; and the
    pairs of document and frequency.
    """
    if terms is None:
        return
    each, outs = terms.iterator(), [java_class(OUT)() for _ in range(3)]
    following = handle_of(TERMS, "next", f"(){REF_TYPE}", each)
    current = call(following)
    loop = _make_loop(each, following, *outs)
    while current is not None:
        current = call(loop, java_class("java.lang.Integer")(TERMS_AT_ONCE), current)
        heads, names, entries = (take_content(out) for out in outs)
        yield np.frombuffer(heads, "<i4").reshape(-1, 2), names, entries


def _make_loop(terms: Any, following: Any, heads: Any, names: Any, entries: Any) -> Any:
    """The handle `(count, term) -> term`: copies at most `count` terms and returns the next one, null at the end.

    The loop writes the number of documents of each term and its length to `heads`, its bytes to `names`, and pairs of a
    document and a frequency to `entries`.
    """
    of, kind = handles(), class_of(POSTINGS)
    count = handle_of(TERMS, "docFreq", "()I", terms)
    next_row = handle_of(DOCUMENTS, "nextDoc", "()I").asType(type_of(f"({POSTINGS_TYPE})I"))
    write_entry = handle_writing(entries)
    entry = of.filterArguments(write_entry, 0, handle_of(POSTINGS, "freq", "()I"))
    entry = of.foldArguments(entry, of.filterArguments(write_entry, 0, next_row))
    entry = of.dropArguments(entry, 0, java_class("java.lang.Integer").TYPE)
    copy = of.countedLoop(of.dropArguments(count, 0, kind), None, entry)
    first = of.filterReturnValue(handle_postings(terms, _WITH_FREQUENCIES), copy)
    return make_term_loop(following, count, heads, names, first)


def _copy_lengths(reader: Any) -> NDArray[np.uint8]:
    """Copy Lucene's byte for the length of each document; 0 for a document without a text."""
    count, integer, out = int(reader.maxDoc()), java_class("java.lang.Integer"), java_class(OUT)()
    norms = java_class("org.apache.lucene.index.MultiDocValues").getNormValues(reader, CONTENTS_FIELD)
    if norms is None:
        return np.zeros(count, np.uint8)
    of, to_length = handles(), type_of("(I)I")
    there = handle_of(_VALUES, "advanceExact", "(I)Z", norms)
    length = of.dropArguments(handle_of(_VALUES, "longValue", "()J", norms), 0, integer.TYPE)
    none = of.dropArguments(of.constant(integer.TYPE, integer(0)), 0, integer.TYPE)
    length = of.guardWithTest(there, of.explicitCastArguments(length, to_length), none)
    body = of.dropArguments(of.filterReturnValue(length, handle_writing(out)), 1, integer.TYPE)  # also the count
    call(of.countedLoop(of.identity(integer.TYPE), None, body), integer(count))
    return np.frombuffer(take_content(out), "<i4").astype(np.uint8)
