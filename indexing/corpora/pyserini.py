"""The documents that a Lucene index of Pyserini or Anserini stores: `pyserini:msmarco-v2.1-doc`, `pyserini:FOLDER`.

A name is one of Pyserini's prebuilt indexes, which Pyserini downloads once into its cache. The index must store
its raw documents, as those do whose names do not end in `-slim`.
"""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from indexing.corpora.jsonl import TEXT_KEYS, document_of
from indexing.errors import BadRecord, Report, UserError, stop
from indexing.types import Document, Segment, Span

PREFIX = "pyserini:"


def index_name(path: Path) -> str | None:
    """The name or folder that a corpus argument gives, None where it names a file or folder of texts."""
    name = os.fspath(path)
    return name.removeprefix(PREFIX) if name.startswith(PREFIX) else None


def read(path: Path, _name: str = "", report: Report = stop) -> Iterator[Document]:
    """The stored documents in Lucene's order: records with the keys of JSONL, or plain text."""
    from indexing.lucene.write import open_reader

    reader = open_reader(index_folder(path))
    stored = reader.storedFields()
    for number in range(reader.maxDoc()):
        try:
            yield _document(stored.document(number), f"{path}: document {number}")
        except BadRecord as error:
            report(error)


def index_folder(path: Path) -> Path:
    """The folder of an index, downloaded by Pyserini if need be. `UserError` if there is no such index."""
    name = os.fspath(path).removeprefix(PREFIX)
    if name and Path(name).is_dir():
        return Path(name)
    from indexing.lucene.java import java_class

    java_class("java.lang.Object")  # starts the virtual machine in our way before Pyserini does in its own
    from pyserini import util

    if name not in util.TF_INDEX_INFO:
        raise UserError(f"{path}: neither a folder nor one of Pyserini's prebuilt inverted indexes")
    try:
        return Path(util.download_prebuilt_index(name, verbose=False))
    except Exception as error:  # what its download, checksum and unpacking raise
        raise UserError(f"{path}: Pyserini could not fetch it: {type(error).__name__}: {error}") from error


def document_from(raw: str, name: str, where: str) -> Document:
    """A stored document, JSON or plain text. A segment of MS MARCO V2.1 is a document that is its own segment.

    `BadRecord` for JSON that is no object and for one without a text.
    """
    try:
        record = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return Document(name, raw, place=where)
    if not isinstance(record, dict):
        raise BadRecord(f"{where}: expected a JSON object, found {type(record).__name__}", "wrong type")
    return document_of_object(record, name, where)


def document_of_object(record: dict[str, Any], name: str, where: str) -> Document:
    """The document of this id that an object holds, as `document_from`."""
    if "segment" not in record or not record.keys().isdisjoint(TEXT_KEYS):
        return document_of({**record, "docid": name}, where)
    found = document_of({**record, "docid": name, "text": record["segment"]}, where)
    return replace(found, segments=(Segment(name, Span(name, 0, len(found.text))),))


def _document(fields: Any, where: str) -> Document:
    raw = fields.get("raw")
    if raw is None:
        raise BadRecord(f"{where}: the index stores no raw documents: take its variant that does", "no raw document")
    return document_from(raw, fields.get("id"), where)
