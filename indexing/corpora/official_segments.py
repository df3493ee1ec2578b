"""The official segments of MS MARCO V2.1 in a Lucene index of segments, looked up by the ids of their documents.

The id of a segment begins with its document's id and `#`. So a document's segments are neighbours in the index's
dictionary of ids, and no scan is needed.
"""

from collections.abc import Sequence
from pathlib import Path

from keystone.indexing.corpora import pyserini
from keystone.indexing.corpora.jsonl import make_segment_record
from keystone.indexing.corpora.locate import SegmentRecord
from keystone.indexing.errors import BadRecord, Report, UserError, stop
from keystone.indexing.io.json_values import parse_json
from keystone.indexing.lucene.java import JAVA_LOCK
from keystone.indexing.lucene.read import IdTerms, StoredTexts
from keystone.indexing.lucene.write import open_reader


class OfficialSegments:
    """An open index such as `pyserini:msmarco-v2.1-doc-segmented`. `UserError` if it holds no segments with ids."""

    def __init__(self, path: Path, report: Report = stop) -> None:
        self._path, self._report = path, report
        with JAVA_LOCK:
            reader = open_reader(pyserini.index_folder(path))
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
    try:
        record = parse_json(raw or "")
    except ValueError:
        record = None
    if not isinstance(record, dict):
        raise BadRecord(f"{where}: expected a JSON object with start_char and end_char, found none", "no JSON object")
    return record
