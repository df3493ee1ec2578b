"""Corpora: the table of formats, the files of a folder that a format reads, and guessing the format of a corpus.

docs/corpora.md lists the irregularities of a corpus and how Keystone treats each.
"""

import itertools
import re
import reprlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from keystone.indexing.corpora import ir_datasets, jsonl, pyserini, tables, text, trec, wikitext
from keystone.indexing.corpora.folders import (
    find_unfollowed_links,
    is_folder,
    list_files,
    name_documents,
    relative_name,
    strip_compression,
)
from keystone.indexing.corpora.locate import locate_segments
from keystone.indexing.errors import BadRecord, Report, UserError, stop
from keystone.indexing.io.json_values import parse_json
from keystone.indexing.io.reading import hash_file, read_byte_lines
from keystone.indexing.types import LONGEST_DOCUMENT_ID, Document, is_id

if TYPE_CHECKING:
    from keystone.indexing.corpora.official_segments import OfficialSegments


@dataclass(frozen=True, slots=True)
class Format:
    """A corpus format: the reader of one file, and the names of the files that it reads in a folder.

    The names are in lower case and without the ending of a compression.
    """

    read: Callable[[Path, str, Report], Iterator[Document]]
    names: re.Pattern[str]


_JSONL_NAME = re.compile(r".*\.(jsonl|ndjson|json)")
_TEXT_NAME = re.compile(rf".*({'|'.join(map(re.escape, text.SUFFIXES))})")

FORMATS = {
    "arrow": Format(tables.read_arrow, re.compile(r"(?!cache-).*\.arrow")),
    "folder": Format(text.read, _TEXT_NAME),
    "ir_datasets": Format(ir_datasets.read, re.compile("")),
    "jsonl": Format(jsonl.read_documents, _JSONL_NAME),
    "parquet": Format(tables.read_parquet, re.compile(r".*\.parquet")),
    "pyserini": Format(pyserini.read, re.compile("")),
    "segments": Format(jsonl.read_segments, _JSONL_NAME),
    "trec": Format(trec.read, re.compile(r"(?!read|\.).*(?<!\.dtd)")),
    "wikitext": Format(wikitext.read, re.compile(r".*\.(tokens|raw|txt)")),
}
"""The corpus formats by name. The folders of TREC's disks hold `readme`, `readchg` and DTDs beside the documents.
The package `datasets` keeps intermediate results in `cache-*.arrow`.
"""

EXAMINED_FILES = 100
"""The files of a folder from which its format is guessed."""

EXAMINED_LINES = 100
"""The lines of a file from which its format is guessed."""


Files = Sequence[tuple[Path, str]]
"""The files of a corpus in order, each with the name that its documents get if they have no id of their own."""

Read = Callable[[Files, str, Report], Iterator[Document]]
"""Reads files of a format as `read_files` does; its documents may have their segments already."""


def read_files(files: Files, format: str, report: Report = stop) -> Iterator[Document]:
    """The documents of files, in order. The function reports and skips a document whose id or text cannot be written.

    `UserError` if a file cannot be read.
    """
    for file, name in files:
        for document in FORMATS[format].read(file, name, report):
            if _is_sound(document, report):
                yield document


def read_corpus(
    path: Path,
    format: str | None = None,
    segments: Path | None = None,
    report: Report = stop,
    read: Read = read_files,
) -> Iterator[Document]:
    """The documents of a corpus, one at a time, in the order of its files.

    `path` is a file, a folder, `ir_datasets:ID` or `pyserini:NAME`. `format` is a name of `FORMATS`; if it is None, it
    is guessed. `segments` names the official segments of the documents, of MS MARCO V2.1: files, or an index as
    `pyserini:NAME`. If they are files, memory holds their ids and offsets. If they are in an index, Keystone looks them
    up there.

    The function reports and skips each record that is no document, with file and line. Ids satisfy `is_id` and can
    repeat; all text is Unicode. `UserError` if the corpus has no document, or a file cannot be read.
    """
    format = format or guess_format(path)
    files = [(file, name_documents(file, path)) for file in _list_files_and_report_links(path, format, report)]
    official = _open_segments(segments, report)
    empty = True
    for document in read(files, format, report):
        cuts = official.get(document.id)
        yield replace(document, segments=locate_segments(document, cuts, report)) if cuts else document
        empty = False
    if empty:
        raise UserError(f"{path}: holds no document")


def _open_segments(segments: Path | None, report: Report) -> "jsonl.FileSegments | OfficialSegments":
    """The official segments of documents, by the document's id."""
    if segments is None:
        return jsonl.FileSegments([])
    if pyserini.index_name(segments) is not None:
        from keystone.indexing.corpora.official_segments import OfficialSegments

        return OfficialSegments(segments, report)
    return jsonl.FileSegments(_list_files_and_report_links(segments, "segments", report), report)


