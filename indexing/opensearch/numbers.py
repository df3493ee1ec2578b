"""The numbers of documents in an updated index of OpenSearch, beside their rows.

A load numbers documents by their rows. An update leaves the numbers of those that stay, and gives new ones to the
others. So the numbers are no longer in the order of ids. `numbers.npy` in the index folder has them by row.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from keystone.indexing.errors import UserError
from keystone.indexing.index import Index
from keystone.indexing.io.writing import map_array, reserve_array
from keystone.indexing.opensearch.cluster import Node, Place, as_expected
from keystone.indexing.opensearch.index import DOCID, ROW
from keystone.indexing.opensearch.requests import search_once
from keystone.indexing.types import LONGEST_DOCUMENT_ID, is_id

NUMBERS = "numbers.npy"
PAGE_DOCUMENTS = 5_000
"""The documents of which one request brings number and id."""

Numbers = NDArray[np.int32]


def load_numbers(index: Index) -> tuple[Numbers | None, Numbers | None]:
    """Load the numbers of an index's documents by row, and the rows by number, -1 for none; None if they are equal.

    `UserError` if the file is damaged.
    """
    path = index.folder / NUMBERS
    if not path.exists():
        return None, None
    try:
        numbers = np.asarray(map_array(path))
        if numbers.dtype != np.int32 or numbers.shape != (index.documents,) or numbers.min() < 0:
            raise ValueError(f"found {numbers.dtype} of the shape {numbers.shape}, expected {index.documents} numbers")
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: damaged: make the folder again from the cluster: {error}") from error
    rows = np.full(int(numbers.max()) + 1, -1, np.int32)
    rows[numbers] = np.arange(len(numbers), dtype=np.int32)
    return numbers, rows


def write_numbers(numbers: Numbers, folder: Path) -> None:
    """Write the numbers of documents by row, int32[documents], into an index folder."""
    file = reserve_array(folder / NUMBERS, np.int32, numbers.shape)
    file[:] = numbers
    file.flush()


def read_numbers(nodes: Sequence[Node], place: Place, count: int) -> Numbers:
    """Read the numbers of all documents of an index in the cluster, by row: int32[count].

    Memory: about 60 bytes and the id for each document. `UserError` unless it holds `count` documents, each with an id.
    """
    numbers, names = list[int](), list[bytes]()
    after: list[int] = []
    while True:
        asked = {"size": PAGE_DOCUMENTS, "sort": [{ROW: "asc"}], "_source": False, "docvalue_fields": [DOCID]}
        asked |= {"search_after": after} if after else {}
        answer = search_once(nodes, place, asked)
        with as_expected(place):
            hits = answer["hits"]["hits"]
            for hit in hits:
                (number,), (name,) = hit["sort"], hit["fields"][DOCID]
                if type(number) is not int or not is_id(name, LONGEST_DOCUMENT_ID) or [number] <= after:
                    raise ValueError("found a document without a number and an id of its own")
                after = [number]
                numbers.append(number)
                names.append(name.encode())
        if len(hits) < PAGE_DOCUMENTS:
            break
    if len(set(names)) != count or len(names) != count:
        raise UserError(f"{place}: holds {len(names)} documents, expected {count}: load the index again")
    return np.array(numbers, np.int32)[np.argsort(np.array(names), kind="stable")]
