"""Corpora in columns: TSV and CSV, such as MS MARCO's `collection.tsv` and `msmarco-docs.tsv`."""

from collections.abc import Iterator
from pathlib import Path

from keystone.indexing.corpora.folders import strip_compression
from keystone.indexing.corpora.jsonl import ID_KEYS, TEXT_KEYS, make_document
from keystone.indexing.corpora.tables import warn_of_ids
from keystone.indexing.errors import BadRecord, Report, stop
from keystone.indexing.io.columns import Layout, read_columns
from keystone.indexing.io.fields import find_names
from keystone.indexing.io.reading import read_text_lines
from keystone.indexing.types import Document

LAYOUT = Layout(
    ID_KEYS,
    TEXT_KEYS,
    ("title", "url", "headings"),
    {2: ("docid", "text"), 4: ("docid", "url", "title", "body")},
    "an id and a text, or id, URL, title and text",
)


def read(file: Path, _name: str = "", report: Report = stop) -> Iterator[Document]:
    """The documents of a file, one for each row.

    A header has the names of the keys of JSONL. Without a header, a row is an id and a text, or has MS MARCO's four
    columns. If a header names no ids, they are made as for the rows of Parquet.
    """
    rows = read_columns(file, read_text_lines(file, report), LAYOUT, report)
    for row, (number, record) in enumerate(rows):
        if not find_names(record, ID_KEYS):
            if row == 0:
                warn_of_ids(file, record)
            record = {**record, "docid": f"{Path(strip_compression(file)).stem}_{row}"}
        try:
            yield make_document(record, f"{file}:{number}")
        except BadRecord as error:
            report(error)