def guess_format(path: Path) -> str:
    """The format of a corpus, by the first lines of its first files; `folder` if they have no other format.

    `UserError` if there is no such file or folder.
    """
    if ir_datasets.dataset_id(path) is not None:
        return "ir_datasets"
    if pyserini.index_name(path) is not None:
        return "pyserini"
    if not is_folder(path):
        return _recognise_format(path) or ("folder" if _TEXT_NAME.fullmatch(strip_compression(path)) else "jsonl")
    files = list_files(path, re.compile(r"(?!\.).*"))
    shards = [file for file in files if _JSONL_NAME.fullmatch(strip_compression(file))]
    for file in shards[:EXAMINED_FILES]:
        if (found := _recognise_format(file)) in ("jsonl", "segments"):
            return found
    if any(".jsonl" in file.name.lower() for file in shards):
        return "jsonl"
    guesses = map(_recognise_format, files[:EXAMINED_FILES])
    return next((guess for guess in guesses if guess in ("arrow", "parquet", "trec", "wikitext")), "folder")


def _recognise_format(file: Path) -> str | None:
    """The format that the name of a table or the first lines of another file show; None if they show none."""
    if (table := file.suffix.lower().removeprefix(".")) in ("arrow", "parquet"):
        return table
    numbered = read_byte_lines(file, lambda _error: None)
    filled = (line.removeprefix(b"\xef\xbb\xbf").strip() for _, line in numbered if line.strip())
    for position, line in enumerate(itertools.islice(filled, EXAMINED_LINES)):
        if position == 0 and re.match(rb"<doc[\s>]", line, re.IGNORECASE):
            return "trec"
        if position == 0 and wikitext.heading_of(line.decode("utf-8", "replace"))[0] == 1:
            return "wikitext"
        try:
            record = parse_json(line) if line.startswith(b"{") else None
        except ValueError:
            continue
        if isinstance(record, dict) and not record.keys().isdisjoint(jsonl.ID_KEYS):
            return "segments" if "segment" in record else "jsonl"
    return None


def list_corpus_files(path: Path, format: str) -> list[Path]:
    """The files of a corpus, sorted by path; `path` itself unless it is a folder. The queries of BEIR are left out.

    `UserError` if `format` is unknown, or if the folder holds no file of the format.
    """
    if format not in FORMATS:
        raise UserError(f"corpus format: found {format!r}, expected one of {', '.join(sorted(FORMATS))}")
    if format in ("ir_datasets", "pyserini") or not is_folder(path):
        return [path]
    files = list_files(path, FORMATS[format].names)
    if format == "jsonl":
        files = _choose_beir_corpus(path, files) or files
    if not files:
        names = ", ".join(text.SUFFIXES) if format == "folder" else format
        links = f"; links that are not followed: {len(found)}" if (found := list(find_unfollowed_links(path))) else ""
        raise UserError(f"{path}: holds no {names} file{links}")
    return files


def _choose_beir_corpus(folder: Path, files: list[Path]) -> list[Path]:
    """`corpus.jsonl` alone, if the folder is a data set of BEIR: it has `queries.jsonl` beside it. Else nothing."""
    named = {strip_compression(file): file for file in files if file.parent == folder}
    return [named["corpus.jsonl"]] if {"corpus.jsonl", "queries.jsonl"} <= named.keys() else []


def _list_files_and_report_links(path: Path, format: str, report: Report) -> list[Path]:
    """The files of a corpus. The function reports each link that it does not follow."""
    files = list_corpus_files(path, format)
    for link in find_unfollowed_links(path) if files != [path] else ():
        found = f"{link}: a link to a folder or out of {path} is not followed: put what it leads to in its place"
        report(BadRecord(found, "link not followed"))
    return files


def make_corpus_key(path: Path, format: str) -> list[list[str]]:
    """Pairs of a name and a value that change if the corpus changes.

    The value is the SHA-256 of a file, of a Lucene index's list of segments, or the version of `ir_datasets`.
    """
    if format == "ir_datasets":
        return [[str(path), version("ir_datasets")]]
    if format == "pyserini" or pyserini.index_name(path) is not None:
        folder = pyserini.index_folder(path)
        return [[file.name, hash_file(file)] for file in sorted(folder.glob("segments_*"))]
    return [[relative_name(file, path), hash_file(file)] for file in list_corpus_files(path, format)]


def _is_sound(document: Document, report: Report) -> bool:
    """Whether id and text can be written; if not, the function reports that."""
    if not is_id(document.id, LONGEST_DOCUMENT_ID):
        expected = f"expected an id without space, of at most {LONGEST_DOCUMENT_ID} characters"
        found = f"{document.place}: id: {expected}, found {reprlib.repr(document.id)}"
        report(BadRecord(found, "bad id"))
        return False
    try:
        for value in (document.text, document.title, document.url, document.headings):
            if not value.isascii():
                value.encode()
    except UnicodeEncodeError as error:
        found = f"{document.place}: expected Unicode text, found a lone surrogate at character {error.start}"
        report(BadRecord(found, "not Unicode"))
        return False
    return True
