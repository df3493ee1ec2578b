"""The document store of an index, wherever its documents are."""

from indexing.errors import UserError
from indexing.index import Index, of_one_index
from indexing.store import DocumentStore
from indexing.types import Store


@of_one_index
def open_store(index: Index) -> Store:
    """The documents of an index. `UserError` where they cannot be had."""
    if index.backend == "lucene":
        return DocumentStore(index.store)
    if index.backend == "pyserini":
        from indexing.attached.lucene_index import PrebuiltStore

        return PrebuiltStore(index)
    if index.backend == "rest":
        from indexing.attached.rest_store import RestStore

        return RestStore(index)
    if index.backend == "opensearch":
        from indexing.opensearch.store import OpenSearchStore

        return OpenSearchStore(index)
    raise UserError(f"{index.folder}: found an index at {index.at}, which this version cannot open")
