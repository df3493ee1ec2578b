"""Ids and stored documents of an index that Anserini made, read in bulk with a few calls into Java for each batch.

Loops over Lucene's classes write ids and texts into buffers of bytes, which Python takes in one piece.

The document numbers of such an index do not follow the order of ids. A row is a document's rank among all ids in
ascending order. `ids.npy` (UTF-8) and `numbers.npy` are arrays by row, `rows.npy` is an array by Lucene's number. The
index's dictionary of ids is in order, so nothing is sorted.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from keystone.indexing.errors import UserError
from keystone.indexing.io.writing import map_array, reserve_array
from keystone.indexing.lucene.java import call, class_of, handle_of, handles, java_class, lookup, path_of, type_of
from keystone.indexing.lucene.write import ID_FIELD
from keystone.indexing.types import LONGEST_DOCUMENT_ID, Progress, chunks, describe_id, is_id, silent

RAW_FIELD = "raw"
"""The field in which Anserini stores the source text of a document."""
ABSENT_TEXT = "\0"
"""Stands for the text of a document that stores none. No JSON text equals it."""
SEARCH_BATCH_IDS = 32
"""The ids that one read takes for a document. Few documents have more segments."""
BATCH_TEXTS = 256

_REF = "org.apache.lucene.util.BytesRef"
TERMS, POSTINGS = "org.apache.lucene.index.TermsEnum", "org.apache.lucene.index.PostingsEnum"
DOCUMENTS = "org.apache.lucene.search.DocIdSetIterator"
OUT, _WRITER = "org.apache.lucene.store.ByteBuffersDataOutput", "org.apache.lucene.store.DataOutput"
REF_TYPE, POSTINGS_TYPE = (f"L{path_of(name)};" for name in (_REF, POSTINGS))

Ids = tuple[NDArray[np.bytes_], NDArray[np.int32]]
"""Ids in UTF-8, bytes[n], and Lucene's number of the first document with each id, int32[n]."""


class IdTerms:
    """The ids in an index's dictionary, in ascending order, each with its document's number."""

    def __init__(self, reader: Any) -> None:
        self._reader = reader  # kept open
        terms = java_class("org.apache.lucene.index.MultiTerms").getTerms(reader, ID_FIELD)
        self.indexed = terms is not None
        """Whether the index has a dictionary of ids."""
        if not self.indexed:
            return
        self._terms = terms.iterator()
        self._heads, self._names = java_class(OUT)(), java_class(OUT)()
        self._seek = handle_of(TERMS, "seekCeil", f"({REF_TYPE})L{path_of(TERMS)}$SeekStatus;", self._terms)
        self._term, self._next = (handle_of(TERMS, name, f"(){REF_TYPE}", self._terms) for name in ("term", "next"))
        self._loop: Any = None

    def all(self, count: int) -> Iterator[Ids]:
        """All ids, in arrays of at most `count`."""
        current = call(self._next)
        while current is not None:
            ids, current = self._read(current, count)
            yield ids

    def beginning_with(self, prefix: bytes) -> Ids:
        """The ids that begin with these bytes."""
        ref = java_class(_REF)(prefix)
        if str(call(self._seek, ref).toString()) == "END":
            return np.empty(0, "S1"), np.empty(0, np.int32)
        current, names, numbers = call(self._term), [], []
        while current is not None:
            (ids, docs), current = self._read(current, SEARCH_BATCH_IDS)
            own = np.char.startswith(ids, prefix)
            names.append(ids[own])
            numbers.append(docs[own])
            if not own.all():
                break
        return np.concatenate(names), np.concatenate(numbers)

    def _read(self, current: Any, count: int) -> tuple[Ids, Any]:
        """At most `count` ids from the current one on, and the id after them, None at the end."""
        if self._loop is None:
            first = handle_of(DOCUMENTS, "nextDoc", "()I").asType(type_of(f"({POSTINGS_TYPE})I"))
            number = handles().filterReturnValue(handle_postings(self._terms, 0), first)
            self._loop = make_term_loop(self._next, number, self._heads, self._names)
        current = call(self._loop, java_class("java.lang.Integer")(count), current)
        heads = np.frombuffer(take_content(self._heads), np.dtype("<i4")).reshape(-1, 2)
        content = np.frombuffer(take_content(self._names), np.uint8)
        lengths = heads[:, 1]
        width = max(int(lengths.max()), 1)
        names = np.zeros((len(heads), width), np.uint8)
        names[np.arange(width) < lengths[:, None]] = content
        return (names.reshape(-1).view(f"S{width}"), heads[:, 0].astype(np.int32)), current


