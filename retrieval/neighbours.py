"""The nearest documents of a document, by the embeddings that an index holds."""

from collections.abc import Sequence

from keystone.indexing.vectors.types import Vectors
from keystone.retrieval.backends import Dense


def find_neighbours(
    dense: Dense, rows: Sequence[int], vectors: Vectors, number: int, threads: int = 1
) -> list[list[int]]:
    """Find the `number` nearest documents of each of `rows`, without the document itself, the nearest first.

    `dense` is the search that `keystone.retrieval.backends.open_dense` opened. `vectors` holds the embedding of each
    row, float32[rows, d]. Ties go to the smaller row.
    """
    found = dense.search([str(row) for row in rows], vectors, number + 1, threads)
    return [[other for other in found.of(i).tolist() if other != row][:number] for i, row in enumerate(rows)]
