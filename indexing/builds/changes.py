"""What changes in an index: its documents, as an update finds them, and parts that come and go later.

An update adds or replaces documents of corpora, and removes others by their ids. Parts are sets of vectors, impacts and
PLAID. A new index with them shares the files of the older one, and takes its place in one step. If a command stops at
any moment, the older index is whole, and the same command goes on from there.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from keystone.indexing.builds.index import (
    OF_PASSAGES,
    PARTS,
    check_recall,
    count_segments,
    cut_documents,
    describe_device,
    remove_shards,
    sum_segments,
    write_sets,
    write_vectors,
)
from keystone.indexing.builds.settings import BuildSettings, Engine, check_set_names, open_engine
from keystone.indexing.corpora.corpus import Read, read_corpus
from keystone.indexing.embedder import CHUNK_TEXTS, Effort, Foretell
from keystone.indexing.errors import BadRecord, Report, UserError
from keystone.indexing.index import FORMAT, Index, open_index
from keystone.indexing.io.json_values import digest
from keystone.indexing.io.kept import copy_kept
from keystone.indexing.io.reading import hash_file, read_text_lines
from keystone.indexing.io.staged import partial_folder, recover, write_description
from keystone.indexing.io.writing import link_whole, lock_folder, write_whole
from keystone.indexing.store import DocumentStore, repeated_error, to_record
from keystone.indexing.types import Document, Progress, Store, chunks, silent

CHANGED = "changed.jsonl"
"""The documents that are added, or that replace others, as the store holds them."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What updates have read of the same corpora: the ids of documents, and the fewest records that one left out."""

    ids: frozenset[str] = frozenset()
    left_out: int | None = None
    """None before the first update."""


@dataclass(frozen=True, slots=True)
class Changes:
    """The numbers of documents that an update added, replaced and removed, and of left-out records by their kind."""

    added: int = 0
    replaced: int = 0
    removed: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)
    reading: Reading | None = None
    """What was read, for the next update of the same corpora, if the update was given such a reading."""

    def __bool__(self) -> bool:
        return bool(self.added or self.replaced or self.removed)


@contextmanager
def replace_index(
    out: Path, older: Index, key: str, parts: Collection[str], settings: BuildSettings
) -> Iterator[tuple[Path, Engine]]:
    """Make an index that takes the place of the older one at the end; yields its folder and its engine.

    It keeps the older one's files of structures and replies. `UserError` if `out` has another index by then.
    """
    with (
        lock_folder(out),
        partial_folder(out, key, parts, replaces=True) as folder,
        open_engine(settings.engine, settings.threads) as engine,
    ):
        yield folder, engine
        remove_shards(folder, settings.vectors)
        for file in older.folder.glob("*.sqlite"):
            copy_kept(file, folder)
        if open_index(out).key != older.key:
            raise UserError(f"{out}: was replaced meanwhile, expected the index that it began with: try again")


def open_documents(index: Index) -> Store:
    """Open the documents of an index in its folder or in OpenSearch. `UserError` if they are not there."""
    if index.at:
        from keystone.indexing.opensearch.store import OpenSearchStore

        return OpenSearchStore(index)
    return DocumentStore(index.store)


