"""Tables: Parquet files such as those of ClimbMix, and the Arrow files of a Hugging Face data set on disk.

A row is one document. Its columns have the names of the keys of JSONL. If a file has no column of ids, Keystone makes
the id of a row as in TREC RAG 2026. The id is the file's name without its ending, `_` and the row's number from 0:
`shard_00017_4242`.
"""

import logging
import reprlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from keystone.indexing.corpora.jsonl import ID_KEYS, TEXT_KEYS, make_document
from keystone.indexing.errors import BadRecord, Report, printable, stop
from keystone.indexing.io.fields import find_names, reads_as_id
from keystone.indexing.io.reading import COMPRESSIONS, open_binary
from keystone.indexing.types import Document

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = (*ID_KEYS, *TEXT_KEYS, "title", "url", "headings")
"""The names of the columns that are read of a corpus, if a file has them."""

BATCH_ROWS = 64
"""The rows of a Parquet file that memory holds at once."""

BUFFER_BYTES = 2**20
"""The bytes of each column of a Parquet file that are read at once."""

DAMAGE = (OSError, ValueError, OverflowError, MemoryError)
"""The errors of a damaged file, beside those of `pyarrow`. If sizes are damaged, it may ask for too much memory."""

_log = logging.getLogger(__name__)

_ARROW_FILE = b"ARROW1"

Batches = tuple[list[str], Iterable["pa.RecordBatch"]]
"""The names of all columns of a file, and its rows."""


def read_parquet(file: Path, _name: str = "", report: Report = stop) -> Iterator[Document]:
    """The documents of a Parquet file, as `_read_documents` yields them."""
    return _read_documents(file, "parquet", report)


def read_arrow(file: Path, _name: str = "", report: Report = stop) -> Iterator[Document]:
    """The documents of a file in Arrow's streaming format, in which `datasets` saves data, as for Parquet."""
    return _read_documents(file, "arrow", report)


def _read_documents(file: Path, form: str, report: Report) -> Iterator[Document]:
    """The documents of a file, one for each row.

    The function reports a file without a column of texts once, and the rest of a file that is damaged. It reports and
    skips each row that is no document.
    """
    for row, names, values in read_rows(file, form, COLUMNS, TEXT_KEYS, report):
        if not find_names(names, ID_KEYS):
            if row == 0:
                warn_of_ids(file, names)
            values = {**values, "docid": f"{file.stem}_{row}"}
        try:
            yield make_document(values, f"{file}: row {row}")
        except BadRecord as error:
            report(error)


def warn_of_ids(file: Path, names: Iterable[str]) -> None:
    """Say that the ids of a file are made, if it has a column that seems to hold ids under a name that is not known."""
    if found := next(filter(reads_as_id, names), None):
        known = ", ".join(ID_KEYS)
        _log.warning("%s: the ids are made from the file's name: expected a column %s, found %r", file, known, found)


def find_form(file: Path) -> str | None:
    """The form of a table, `parquet` or `arrow`, by its name; None for any other file."""
    return {".parquet": "parquet", ".arrow": "arrow"}.get(file.suffix.lower())


def read_rows(
    file: Path, form: str, wanted: Sequence[str], needed: Sequence[str], report: Report = stop
) -> Iterator[tuple[int, list[str], dict[str, Any]]]:
    """The number of each row from 0, the names of all columns, and the row's values in the wanted columns.

    The function reports a file without one of the needed columns, each row that cannot be read, and the rest of a file
    that is damaged.
    """
    import pyarrow as pa

    if file.suffix.lower() in COMPRESSIONS:
        report(BadRecord(f"{file}: expected a file that is not compressed as a whole", "unreadable file"))
        return
    row = 0
    with open_binary(file) as source:
        try:
            names, batches = (_open_parquet if form == "parquet" else _open_arrow)(source, wanted)
            if not find_names(names, needed):
                expected = f"expected one of the columns {', '.join(needed)}"
                report(BadRecord(f"{file}: {expected}, found {reprlib.repr(names)}", "no text"))
                return
            for values in _list_rows(batches, wanted):
                if isinstance(values, pa.ArrowException):
                    kind = "not UTF-8" if "UTF8" in str(values) else "unreadable row"
                    report(BadRecord(f"{file}: row {row}: cannot be read: {printable(str(values))}", kind))
                else:
                    yield row, names, values
                row += 1
        except (pa.ArrowException, *DAMAGE) as error:
            report(BadRecord(f"{file}: cannot be read beyond row {row}: {printable(str(error))}", "unreadable file"))


def _open_parquet(source: IO[bytes], wanted: Sequence[str]) -> Batches:
    import pyarrow.parquet as pq

    table = pq.ParquetFile(source, buffer_size=BUFFER_BYTES, pre_buffer=False)
    names = table.schema_arrow.names
    return names, table.iter_batches(BATCH_ROWS, columns=find_names(names, wanted), use_threads=False)


def _open_arrow(source: IO[bytes], _wanted: Sequence[str]) -> Batches:
    """Open a file in Arrow's streaming format, or in its file format, which begins with a mark."""
    import pyarrow as pa

    is_file = source.read(len(_ARROW_FILE)) == _ARROW_FILE
    source.seek(0)
    if not is_file:
        stream = pa.ipc.open_stream(source)
        return stream.schema.names, stream
    file = pa.ipc.open_file(source)
    return file.schema.names, map(file.get_batch, range(file.num_record_batches))


def _list_rows(
    batches: Iterable["pa.RecordBatch"], wanted: Sequence[str]
) -> Iterator["dict[str, Any] | pa.ArrowException"]:
    """The values of each row by column, or the error of a row with invalid values, which would crash the process."""
    for batch in batches:
        columns_read = set(find_names(batch.schema.names, wanted))
        rows = _as_texts(batch.select([at for at, name in enumerate(batch.schema.names) if name in columns_read]))
        columns = list(zip(rows.schema.names, rows.columns, strict=True))
        sound = _find_fault(rows) is None
        for at in range(rows.num_rows):
            fault = None if sound else _find_fault(rows.slice(at, 1))
            yield fault or {name: column[at].as_py() for name, column in columns}


def _as_texts(rows: "pa.RecordBatch") -> "pa.RecordBatch":
    """The same rows with columns of bytes as texts: some writers of Parquet do not mark texts. Nothing is copied."""
    import pyarrow as pa

    types = {pa.binary(): pa.string(), pa.large_binary(): pa.large_string()}
    columns = [column.view(types.get(column.type, column.type)) for column in rows.columns]
    return pa.RecordBatch.from_arrays(columns, names=rows.schema.names) if columns else rows


def _find_fault(rows: "pa.RecordBatch") -> "pa.ArrowException | None":
    import pyarrow as pa

    try:
        rows.validate(full=True)
    except pa.ArrowException as error:
        return error
    return None
