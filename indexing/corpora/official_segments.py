"""The official segments of MS MARCO V2.1 in a Lucene index of them, found by the ids of their documents, not a scan.

Segments of a document have its id, `#` and more as theirs, so that they stand together in the dictionary of ids.
"""

from collections.abc import Sequence
from pathlib import Path

import orjson

from indexing.corpora import pyserini
from indexing.corpora.jsonl import cut_of
from indexing.corpora.locate import Cut
from indexing.errors import BadRecord, Report, UserError, stop
from indexing.lucene.java import ALONE
from indexing.lucene.read import IdTerms, StoredTexts
from indexing.lucene.write import open_reader


class OfficialSegments:
    """An index such as `pyserini:msmarco-v2.1-doc-segmented`, opened. `UserError` for one that cannot serve."""

    def __init__(self, path: Path, report: Report = stop) -> None:
        self._path, self._report = path, report
        with ALONE:
            reader = open_reader(pyserini.index_folder(path))
            self._terms, self._texts = IdTerms(reader), StoredTexts(reader)
            if not self._terms.indexed or not reader.maxDoc():
                raise UserError(f"{path}: expected an index of segments with their ids")
            [first] = self._texts.of([0])
        try:
            cut_of(_record(first, f"{path}: document 0"), "0", f"{path}: document 0")
        except BadRecord as error:
            raise UserError(f"{error}: expected segments, as in pyserini:msmarco-v2.1-doc-segmented") from error

    def get(self, doc_id: str) -> list[Cut]:
        """The segments of a document, in no order; none for one that has none."""
        return self.of([doc_id])[0]

    def of(self, doc_ids: Sequence[str]) -> list[list[Cut]]:
        """The segments of each document. One without offsets and text goes to the report and is left out."""
        with ALONE:
            found = [self._terms.beginning_with(f"{name}#".encode()) for name in doc_ids]
            texts = iter(self._texts.of([number for _, numbers in found for number in numbers.tolist()]))
        return [[cut for name in names.tolist() for cut in self._cut(name.decode(), next(texts))] for names, _ in found]

    def _cut(self, name: str, raw: str | None) -> list[Cut]:
        try:
            return [cut_of(_record(raw, f"{self._path}: {name}"), name, f"{self._path}: {name}")]
        except BadRecord as error:
            self._report(error)
            return []


def _record(raw: str | None, where: str) -> dict[str, object]:
    try:
        record = orjson.loads(raw or "")
    except orjson.JSONDecodeError:
        record = None
    if not isinstance(record, dict):
        raise BadRecord(f"{where}: expected a JSON object with start_char and end_char, found none", "no JSON object")
    return record
