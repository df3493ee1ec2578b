"""The update of an index folder whose documents lie in OpenSearch."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from keystone.indexing.builds.changes import (
    CHANGED,
    change_segments,
    holds_beginnings,
    make_updated_key,
    open_documents,
    read_description,
    read_documents,
)
from keystone.indexing.builds.index import describe_device, encode_impact_sets, show_segments, write_vectors
from keystone.indexing.builds.settings import BuildSettings
from keystone.indexing.embedder import Effort
from keystone.indexing.errors import UserError
from keystone.indexing.index import FORMAT, Index
from keystone.indexing.io.staged import stage, write_description
from keystone.indexing.opensearch.build import replace_documents, write_numbers
from keystone.indexing.opensearch.cluster import place_at
from keystone.indexing.opensearch.index import Target
from keystone.indexing.opensearch.load import Upload
from keystone.indexing.opensearch.search import MOST_ROWS, NUMBERS, load_numbers
from keystone.indexing.store import DocumentStore, build_store, from_record
from keystone.indexing.types import Document, Progress
from keystone.indexing.vectors.passages import Passages
from keystone.indexing.vectors.reuse import count_long
from keystone.indexing.vectors.shards import Embed, Texts


def fill_cluster(
    folder: Path, older: Index, found: dict[str, Any], settings: BuildSettings, embed: Embed | None, progress: Progress
) -> None:
    """Update the documents in OpenSearch, and make the new folder. The vectors of documents that stay are kept."""
    place = place_at(older.at)
    with (folder / CHANGED).open("rb") as lines:
        changed = [orjson.loads(line)["id"] for line in lines]
    removed = stage(folder, "gone", lambda path: _keep_removed(older, [*found["removed"], *changed], path))
    gone = DocumentStore(folder / "gone") if removed else None
    if changed:
        stage(folder, "store", lambda path: build_store(_read_lines(folder / CHANGED), path))
    store = DocumentStore(folder / "store") if changed else None
    target, effort = Target(place), Effort(settings.threads, progress)
    settings = replace(settings, opensearch=target)

    said = read_description(older)
    made, shards, offsets = write_vectors(store, settings, folder, effort, embed) if store else ({"cut": 0}, None, None)
    first: int = said.get("numbers", said["documents"])
    documents: int = said["documents"] + found["added"] - len(found["removed"])
    if first + len(changed) > MOST_ROWS:
        raise UserError(f"{place}: has given all {MOST_ROWS:,} numbers of documents: load the corpus under a new name")
    segments = show_segments(change_segments(older, found, store or (), gone or ())) if older.segments else {}
    meta = {name: value for name, value in {**said, **made}.items() if name != "at"}
    meta |= describe_device(settings, older) if store else {}
    meta |= {"format": FORMAT, "key": make_updated_key(older, found, folder), "documents": documents}
    meta |= {"left_out": found["left_out"], "segments": segments, "numbers": first + len(changed)}
    if older.languages:
        languages = Counter(older.languages)
        languages.update(document.language for document in store or ())
        languages.subtract(document.language for document in gone or ())
        meta["languages"] = dict((+languages).most_common())
    meta["cut"] = max(0, older.cut - _count_cut(older, gone)) + made["cut"]
    added = None
    if store:
        passages = older.passages and not holds_beginnings(older)  # as the impacts of documents that stay
        rows = encode_impact_sets(store, replace(settings, passages=passages), folder, effort)
        added = Upload(target, meta, store, shards, folder / "sent", offsets=offsets, first=first, impacts=rows)
    stage(
        folder, NUMBERS,
        lambda _: write_numbers(replace_documents(place, meta, older.key, removed, added, progress), folder),
    )  # fmt: skip
    write_description(folder, {**meta, "at": older.at})


def _keep_removed(older: Index, ids: Sequence[str], path: Path) -> list[int]:
    """Put the documents of an older index that have these ids into a store; returns their numbers in the cluster."""
    before, (numbers, _) = open_documents(older), load_numbers(older)
    rows = np.unique(before.rows(ids))
    rows = rows[rows >= 0]
    if len(rows):
        build_store(read_documents(before, rows), path)
    found: list[int] = (rows if numbers is None else numbers[rows]).tolist()
    return found


def _read_lines(path: Path) -> Iterator[Document]:
    with path.open("rb") as lines:
        yield from (from_record(orjson.loads(line)) for line in lines)


def _count_cut(index: Index, gone: DocumentStore | None) -> int:
    """Count the removed texts whose vectors stood for their beginning."""
    if gone is None or index.embedding is None or index.pooled:
        return 0
    texts: Texts = gone
    if index.passages:
        counts = [len(document.segments) for document in gone]
        texts = Passages(gone, np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))
    return count_long(index, texts, np.arange(len(texts)))
