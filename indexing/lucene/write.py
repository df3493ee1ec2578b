"""Building a Lucene index that Anserini and Pyserini can open: terms of its language, no positions, text or vectors.

Documents are added in the order of their rows, and only neighbouring segments are merged. So Lucene's number of a
document is its row in the document store. A search returns rows, and Lucene's order of ties is that of ids.
"""

import re
import weakref
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from keystone.indexing.errors import NotWritten, UserError, printable
from keystone.indexing.io.writing import unicode_name
from keystone.indexing.languages import DEFAULT_LANGUAGE, PIECES_PREFIX, check_language
from keystone.indexing.lucene.java import (
    LEAST_RELEASE,
    find_anserini_jar,
    find_java_home,
    hold_java,
    java_class,
    java_error,
    java_instance,
    java_reason,
)
from keystone.indexing.types import Document, Progress, silent

ID_FIELD = "id"
CONTENTS_FIELD = "contents"
"""The name that Anserini gives to the field of texts."""

BUFFER_MEGABYTES = 64.0
"""The postings that Lucene holds before it writes them as a segment. Fewer segments need less merging."""
COLLECTION_CHARACTERS = 4_000_000
"""The characters of text between two garbage collections. Java's serial collector would let its heap grow first."""

_TOO_NEW = re.compile(r"IndexFormatTooNew|CreatedVersionMajor is in the future|Could not load codec 'Lucene\d{3}'")
"""Lucene's words for an index that a newer Lucene made."""

_OF_MACHINE = re.compile(r"OutOfMemoryError|StackOverflowError|Too many open files|AccessDeniedException|Map failed")
"""Java's words for reasons that lie in the machine and not in an index."""


@hold_java()
def build_lucene(
    documents: Iterable[Document], folder: Path, progress: Progress = silent, language: str = DEFAULT_LANGUAGE
) -> None:
    """Index documents, in the order of rows, into a new folder. `NotWritten` if Lucene cannot write it."""
    failed = java_error()
    try:
        writer = _open_writer(folder, language)
    except failed as error:
        raise NotWritten(folder, java_reason(error)) from error
    try:
        _write(writer, documents, progress)
    except failed as error:
        fatal = writer.getTragicException()  # the error of a merging thread, the cause of all later errors
        raise NotWritten(folder, str(fatal.getMessage()) if fatal else java_reason(error)) from error
    finally:
        with suppress(failed):  # the documents are committed already
            writer.close()


def _write(writer: Any, documents: Iterable[Document], progress: Progress) -> None:
    collect_garbage, waiting = java_class("java.lang.System").gc, 0
    with progress("Building the BM25 index", None) as tick:
        fields = _Fields()
        for document in documents:
            contents = document.contents
            fields.set(document.id, contents)
            writer.addDocument(fields.document)
            waiting += len(contents)
            if waiting >= COLLECTION_CHARACTERS:
                collect_garbage()
                waiting = 0
            tick(1)
        writer.forceMerge(1)
        writer.commit()


def _open_writer(folder: Path, language: str) -> Any:
    config = java_class("org.apache.lucene.index.IndexWriterConfig")(make_analyzer(language))
    config.setMergePolicy(java_class("org.apache.lucene.index.LogDocMergePolicy")())
    config.setRAMBufferSizeMB(BUFFER_MEGABYTES)
    config.setUseCompoundFile(False)
    return java_class("org.apache.lucene.index.IndexWriter")(_open_directory(folder), config)


class _Fields:
    """One Lucene document whose fields take the values of document after document."""

    def __init__(self) -> None:
        store = java_class("org.apache.lucene.document.Field$Store")
        kind = java_class("org.apache.lucene.document.FieldType")()
        kind.setIndexOptions(java_class("org.apache.lucene.index.IndexOptions").DOCS_AND_FREQS)
        empty = java_class("org.apache.lucene.util.BytesRef")(b"")
        self._id = java_class("org.apache.lucene.document.StringField")(ID_FIELD, "", store.YES)
        self._order = java_class("org.apache.lucene.document.BinaryDocValuesField")(ID_FIELD, empty)
        text = java_instance("java.lang.CharSequence", java_class("java.lang.String")(""))
        self._contents = java_class("org.apache.lucene.document.Field")(CONTENTS_FIELD, text, kind)
        self.document = java_class("org.apache.lucene.document.Document")()
        for field in (self._id, self._order, self._contents):
            self.document.add(field)

    def set(self, doc_id: str, contents: str) -> None:
        self._id.setStringValue(doc_id)
        self._order.setBytesValue(doc_id.encode())
        self._contents.setStringValue(contents)


