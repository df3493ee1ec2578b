"""Corpora: the table of formats, which files of a folder they read, and how a format is guessed.

docs/corpora.md says for every irregularity of a corpus what becomes of it.
"""

import itertools
import os
import re
import reprlib
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

import orjson

from indexing.corpora import ir_datasets, jsonl, pyserini, text, trec, wikitext
from indexing.corpora.locate import located
from indexing.errors import BadRecord, Report, UserError, stop
from indexing.io.reading import COMPRESSIONS, hash_file, read_byte_lines
from indexing.types import LONGEST_DOCUMENT_ID, Document, is_id

if TYPE_CHECKING:
    from indexing.corpora.official_segments import OfficialSegments


@dataclass(frozen=True, slots=True)
class Format:
    """How a corpus is read: the reader of one file, and the names of a folder's files, compressed ones too."""

    read: Callable[[Path, str, Report], Iterator[Document]]
    names: re.Pattern[str]


_JSONL = re.compile(r".*\.(jsonl|ndjson|json)")
_TEXT = re.compile(rf".*({'|'.join(map(re.escape, text.SUFFIXES))})")

FORMATS = {
    "folder": Format(text.read, _TEXT),
    "ir_datasets": Format(ir_datasets.read, re.compile("")),
    "jsonl": Format(jsonl.read_documents, _JSONL),
    "pyserini": Format(pyserini.read, re.compile("")),
    "segments": Format(jsonl.read_segments, _JSONL),
    "trec": Format(trec.read, re.compile(r"(?!read|\.).*(?<!\.dtd)")),
    "wikitext": Format(wikitext.read, re.compile(r".*\.(tokens|raw|txt)")),
}
"""The corpus formats by name. The folders of TREC's disks hold `readme`, `readchg` and DTDs beside the documents."""

LOOKED_AT = 100
"""Files of a folder, and lines of a file, that are looked at to guess a format."""


Files = Sequence[tuple[Path, str]]
"""Files of a corpus in order, and the names by which documents are known that have no id of their own."""

Read = Callable[[Files, str, Report], Iterator[Document]]
"""Reads files of a format as `read_files` does; the documents may have been segmented already."""


