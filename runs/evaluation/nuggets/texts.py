"""The texts of documents and segments by the ids that judgments and citations name."""

from collections.abc import Iterable

from keystone.indexing.types import Store, document_id


def read_texts(store: Store, ids: Iterable[str]) -> dict[str, str]:
    """Read the text of each id, which names a document, or a segment of one. Ids that the store lacks are left out."""
    wanted = list(dict.fromkeys(ids))
    names = list(dict.fromkeys([*wanted, *map(document_id, wanted)]))
    rows = [row for row in store.rows(names).tolist() if row >= 0]
    found: dict[str, str] = {}
    for document in store.get(rows):
        found |= {one.id: document.segment_text(one) for one in document.segments}
        found[document.id] = document.contents
    return {name: found[name] for name in wanted if name in found}
