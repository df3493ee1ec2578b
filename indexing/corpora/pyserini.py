"""The documents that a Lucene index of Pyserini or Anserini stores: `pyserini:msmarco-v2.1-doc`, `pyserini:FOLDER`.

A name is one of Pyserini's prebuilt indexes, which Pyserini downloads once into its cache. The index must store its raw
documents; indexes whose names end in `-slim` do not.
"""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from keystone.indexing.corpora.jsonl import make_document, make_segment_record
from keystone.indexing.corpora.locate import SegmentRecord
from keystone.indexing.errors import BadRecord, MissingPackage, Report, UserError, stop
from keystone.indexing.io.json_values import parse_json, try_json
from keystone.indexing.lucene.java import JAVA_LOCK, java_class, java_reason
from keystone.indexing.lucene.read import IdTerms, StoredTexts
from keystone.indexing.lucene.write import open_reader
from keystone.indexing.types import Document

PREFIX = "pyserini:"


def index_name(path: Path) -> str | None:
    """The name or folder of an index that a corpus argument gives; None if it names a file or folder of texts."""
    name = os.fspath(path)
    return name.removeprefix(PREFIX) if name.startswith(PREFIX) else None


def read(path: Path, _name: str = "", report: Report = stop) -> Iterator[Document]:
    """The stored documents in Lucene's order; each is a record with the keys of JSONL, or plain text."""
    reader = open_reader(index_folder(path))
    stored = reader.storedFields()
    for number in range(reader.maxDoc()):
        try:
            yield _read_document(stored.document(number), f"{path}: document {number}")
        except BadRecord as error:
            report(error)


def index_folder(path: Path) -> Path:
    """The folder of an index, which Pyserini downloads if needed, by a list online. `UserError` if there is none."""
    name = os.fspath(path).removeprefix(PREFIX)
    if name and Path(name).is_dir():
        return Path(name)
    java_class("java.lang.Object")  # starts the virtual machine with Keystone's options before Pyserini does
    try:
        from pyserini import util

        if name in util.TF_INDEX_INFO or name in util.IMPACT_INDEX_INFO:
            return Path(util.download_prebuilt_index(name, verbose=False))
    except ModuleNotFoundError as error:
        raise MissingPackage(f"{path}: Pyserini is needed by name: pip install 'keystone-rag[pyserini]'") from error
    except Exception as error:  # its list, download, checksum and unpacking raise many types
        raise UserError(f"{path}: Pyserini could not fetch it: {type(error).__name__}: {java_reason(error)}") from error
    raise UserError(f"{path}: neither a folder nor one of Pyserini's prebuilt inverted indexes")


def parse_stored_document(raw: str, name: str, where: str) -> Document:
    """The document in JSON or plain text. `BadRecord` if the JSON is not an object, or holds no text."""
    try:
        record = parse_json(raw)
    except ValueError:
        return Document(name, raw, place=where)
    if not isinstance(record, dict):
        raise BadRecord(f"{where}: expected a JSON object, found {type(record).__name__}", "wrong type")
    return make_document({**record, "docid": name}, where)


def _read_document(fields: Any, where: str) -> Document:
    raw = fields.get("raw")
    if raw is None:
        raise BadRecord(f"{where}: the index stores no raw documents: take its variant that does", "no raw document")
    return parse_stored_document(raw, fields.get("id"), where)


class OfficialSegments:
    """The official segments of MS MARCO V2.1 in an index such as `pyserini:msmarco-v2.1-doc-segmented`.

    They are looked up by the ids of their documents. The id of a segment begins with its document's id and `#`. So a
    document's segments are neighbours in the index's dictionary of ids. `UserError` if it holds no segments with ids.
    """

    def __init__(self, path: Path, report: Report = stop) -> None:
        self._path, self._report = path, report
        with JAVA_LOCK:
            reader = open_reader(index_folder(path))
            self._terms, self._texts = IdTerms(reader), StoredTexts(reader)
            if not self._terms.indexed or not reader.maxDoc():
                raise UserError(f"{path}: expected an index of segments with their ids")
            [first] = self._texts.of([0])
        try:
            make_segment_record(_parse_record(first, f"{path}: document 0"), "0", f"{path}: document 0")
        except BadRecord as error:
            raise UserError(f"{error}: expected segments, as in pyserini:msmarco-v2.1-doc-segmented") from error

    def get(self, doc_id: str) -> list[SegmentRecord]:
        """The segments of a document in no particular order; an empty list if it has none."""
        return self.of([doc_id])[0]

    def of(self, doc_ids: Sequence[str]) -> list[list[SegmentRecord]]:
        """The segments of each document. A segment without offsets and text is reported and skipped."""
        with JAVA_LOCK:
            found = [self._terms.beginning_with(f"{name}#".encode()) for name in doc_ids]
            texts = iter(self._texts.of([number for _, numbers in found for number in numbers.tolist()]))
        return [[cut for name in names.tolist() for cut in self._cut(name.decode(), next(texts))] for names, _ in found]

    def _cut(self, name: str, raw: str | None) -> list[SegmentRecord]:
        try:
            return [make_segment_record(_parse_record(raw, f"{self._path}: {name}"), name, f"{self._path}: {name}")]
        except BadRecord as error:
            self._report(error)
            return []


def _parse_record(raw: str | None, where: str) -> dict[str, object]:
    record = try_json(raw or "")
    if not isinstance(record, dict):
        raise BadRecord(f"{where}: expected a JSON object with start_char and end_char, found none", "no JSON object")
    return record
