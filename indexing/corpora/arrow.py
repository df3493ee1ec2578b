"""Rows of Parquet and Arrow files, read by pyarrow, which only they need."""

from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq

from keystone.indexing.io.fields import find_names

BATCH_ROWS = 64

BUFFER_BYTES = 2**20
"""The bytes of each column of a Parquet file that are read at once."""

DAMAGE = (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError)
"""The errors of `pyarrow` for a damaged file. Sizes can be damaged too, so it may ask for more memory than there is."""

_ARROW_FILE = b"ARROW1"

Batches = tuple[list[str], Iterable[pa.RecordBatch]]
"""The names of all columns of a file, and its rows."""


def open_parquet(source: IO[bytes], wanted: Sequence[str]) -> Batches:
    """Open a Parquet file for these of its columns. The errors are `DAMAGE`."""
    table = pq.ParquetFile(source, buffer_size=BUFFER_BYTES, pre_buffer=False)
    names = table.schema_arrow.names
    return names, table.iter_batches(BATCH_ROWS, columns=find_names(names, wanted), use_threads=False)


def open_arrow(source: IO[bytes], _wanted: Sequence[str]) -> Batches:
    """Open a file in Arrow's streaming format, or in its file format with a mark. The errors are `DAMAGE`."""
    is_file = source.read(len(_ARROW_FILE)) == _ARROW_FILE
    source.seek(0)
    if not is_file:
        stream = pa.ipc.open_stream(source)
        return stream.schema.names, stream
    file = pa.ipc.open_file(source)
    return file.schema.names, map(file.get_batch, range(file.num_record_batches))


def list_rows(batches: Iterable[pa.RecordBatch], wanted: Sequence[str]) -> Iterator[dict[str, Any] | pa.ArrowException]:
    """The values of each row by column, or the error of a row with invalid values, which would crash the process."""
    for batch in batches:
        columns_read = set(find_names(batch.schema.names, wanted))
        rows = _as_texts(batch.select([at for at, name in enumerate(batch.schema.names) if name in columns_read]))
        columns = list(zip(rows.schema.names, rows.columns, strict=True))
        sound = _find_fault(rows) is None
        for at in range(rows.num_rows):
            fault = None if sound else _find_fault(rows.slice(at, 1))
            yield fault or {name: column[at].as_py() for name, column in columns}


def _as_texts(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with columns of bytes as texts, which some writers do not mark. Few kinds are copied."""
    types = {pa.binary(): pa.string(), pa.large_binary(): pa.large_string(), pa.binary_view(): pa.string_view()}
    plain = [_unwrap(column) for column in rows.columns]
    columns = [column.view(types.get(column.type, column.type)) for column in plain]
    return pa.RecordBatch.from_arrays(columns, names=rows.schema.names) if columns else rows


def _unwrap(column: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(column.type) and column.type.value_type in (pa.binary(), pa.large_binary()):
        return column.dictionary_decode()
    return column.cast(pa.binary()) if pa.types.is_fixed_size_binary(column.type) else column


def _find_fault(rows: pa.RecordBatch) -> pa.ArrowException | None:
    try:
        rows.validate(full=True)
    except pa.ArrowException as error:
        return error
    return None