def read_files(files: Files, format: str, report: Report = stop) -> Iterator[Document]:
    """The documents of files, in order, whose id and text can be written; what is none goes to `report`."""
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

    `path` is a file, a folder, `ir_datasets:ID` or `pyserini:NAME`; `format` is a name of `FORMATS`, guessed where
    None. `segments` names a file of MS MARCO V2.1 segments that cuts the documents of `path`, whose ids and offsets are
    held in memory, or an index of them as `pyserini:NAME`, where they are looked up.
    A record that is no document, with file and line, goes to `report`. `UserError` for a corpus without documents.
    Ids satisfy `is_id` and can repeat; all text is Unicode.
    """
    format = format or guess_format(path)
    files = [(file, _document_name(file, path)) for file in _told_files(path, format, report)]
    official = _official(segments, report)
    empty = True
    for document in read(files, format, report):
        cuts = official.get(document.id)
        yield replace(document, segments=located(document, cuts, report)) if cuts else document
        empty = False
    if empty:
        raise UserError(f"{path}: holds no document")


def _official(segments: Path | None, report: Report) -> "jsonl.FileSegments | OfficialSegments":
    """What gives the official segments of a document by its id."""
    if segments is None:
        return jsonl.FileSegments([])
    if pyserini.index_name(segments) is not None:
        from indexing.corpora.official_segments import OfficialSegments

        return OfficialSegments(segments, report)
    return jsonl.FileSegments(_told_files(segments, "segments", report), report)


def guess_format(path: Path) -> str:
    """The format of a corpus by what its first files begin with; `folder` for files of no other format."""
    if ir_datasets.dataset_id(path) is not None:
        return "ir_datasets"
    if pyserini.index_name(path) is not None:
        return "pyserini"
    if not _is_folder(path):
        return _format_of(path) or ("folder" if _TEXT.fullmatch(_bare(path)) else "jsonl")
    files = _files(path, re.compile(r"(?!\.).*"))
    shards = [file for file in files if _JSONL.fullmatch(_bare(file))]
    for file in shards[:LOOKED_AT]:
        if (found := _format_of(file)) in ("jsonl", "segments"):
            return found
    if any(".jsonl" in file.name.lower() for file in shards):
        return "jsonl"
    guesses = map(_format_of, files[:LOOKED_AT])
    return next((guess for guess in guesses if guess in ("trec", "wikitext")), "folder")


def _format_of(file: Path) -> str | None:
    """The format that the first lines of a file show, None where they show none."""
    numbered = read_byte_lines(file, lambda _error: None)
    filled = (line.removeprefix(b"\xef\xbb\xbf").strip() for _, line in numbered if line.strip())
    for position, line in enumerate(itertools.islice(filled, LOOKED_AT)):
        if position == 0 and re.match(rb"<doc[\s>]", line, re.IGNORECASE):
            return "trec"
        if position == 0 and wikitext.heading_of(line.decode("utf-8", "replace"))[0] == 1:
            return "wikitext"
        try:
            record = orjson.loads(line) if line.startswith(b"{") else None
        except orjson.JSONDecodeError:
            continue
        if isinstance(record, dict) and not record.keys().isdisjoint(jsonl.ID_KEYS):
            return "segments" if "segment" in record else "jsonl"
    return None


def corpus_files(path: Path, format: str) -> list[Path]:
    """All files that are read for a corpus, sorted by path; `path` itself unless it is a folder."""
    if format not in FORMATS:
        raise UserError(f"corpus format: found {format!r}, expected one of {', '.join(sorted(FORMATS))}")
    if format in ("ir_datasets", "pyserini") or not _is_folder(path):
        return [path]
    files = _files(path, FORMATS[format].names)
    if not files:
        names = ", ".join(text.SUFFIXES) if format == "folder" else format
        links = f"; links that are not followed: {len(found)}" if (found := list(_links(path))) else ""
        raise UserError(f"{path}: holds no {names} file{links}")
    return files


def _told_files(path: Path, format: str, report: Report) -> list[Path]:
    """The files of a corpus; links that are not followed go to the report."""
    files = corpus_files(path, format)
    for link in _links(path) if files != [path] else ():
        found = f"{link}: a link to a folder or out of {path} is not followed: put what it leads to in its place"
        report(BadRecord(found, "link not followed"))
    return files


def corpus_key(path: Path, format: str) -> list[list[str]]:
    """What changes with a corpus: SHA-256 of its files, a Lucene index's list of segments, a package's version."""
    if format == "ir_datasets":
        return [[str(path), version("ir_datasets")]]
    if format == "pyserini" or pyserini.index_name(path) is not None:
        folder = pyserini.index_folder(path)
        return [[file.name, hash_file(file)] for file in sorted(folder.glob("segments_*"))]
    return [[relative_name(file, path), hash_file(file)] for file in corpus_files(path, format)]


def _files(folder: Path, names: re.Pattern[str]) -> list[Path]:
    inside = folder.resolve()
    return sorted(
        file
        for file in folder.rglob("*")
        if names.fullmatch(_bare(file)) and file.is_file() and not _leads_out(file, inside)
    )


def _links(folder: Path) -> Iterator[Path]:
    """The links of a folder that are not followed: those out of it, and those to folders."""
    inside = folder.resolve()
    yield from (file for file in sorted(folder.rglob("*")) if _leads_out(file, inside) or _is_linked_folder(file))


def _leads_out(file: Path, folder: Path) -> bool:
    return file.is_symlink() and file.exists() and not file.resolve().is_relative_to(folder)


def _is_linked_folder(file: Path) -> bool:
    return file.is_symlink() and file.is_dir()


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.stat().st_mode)
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: no such file or folder") from error


def _bare(file: Path) -> str:
    """A file's name in lower case, without the ending of a compression."""
    name = file.name.lower()
    return name[: -len(file.suffix)] if name.endswith(COMPRESSIONS) else name


def relative_name(file: Path, folder: Path) -> str:
    """The path of a file below a folder, URL-quoted, so that any name is an id."""
    return quote(os.fsencode(file.relative_to(folder).as_posix()))


def _document_name(file: Path, corpus: Path) -> str:
    """The name by which documents are known that have no id of their own: the same for a file compressed or not."""
    name = relative_name(file, corpus if file != corpus else corpus.parent)
    return name[: -len(file.suffix)] if name.lower().endswith(COMPRESSIONS) else name


def _is_sound(document: Document, report: Report) -> bool:
    """Whether id and text can be written; reports it where not."""
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
