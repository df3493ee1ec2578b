"""The documents of all files of a corpus, each read by its own form. docs/corpora.md lists irregularities."""

import reprlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from keystone.indexing.corpora import jsonl, pyserini, text
from keystone.indexing.corpora.archives import Member, is_archive, list_names, unpack
from keystone.indexing.corpora.folders import find_unfollowed_links, strip_compression
from keystone.indexing.corpora.forms import (
    ALL,
    ARCHIVE,
    FORMATS,
    MAIN,
    CorpusFile,
    choose_members,
    find_form,
    guess_format,
    list_corpus_files,
    list_forms,
    make_corpus_key,
)
from keystone.indexing.corpora.locate import locate_segments
from keystone.indexing.errors import BadRecord, Report, UserError, stop
from keystone.indexing.io.reading import COMPRESSIONS
from keystone.indexing.types import LONGEST_DOCUMENT_ID, Document, describe_id, is_id

__all__ = ["ALL", "MAIN", "guess_format", "list_corpus_files", "make_corpus_key", "read_corpus", "read_files"]

Read = Callable[[Sequence[CorpusFile], str, Report], Iterator[Document]]
"""Reads files as `read_files` does; its documents may have their segments already."""


def read_files(files: Sequence[CorpusFile], extract: str = MAIN, report: Report = stop) -> Iterator[Document]:
    """The documents of files, in order; unwritable ones are reported and skipped. `extract` is `MAIN` or `ALL`.

    `UserError` if a file cannot be read.
    """
    for file in files:
        found = _read_archive(file, extract, report) if file.form == ARCHIVE else _read_file(file, extract, report)
        for document in found:
            if _is_sound(document, report):
                yield document


def _read_file(file: CorpusFile, extract: str, report: Report) -> Iterator[Document]:
    if file.form == "folder" and not file.language_field:
        return text.read(file.path, file.name, report, main=extract == MAIN)
    form, field = FORMATS[file.form], file.language_field
    if field and not form.has_fields:
        known = ", ".join(sorted(name for name in FORMATS if FORMATS[name].has_fields))
        raise UserError(f"{file.path}: --language field:{field}: found the format {file.form}, expected one of {known}")
    return form.read(file.path, file.name, report, *([field] if field else []))


def _read_archive(archive: CorpusFile, extract: str, report: Report) -> Iterator[Document]:
    """The documents of all files of an archive; their places and reports name the path in the archive."""
    named, main = choose_members(list_names(archive.path), archive.given)
    chosen = set(named)
    for member in unpack(archive.path, report):
        if member.path not in chosen:
            continue
        form = None if is_archive(member.file) else find_form(member.file, member.path, archive.given, main)
        if form is None:
            report(_unread_error(member.shown))
        if not form:
            continue
        bare = member.name
        for ending in COMPRESSIONS:
            bare = bare.removesuffix(ending)
        name = f"{archive.name}/{bare}" if archive.name else bare
        told = _name_member(member, report)
        for document in _read_file(CorpusFile(member.file, name, form, None, archive.language_field), extract, told):
            yield replace(document, place=document.place.replace(str(member.file), member.shown))


def _name_member(member: Member, report: Report) -> Report:
    """A report whose errors name a file's path in its archive in place of the temporary file."""
    return lambda error: report(BadRecord(str(error).replace(str(member.file), member.shown), error.kind))


def _unread_error(shown: object) -> BadRecord:
    return BadRecord(f"{shown}: not read: it has no form of a corpus that Keystone knows", "file not read")


def read_corpus(
    path: Path,
    format: str | None = None,
    segments: Path | None = None,
    report: Report = stop,
    read: Read = read_files,
    extract: str = MAIN,
    language_field: str = "",
) -> Iterator[Document]:
    """The documents of a corpus, one at a time, in the order of its files.

    `path` is a file, a folder, `ir_datasets:ID` or `pyserini:NAME`. `format` is a name of `FORMATS`; if it is None,
    each file is read by its own form. `extract` says how much of a page of HTML is read: `MAIN` or `ALL`. `segments`
    names the official segments of the documents, of MS MARCO V2.1: files, or an index as `pyserini:NAME`. If they are
    files, memory holds their ids and offsets. If they are in an index, Keystone looks them up there. `language_field`
    names the field with each document's language, if any.

    The function reports and skips each record that is not a document, with file and line. Ids satisfy `is_id` and can
    repeat; all text is Unicode. `UserError` if the corpus has no document, or a file cannot be read.
    """
    files, unread = list_forms(path, format)
    files = [file._replace(language_field=language_field) for file in files]
    _report_links(path, report)
    for file in unread:
        report(_unread_error(file))
    official = _open_segments(segments, report)
    empty = True
    for document in read(files, extract, report):
        cuts = official.get(document.id)
        yield replace(document, segments=locate_segments(document, cuts, report)) if cuts else document
        empty = False
    if empty:
        raise UserError(f"{path}: holds no document")


def _open_segments(segments: Path | None, report: Report) -> jsonl.FileSegments | pyserini.OfficialSegments:
    if segments is None:
        return jsonl.FileSegments(())
    if pyserini.index_name(segments) is not None:
        return pyserini.OfficialSegments(segments, report)
    _report_links(segments, report)
    return jsonl.FileSegments(_list_segment_files(segments, report))


def _list_segment_files(segments: Path, report: Report) -> Iterator[tuple[Path, Report]]:
    """The files of segments, those in archives included, each with the report of its bad records."""
    for file in list_forms(segments, "segments")[0]:
        if file.form != ARCHIVE:
            yield file.path, report
            continue
        for member in unpack(file.path, report):
            if FORMATS["segments"].names.fullmatch(strip_compression(member.path)):
                yield member.file, _name_member(member, report)


def _report_links(path: Path, report: Report) -> None:
    if path.is_dir():
        for link in find_unfollowed_links(path):
            found = f"{link}: a link to a folder or out of {path} is not followed: put what it leads to in its place"
            report(BadRecord(found, "link not followed"))


def _is_sound(document: Document, report: Report) -> bool:
    """Whether id and text can be written; if not, the function reports that."""
    if not is_id(document.id, LONGEST_DOCUMENT_ID):
        expected = describe_id(document.id, LONGEST_DOCUMENT_ID)
        found = f"{document.place}: id: expected {expected}, found {reprlib.repr(document.id)}"
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