class StoredTexts:
    """The texts that the documents of an index store in one field."""

    def __init__(self, reader: Any, field: str = RAW_FIELD) -> None:
        self._reader = reader  # kept open
        self._out = java_class(OUT)()
        self._loop = _make_text_loop(reader, field, self._out)

    def of(self, numbers: Sequence[int]) -> list[str | None]:
        """The texts of the documents with these numbers; None for a document that stores none."""
        return [text for batch in chunks(numbers, BATCH_TEXTS) for text in self._batch(batch)]

    def _batch(self, numbers: Sequence[int]) -> Iterator[str | None]:
        wanted = java_class("java.nio.ByteBuffer").wrap(np.asarray(numbers, dtype=">i4").tobytes())
        call(self._loop, java_class("java.lang.Integer")(len(numbers)), wanted)
        content, place = take_content(self._out), 0
        for _ in numbers:
            length, place = _read_variable_length(content, place)
            text = content[place : place + length].decode()
            place += length
            yield None if text == ABSENT_TEXT else text


def handle_postings(terms: Any, flags: int) -> Any:
    """The handle `() -> postings` of the current one of the terms. It returns one object for all terms."""
    integer = java_class("java.lang.Integer")
    found = handle_of(TERMS, "postings", f"({POSTINGS_TYPE}I){POSTINGS_TYPE}", terms)
    return handles().insertArguments(found, 0, call(found, None, integer(flags)), integer(flags))


def make_term_loop(following: Any, number: Any, heads: Any, names: Any, first: Any = None) -> Any:
    """The handle `(count, term) -> term`: writes at most `count` terms and returns the next term, null at the end.

    `following` is the handle `() -> term`. For each term, the loop runs the handle `first`, if there is one. It writes
    the result of the handle `number` and the term's length to `heads`, and the term's bytes to `names`.
    """
    of, ref, integer = handles(), class_of(_REF), java_class("java.lang.Integer").TYPE
    length = lookup().findGetter(ref, "length", integer)
    parts = lookup().findGetter(ref, "bytes", class_of("[B")), lookup().findGetter(ref, "offset", integer), length
    name = handle_of(_WRITER, "writeBytes", "([BII)V", names)
    step = of.permuteArguments(of.filterArguments(name, 0, *parts), type_of(f"({REF_TYPE})V"), 0, 0, 0)
    step = of.foldArguments(step, of.filterArguments(handle_writing(heads), 0, length))
    step = of.foldArguments(step, of.filterReturnValue(number, handle_writing(heads)))
    step = of.foldArguments(step, first) if first else step
    step = of.foldArguments(of.dropArguments(following, 0, ref), step)
    there = lookup().findStatic(class_of("java.util.Objects"), "nonNull", type_of("(Ljava/lang/Object;)Z"))
    body = of.guardWithTest(there.asType(type_of(f"({REF_TYPE})Z")), step, of.identity(ref))
    own = type_of(f"({REF_TYPE}II{REF_TYPE}){REF_TYPE}")
    body = of.permuteArguments(body, own, 0)  # also place, count, first term
    return of.countedLoop(
        of.dropArguments(of.identity(integer), 1, ref), of.dropArguments(of.identity(ref), 0, integer), body
    )


def handle_writing(out: Any) -> Any:
    """The handle `number -> nothing` that writes into a buffer."""
    return handle_of(_WRITER, "writeInt", "(I)V", out)


def _make_text_loop(reader: Any, field: str, out: Any) -> Any:
    """The handle `(count, numbers) -> nothing`: writes the field of `count` documents; a buffer holds their numbers."""
    of, document, string = handles(), "org.apache.lucene.document.Document", "Ljava/lang/String;"
    fields, only = reader.storedFields(), java_class("java.util.Collections").singleton(field)
    loaded = f"(ILjava/util/Set;)L{path_of(document)};"
    load = of.insertArguments(handle_of("org.apache.lucene.index.StoredFields", "document", loaded, fields), 1, only)
    get = of.insertArguments(handle_of(document, "get", f"({string}){string}"), 1, field)
    text = lookup().findStatic(
        class_of("java.util.Objects"), "toString", type_of(f"(Ljava/lang/Object;{string}){string}")
    )
    text = of.insertArguments(text, 1, ABSENT_TEXT).asType(type_of(f"({string}){string}"))
    written = handle_of(_WRITER, "writeString", f"({string})V", out)
    for step in (text, get, load, handle_of("java.nio.ByteBuffer", "getInt", "()I")):
        written = of.filterReturnValue(step, written)
    number = java_class("java.lang.Integer").TYPE
    body = of.dropArguments(written, 0, number)
    body = of.permuteArguments(body, type_of("(IILjava/nio/ByteBuffer;)V"), 0, 2)
    count = of.dropArguments(of.identity(number), 1, class_of("java.nio.ByteBuffer"))
    return of.countedLoop(count, None, body)