def make_analyzer(language: str = DEFAULT_LANGUAGE) -> Any:
    """Anserini's analyzer for a language. For English: standard tokens, lower case, no stop words, Porter stems.

    `UserError` if the file of word pieces, or Java's data for Thai, is missing.
    """
    if language == DEFAULT_LANGUAGE:
        return java_class("io.anserini.analysis.DefaultEnglishAnalyzer").newDefaultInstance()
    if language.startswith(PIECES_PREFIX):
        file = check_language(language).removeprefix(PIECES_PREFIX)
        return java_class("io.anserini.analysis.HuggingFaceTokenizerAnalyzer")(file)
    if language == "sw":  # Anserini searches Swahili by words between spaces
        return java_class("org.apache.lucene.analysis.core.WhitespaceAnalyzer")()
    if language == "th" and not can_segment_thai():
        expected = f"JAVA_HOME with a Java {LEAST_RELEASE} or newer that has the data of all languages"
        raise UserError(f"{find_java_home()}: this Java cannot segment Thai; expected {expected}")
    return java_class("io.anserini.analysis.AnalyzerMap").getLanguageSpecificAnalyzer(language)


def can_segment_thai() -> bool:
    """Whether Java has the data to cut Thai into words. The one that pip installs does not."""
    return bool(java_class("org.apache.lucene.analysis.th.ThaiTokenizer").DBBI_AVAILABLE)


_DISCARDED: deque[Any] = deque()
"""Readers that nobody uses any more. Garbage is collected at any moment, so the next opening closes them."""


def open_reader(folder: Path) -> Any:
    """A Lucene reader of an index; without a user, it is closed. `UserError` for a broken index, or a newer Lucene's.

    A user keeps the object itself: Java does not know it. Lucene 10 maps the files of each reader until it is closed.
    """
    readers = java_class("org.apache.lucene.index.DirectoryReader")
    while _DISCARDED:
        _DISCARDED.popleft().close()
    try:
        opened = readers.open(_open_directory(folder))
    except java_error() as error:
        raise explain_failure(folder, error) or error from error
    reader = java_instance("org.apache.lucene.index.IndexReader", opened)
    weakref.finalize(reader, _DISCARDED.append, opened).atexit = False
    return reader


def explain_failure(folder: Path, error: Exception, reader: Any = None) -> UserError | None:
    """Explain a failure by machine, version or damage; None if the index, open in `reader`, has its checksums."""
    said = "\n".join([f"{getattr(error, 'classname', '')}: {java_reason(error)}", *getattr(error, "stacktrace", ())])
    if _TOO_NEW.search(said):
        return _newer_error(folder)
    if found := _OF_MACHINE.search(said):
        return UserError(f"{folder}: Lucene could not read it on this machine: {found[0]}")
    if reader is not None and not _is_damaged(reader):
        return None
    return UserError(f"{folder}: not a whole Lucene index: build it again: {printable(java_reason(error))}")


def _is_damaged(reader: Any) -> bool:
    """Whether a file of an open index does not have the checksum in it. The function reads all files."""
    leaves = reader.leaves().iterator()
    try:
        while leaves.hasNext():
            leaves.next().reader().checkIntegrity()
    except java_error():
        return True
    return False


def _newer_error(folder: Path) -> UserError:
    version = java_class("org.apache.lucene.util.Version").LATEST.toString()
    return UserError(
        f"{folder}: a newer Lucene made this index than Lucene {version} of {find_anserini_jar().name}: "
        "set ANSERINI_CLASSPATH to the folder of a newer Anserini jar"
    )


def _open_directory(folder: Path) -> Any:
    if unicode_name(folder) != str(folder):
        raise UserError(f"{folder}: expected a path in UTF-8, since Lucene knows no other")
    path = java_class("java.nio.file.Paths").get(str(folder.absolute()))  # Java keeps the directory that it began in
    return java_class("org.apache.lucene.store.FSDirectory").open(path)
