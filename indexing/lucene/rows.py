"""Rows for a Lucene index that another program made: its document numbers do not follow the order of ids.

A row is a document's rank among all ids in ascending order. `ids.npy` (UTF-8) and `numbers.npy` are arrays by row,
`rows.npy` is an array by Lucene's number. The index's dictionary of ids is in order, so nothing is sorted.
"""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from keystone.indexing.errors import UserError
from keystone.indexing.io.writing import map_array, reserve_array
from keystone.indexing.lucene.read import IdTerms
from keystone.indexing.types import LONGEST_DOCUMENT_ID, Progress, describe_id, is_id, silent

BATCH_IDS = 2**16
"""The ids that one read takes."""


def build_rows(reader: Any, where: str, folder: Path, progress: Progress = silent) -> int:
    """Write the rows of an index to a new folder, and return their number. `where` names the index in errors.

    `UserError` if a document has no id, shares its id, has an id that no TREC file can hold, or is deleted. Memory
    holds one batch. The files are mapped and take about 60 bytes for each document.
    """
    count = int(reader.maxDoc())
    if reader.numDocs() != count:
        raise UserError(f"{where}: {count - reader.numDocs()} of its documents are deleted: make it with -optimize")
    terms = IdTerms(reader)
    if not count or not terms.indexed:
        raise UserError(f"{where}: expected an index of Anserini's with documents and their ids, found {count} of them")
    found = width = 0
    with progress("Reading ids", count) as tick:
        for ids, _ in terms.all(BATCH_IDS):
            _check_ids(ids, where)
            found, width = found + len(ids), max(width, ids.dtype.itemsize)
            tick(len(ids))
    if found != count:
        raise UserError(f"{where}: holds {count} documents and {found} ids, expected each document to have its own")
    folder.mkdir(parents=True)
    names = reserve_array(folder / "ids.npy", f"S{width}", (count,))
    numbers = reserve_array(folder / "numbers.npy", np.int32, (count,))
    rows = reserve_array(folder / "rows.npy", np.int32, (count,))
    row = 0
    with progress("Writing rows", count) as tick:
        for ids, own in IdTerms(reader).all(BATCH_IDS):
            names[row : row + len(ids)] = ids
            numbers[row : row + len(ids)] = own
            rows[own] = np.arange(row, row + len(ids), dtype=np.int32)
            row += len(ids)
            tick(len(ids))
    for file in (names, numbers, rows):
        file.flush()
    return count


def _check_ids(ids: NDArray[np.bytes_], where: str) -> None:
    """`UserError` for an id that no TREC file can hold. A check of all ids together comes first, since it is fast."""
    names = ids.tolist()
    joined = b"".join(names)
    if (
        joined.isascii()
        and joined.decode().isprintable()
        and b" " not in joined
        and ids.dtype.itemsize <= LONGEST_DOCUMENT_ID
    ):
        return
    for name in names:
        if not is_id(text := name.decode(errors="replace"), LONGEST_DOCUMENT_ID):
            raise UserError(f"{where}: expected {describe_id(text, LONGEST_DOCUMENT_ID)}, found {text!r}")


class LuceneRows:
    """Rows that `build_rows` wrote, mapped into memory. `UserError` if the files are missing or damaged."""

    def __init__(self, folder: Path) -> None:
        try:
            self.ids: NDArray[np.bytes_] = np.asarray(map_array(folder / "ids.npy"))
            self._numbers: NDArray[np.int32] = np.asarray(map_array(folder / "numbers.npy"))
            self._rows: NDArray[np.int32] = np.asarray(map_array(folder / "rows.npy"))
            if not len(self.ids) == len(self._numbers) == len(self._rows):
                raise ValueError("files of different lengths")
        except (OSError, EOFError, ValueError) as error:
            raise UserError(f"{folder}: not whole: make the index again: {error}") from error

    def numbers(self, rows: ArrayLike) -> NDArray[np.int32]:
        """Lucene's numbers of the documents in these rows, int32[rows]."""
        return self._numbers[np.asarray(rows, dtype=np.int64)]

    def rows(self, numbers: ArrayLike) -> NDArray[np.int32]:
        """The rows of the documents with these numbers of Lucene's, int32[numbers]."""
        return self._rows[np.asarray(numbers, dtype=np.int64)]