def find_changes(
    store: Store,
    corpora: Sequence[Path],
    delete: Path | None,
    settings: BuildSettings,
    path: Path,
    read: Read,
    report: Report,
    since: Reading | None = None,
) -> dict[str, Any]:
    """Write the documents that are new or have another content to a file; returns numbers, and the ids to remove.

    `segments` tells by how much the number of segments of each kind grows. With `since`, the next reading is returned
    as well. `UserError` if no document would be left, and for one that is both given and to be removed.
    """
    left_out: Counter[str] = Counter()

    def counted(error: BadRecord) -> None:
        left_out[error.kind] += 1
        report(error)

    removed = _read_removed(delete, store, counted) if delete else {}
    of_ids = left_out.total()
    seen, numbers, segments = set[str](), {"added": 0, "replaced": 0}, Counter[str]()
    with write_whole(path) as out:
        given = _read_given(corpora, removed, delete, settings, read, counted, seen)
        while chunk := list(islice(given, CHUNK_TEXTS)):
            rows = store.rows([document.id for document in chunk])
            older = iter(store.get(rows[rows >= 0]))
            for document, row in zip(chunk, rows.tolist(), strict=True):
                before = None if row < 0 else next(older)
                if document == before:
                    continue
                out.write(orjson.dumps(to_record(document)) + b"\n")
                segments.update(count_segments(document))
                if before:
                    segments.subtract(count_segments(before))
                numbers["replaced" if before else "added"] += 1
    names, next_reading = list(removed), dict[str, Any]()
    if since is not None:
        lacking, total = sorted(since.ids - seen - removed.keys()), left_out.total() - of_ids
        fewest = total if since.left_out is None else min(total, since.left_out)
        if total == fewest:
            names += [name for name, row in zip(lacking, store.rows(lacking).tolist(), strict=True) if row >= 0]
        next_reading = {"ids": sorted(seen if total == fewest else seen.union(lacking)), "fewest": fewest}
    if len(names) == len(store) and not numbers["added"]:
        where = delete or ", ".join(map(str, corpora))
        raise UserError(f"{where}: names all {len(store)} documents of the index, expected one to be left")
    segments.subtract(sum_segments(read_documents(store, store.rows(names))))
    return {**numbers, "removed": names, "left_out": dict(left_out), "segments": dict(segments), **next_reading}


def _read_given(
    corpora: Sequence[Path],
    removed: Mapping[str, int],
    delete: Path | None,
    settings: BuildSettings,
    read: Read,
    report: Report,
    seen: set[str],
) -> Iterator[Document]:
    """Yield each document once, and add the ids to `seen`. `UserError` for one that is to be removed."""
    for corpus in corpora:
        documents = read_corpus(
            corpus, settings.format, settings.segments, report, read=read, extract=settings.extract,
            language_field=settings.language_field,
        )  # fmt: skip
        for document in cut_documents(documents, settings, report):
            if document.id in removed:
                raise UserError(
                    f"{delete}:{removed[document.id]}: found the id {document.id!r} of a document in {corpus}, "
                    "expected it in one of them"
                )
            if document.id in seen:
                report(repeated_error(document.id, document.place))
                continue
            seen.add(document.id)
            yield document


def _read_removed(path: Path, store: Store, report: Report) -> dict[str, int]:
    """Read the ids of documents to remove, each with its line; `report` receives those that the store lacks."""
    found: dict[str, int] = {}
    lines = ((number, name) for number, line in read_text_lines(path, report) if (name := line.strip()))
    while chunk := list(islice(lines, CHUNK_TEXTS)):
        for (number, name), row in zip(chunk, store.rows([name for _, name in chunk]).tolist(), strict=True):
            if row < 0:
                report(BadRecord(f"{path}:{number}: the index holds no document {name!r}", "unknown id"))
            else:
                found.setdefault(name, number)
    return found


def read_description(index: Index) -> dict[str, Any]:
    """Read the content of an index's `index.json`."""
    found: dict[str, Any] = orjson.loads((index.folder / "index.json").read_bytes())
    return found


def make_updated_key(older: Index, found: Mapping[str, Any], folder: Path) -> str:
    """Make the key of an updated index from that of the older one and the changes, which `folder` holds."""
    return digest(["updated", FORMAT, older.key, digest(found["removed"]), hash_file(folder / CHANGED)])


def change_segments(
    older: Index, found: Mapping[str, Any], new: Iterable[Document], gone: Iterable[Document]
) -> Counter[str]:
    """Count segments by kind after changes; `new` and `gone` are read only if an older version found the changes."""
    segments = Counter(older.segments)
    if "segments" in found:
        segments.update(found["segments"])
    else:
        segments.update(sum_segments(new))
        segments.subtract(sum_segments(gone))
    return segments


def read_documents(store: Store, rows: NDArray[np.integer[Any]]) -> Iterator[Document]:
    """Yield the documents of rows, int[n], in their order; memory holds some at a time."""
    for some in chunks(rows, CHUNK_TEXTS):
        yield from store.get(some)


