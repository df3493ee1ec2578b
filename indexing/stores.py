"""One table of the document stores: to add an engine that holds documents, write its opener and add a line here.

Keystone imports an engine's module when it opens the first store of that engine.
"""

from pkgutil import resolve_name

from indexing.errors import UserError
from indexing.index import Index, of_one_index
from indexing.types import Store

STORES = {
    "lucene": "indexing.store:open_store",
    "opensearch": "indexing.opensearch.store:open_store",
    "pyserini": "indexing.attached.lucene_index:open_store",
    "rest": "indexing.attached.rest_store:open_store",
}
"""For each `Index.backend` the import path, `MODULE:FUNCTION`, of a function of (index) that returns its `Store`."""


@of_one_index
def open_store(index: Index) -> Store:
    """Open the documents of an index. `UserError` for an unknown backend, and if the backend cannot open them."""
    if index.backend not in STORES:
        raise UserError(f"{index.folder}: found an index at {index.at}, which this version cannot open")
    store: Store = resolve_name(STORES[index.backend])(index)
    return store
