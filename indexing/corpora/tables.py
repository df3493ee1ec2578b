"""Tables: Parquet files such as those of ClimbMix, Arrow files of a Hugging Face data set on disk, and TSV and CSV.

A row is one document. Its columns have the names of the keys of JSONL. If a file has no column of ids, Keystone makes
the id of a row as in TREC RAG 2026. The id is the file's name without its ending, `_` and the row's number from 0:
`shard_00017_4242`.
"""

import logging
import reprlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from keystone.indexing.corpora.folders import strip_compression
from keystone.indexing.corpora.jsonl import ID_KEYS, TEXT_KEYS, make_document
from keystone.indexing.errors import BadRecord, Report, printable, stop
from keystone.indexing.io.columns import Layout, read_columns
from keystone.indexing.io.fields import find_names, reads_as_id
from keystone.indexing.io.reading import COMPRESSIONS, DAMAGE, open_binary, read_text_lines
from keystone.indexing.types import Document, is_id

COLUMNS = (*ID_KEYS, *TEXT_KEYS, "title", "url", "headings")
"""The names of the columns that are read of a corpus, if a file has them."""

LAYOUT = Layout(
    ID_KEYS,
    TEXT_KEYS,
    ("title", "url", "headings"),
    {2: ("docid", "text"), 4: ("docid", "url", "title", "body")},
    "an id and a text, or id, URL, title and text",
)
"""The columns of TSV and CSV, such as those of MS MARCO's `collection.tsv` and `msmarco-docs.tsv`."""

_FRAME_INDEX = "__index_level_"
"""The beginning of the names of columns that pandas makes of a frame's index without a name."""

_log = logging.getLogger(__name__)


def read_table(
    form: str, file: Path, _name: str = "", report: Report = stop, language_field: str = ""
) -> Iterator[Document]:
    """The documents of a `parquet` file, or of an `arrow` file in the streaming format, in which `datasets` saves data.

    Each row is one. The function reports a file without a column of texts once, and the rest of a file that is damaged.
    It reports and skips each row that is not a document.
    """
    wanted = (*COLUMNS, *([language_field] if language_field else []))
    rows = read_rows(file, form, wanted, TEXT_KEYS, report)
    placed = ((row, names, values, f"{file}: row {row}") for row, names, values in rows)
    return _make_documents(file, file.stem, placed, report, language_field)


def read_delimited(file: Path, _name: str = "", report: Report = stop) -> Iterator[Document]:
    """The documents of a file, one for each row.

    A header has the names of the keys of JSONL. Without a header, a row is an id and a text, or has MS MARCO's four
    columns. If a header names no ids, they are made as for the rows of Parquet, of the file's name in lower case.
    """
    rows = enumerate(read_columns(file, read_text_lines(file, report), LAYOUT, report))
    placed = ((row, record, record, f"{file}:{number}") for row, (number, record) in rows)
    return _make_documents(file, Path(strip_compression(file)).stem, placed, report)


def _make_documents(
    file: Path,
    stem: str,
    rows: Iterable[tuple[int, Iterable[str], dict[str, Any], str]],
    report: Report,
    language_field: str = "",
) -> Iterator[Document]:
    """The documents of rows, each given by its number, the names of its columns, its values and its place.

    If a row has no id, its id begins with `stem`, URL-quoted if no id may contain it.
    """
    stem = stem if is_id(stem) else quote(stem)
    for row, names, values, where in rows:
        if not find_names(names, ID_KEYS):
            if row == 0:
                warn_of_ids(file, names)
            values = {**values, "docid": f"{stem}_{row}"}
        try:
            yield make_document(values, where, language_field)
        except BadRecord as error:
            report(error)


def warn_of_ids(file: Path, names: Iterable[str]) -> None:
    """Say that the ids of a file are made, if a column of another name seems to hold ids."""
    if found := next((name for name in names if reads_as_id(name) or name.startswith(_FRAME_INDEX)), None):
        known = ", ".join(ID_KEYS)
        _log.warning("%s: the ids are made from the file's name: expected a column %s, found %r", file, known, found)


def makes_ids(file: Path, form: str) -> bool:
    """Whether the ids of the rows of a table are made from its name, since no column holds them."""
    rows: Iterator[tuple[int, Iterable[str], Any]]
    if form == "tsv":
        lines = read_text_lines(file, lambda _error: None)
        rows = ((number, row, row) for number, row in read_columns(file, lines, LAYOUT, lambda _error: None))
    else:
        rows = read_rows(file, form, TEXT_KEYS, TEXT_KEYS, lambda _error: None)
    first = next(rows, None)
    return first is not None and not find_names(first[1], ID_KEYS)


def find_form(file: Path) -> str | None:
    """The form of a table, `parquet` or `arrow`, by its name; None for any other file."""
    return {".parquet": "parquet", ".arrow": "arrow"}.get(Path(strip_compression(file)).suffix)


def read_rows(
    file: Path, form: str, wanted: Sequence[str], needed: Sequence[str], report: Report = stop
) -> Iterator[tuple[int, list[str], dict[str, Any]]]:
    """The number of each row from 0, the names of all columns, and the row's values in the wanted columns.

    The function reports a file without one of the needed columns, each row that cannot be read, and the rest of a file
    that is damaged.
    """
    if file.suffix.lower() in COMPRESSIONS:
        report(BadRecord(f"{file}: expected a file that is not compressed as a whole", "unreadable file"))
        return
    from keystone.indexing.corpora import arrow

    row = 0
    with open_binary(file) as source:
        try:
            names, batches = (arrow.open_parquet if form == "parquet" else arrow.open_arrow)(source, wanted)
            if not find_names(names, needed):
                expected = f"expected one of the columns {', '.join(needed)}"
                report(BadRecord(f"{file}: {expected}, found {reprlib.repr(names)}", "no text"))
                return
            for values in arrow.list_rows(batches, wanted):
                if isinstance(values, Exception):
                    kind = "not UTF-8" if "UTF8" in str(values) else "unreadable row"
                    report(BadRecord(f"{file}: row {row}: cannot be read: {printable(str(values))}", kind))
                else:
                    yield row, names, values
                row += 1
        except (*arrow.DAMAGE, *DAMAGE) as error:
            report(BadRecord(f"{file}: cannot be read beyond row {row}: {printable(str(error))}", "unreadable file"))