def take_content(out: Any) -> bytes:
    """Take the content of a buffer of Java, and empty the buffer."""
    content: bytes = out.toArrayCopy().tostring()
    out.reset()
    return content


def _read_variable_length(content: bytes, place: int) -> tuple[int, int]:
    """The number at a place, and the place after it. Each byte holds seven bits; the last byte is below 128."""
    value = shift = 0
    while True:
        byte = content[place]
        value |= (byte & 127) << shift
        place += 1
        if byte < 128:
            return value, place
        shift += 7


BATCH_IDS = 2**16


def build_rows(reader: Any, where: str, folder: Path, progress: Progress = silent) -> int:
    """Write the rows of an index to a new folder, and return their number. `where` names the index in errors.

    `UserError` if a document has no id, shares its id, has an id that no TREC file can hold, or is deleted. Memory
    holds one batch. The files are mapped and take about 60 bytes for each document.
    """
    count = int(reader.maxDoc())
    if reader.numDocs() != count:
        raise UserError(f"{where}: {count - reader.numDocs()} of its documents are deleted: make it with -optimize")
    terms = IdTerms(reader)
    if not count or not terms.indexed:
        raise UserError(f"{where}: expected an index of Anserini's with documents and their ids, found {count} of them")
    found = width = 0
    with progress("Reading ids", count) as tick:
        for ids, _ in terms.all(BATCH_IDS):
            _check_ids(ids, where)
            found, width = found + len(ids), max(width, ids.dtype.itemsize)
            tick(len(ids))
    if found != count:
        raise UserError(f"{where}: holds {count} documents and {found} ids, expected an id for each document")
    folder.mkdir(parents=True)
    names = reserve_array(folder / "ids.npy", f"S{width}", (count,))
    numbers = reserve_array(folder / "numbers.npy", np.int32, (count,))
    rows = reserve_array(folder / "rows.npy", np.int32, (count,))
    row = 0
    with progress("Writing rows", count) as tick:
        for ids, own in IdTerms(reader).all(BATCH_IDS):
            names[row : row + len(ids)] = ids
            numbers[row : row + len(ids)] = own
            rows[own] = np.arange(row, row + len(ids), dtype=np.int32)
            row += len(ids)
            tick(len(ids))
    for file in (names, numbers, rows):
        file.flush()
    return count


def _check_ids(ids: NDArray[np.bytes_], where: str) -> None:
    """Raise `UserError` for an id that no TREC file can hold. A fast check of all ids together comes first."""
    names = ids.tolist()
    joined = b"".join(names)
    if (
        joined.isascii()
        and joined.decode().isprintable()
        and b" " not in joined
        and ids.dtype.itemsize <= LONGEST_DOCUMENT_ID
    ):
        return
    for name in names:
        if not is_id(text := name.decode(errors="replace"), LONGEST_DOCUMENT_ID):
            raise UserError(f"{where}: expected {describe_id(text, LONGEST_DOCUMENT_ID)}, found {text!r}")


class LuceneRows:
    """Rows that `build_rows` wrote, mapped into memory. `UserError` if the files are missing or damaged."""

    def __init__(self, folder: Path) -> None:
        try:
            self.ids: NDArray[np.bytes_] = np.asarray(map_array(folder / "ids.npy"))
            self._numbers: NDArray[np.int32] = np.asarray(map_array(folder / "numbers.npy"))
            self._rows: NDArray[np.int32] = np.asarray(map_array(folder / "rows.npy"))
            if not len(self.ids) == len(self._numbers) == len(self._rows):
                raise ValueError("files of different lengths")
        except (OSError, EOFError, ValueError) as error:
            raise UserError(f"{folder}: not whole: make the index again: {error}") from error

    def numbers(self, rows: ArrayLike) -> NDArray[np.int32]:
        """Lucene's numbers of the documents in these rows, int32[rows]."""
        return self._numbers[np.asarray(rows, dtype=np.int64)]

    def rows(self, numbers: ArrayLike) -> NDArray[np.int32]:
        """The rows of the documents with these numbers of Lucene's, int32[numbers]."""
        return self._rows[np.asarray(numbers, dtype=np.int64)]