def holds_beginnings(index: Index) -> bool:
    """Tell whether the impacts and PLAID of an index of passages are those of the beginnings of documents.

    They are if an older version built the index and runs embed what they find: it left out the file of passages. In
    OpenSearch, the description says so.
    """
    if index.at:
        return index.passages and index.faiss is None and OF_PASSAGES not in read_description(index)
    return index.passages and not index.offsets.exists()


SETS = ("vectors", "impacts", "plaid")
"""The folders of an index that hold further sets, and their keys in `index.json`."""


def change_parts(
    out: Path,
    settings: BuildSettings,
    drop: Sequence[str] = (),
    progress: Progress = silent,
    foretell: Foretell | None = None,
) -> Index:
    """Add the sets of vectors, impacts and PLAID of the settings to the index in the folder `out`; drop sets by name.

    Further sets hold the same texts as those that are there, documents or passages. `foretell` receives the time and
    space that each set will take, before it is made. `UserError` if `out` is not an index in a folder, has a new name
    already, or lacks a name to drop. `UserError` also for an impossible model or wanted recall, and beside sets of
    other texts.
    """
    out = recover(out)
    older = open_index(out)
    if older.at:
        raise UserError(f"{out}: holds its documents in {older.backend}, expected an index in the folder")
    held = [*older.vectors, *older.impacts, *older.plaid]
    check_set_names(settings)
    for name in settings.set_names:
        if name in held and name not in drop:
            raise UserError(f"{out}: holds a set {name!r}, expected a new name, or one that is dropped")
    for name in drop:
        if name not in held:
            expected = ", ".join(held) or "none: the index has no further sets"
            raise UserError(f"{out}: holds no set {name!r} to drop, expected one of {expected}")
    kept = [name for name in (*older.impacts, *older.plaid) if name not in drop]
    if settings.set_names and kept and holds_beginnings(older):
        expected = "expected one of passages, as the index: drop it and add it again"
        raise UserError(f"{out}: holds a set {kept[0]!r} of beginnings of documents, {expected}")
    settings = replace(
        settings, embedding=None, passages=older.passages, faiss=settings.faiss or "Flat",
        faiss_shard=older.faiss_shard, opensearch=None,
    )  # fmt: skip
    check_recall(settings)
    added, impacts, plaid = map(settings.name_makers, SETS)
    kind = [settings.faiss, settings.recall]
    mark = [OF_PASSAGES] if holds_beginnings(older) and (impacts or plaid) else []
    key = digest(["parts", older.key, added, impacts, kind, sorted(drop), *([plaid] if plaid else []), *mark])
    with replace_index(out, older, key, (*PARTS, "*.sqlite", *SETS), settings) as (folder, engine):
        if not (folder / "index.json").exists():
            _share_files(older, folder, drop)
            store, effort = DocumentStore(folder / "store"), Effort(settings.threads, progress, foretell)
            made, _, _ = write_vectors(store, settings, folder, effort, engine.embed)
            made |= write_sets(store, settings, folder, effort)
            said = _describe(older, made, drop) | describe_device(settings, older)
            write_description(folder, {**said, "key": key})
    return open_index(out)


def _share_files(older: Index, folder: Path, drop: Sequence[str]) -> None:
    """Give the files of an older index, except those of dropped sets, a second name in a folder, or copy them."""
    dropped = [older.folder / kind / name for kind in SETS for name in drop]
    for path in sorted(older.folder.rglob("*")):
        there = folder / path.relative_to(older.folder)
        is_shared = path.name != "index.json" and path.suffix != ".sqlite" and not there.exists()
        if not path.is_file() or not is_shared or any(path.is_relative_to(place) for place in dropped):
            continue
        there.parent.mkdir(parents=True, exist_ok=True)
        link_whole(path, there)


def _describe(older: Index, made: dict[str, Any], drop: Sequence[str]) -> dict[str, Any]:
    said = read_description(older)
    for kind in SETS:
        kept = {name: one for name, one in said.pop(kind, {}).items() if name not in drop}
        said |= {kind: kept | made[kind]} if made.get(kind) else {kind: kept} if kept else {}
    return said
