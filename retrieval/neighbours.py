"""The nearest documents of a document, by the embeddings that an index holds."""

from collections.abc import Sequence

from indexing.index import Index
from indexing.types import Store
from indexing.vectors.of_documents import document_vectors
from indexing.vectors.types import Effort
from retrieval.backends import Dense


def find_neighbours(
    index: Index, store: Store, dense: Dense, rows: Sequence[int], number: int, threads: int = 1
) -> list[list[int]]:
    """Find the `number` nearest documents of each of `rows`, without the document itself, the nearest first.

    `dense` is the search that `retrieval.backends.open_dense` opened. Ties go to the smaller row.
    """
    vectors = document_vectors(index, store, rows, effort=Effort(threads))
    found = dense.search([str(row) for row in rows], vectors, number + 1, threads)
    return [[other for other in found.of(i).tolist() if other != row][:number] for i, row in enumerate(rows)]
