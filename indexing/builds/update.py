"""The update of an index: documents of files are added or replace others, and documents are removed by their ids.

The result equals a new index of the documents that stay, in their order, and then of the added and replaced ones, in
the order of the files. Only texts that the older index lacks are embedded. The new index takes the place of the older
one at once. If an update stops at any moment, the older index is whole, and the same update goes on from there.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from keystone.indexing.builds.engines import open_engine
from keystone.indexing.builds.index import (
    PARTS,
    cut_documents,
    remove_shards,
    show_segments,
    sum_segments,
    write_description,
    write_postings,
    write_vectors,
)
from keystone.indexing.builds.settings import DEFAULTS, BuildSettings
from keystone.indexing.corpora.corpus import Read, make_corpus_key, read_corpus
from keystone.indexing.errors import BadRecord, Report, Unneeded, UserError, stop
from keystone.indexing.index import FORMAT, Index, open_index
from keystone.indexing.io.json_values import digest
from keystone.indexing.io.kept import copy_kept
from keystone.indexing.io.reading import hash_file, read_text_lines
from keystone.indexing.io.staged import partial_folder, recover, stage
from keystone.indexing.io.writing import lock_folder, write_whole
from keystone.indexing.lucene.analyzer import stems_of
from keystone.indexing.lucene.changed_postings import update_postings
from keystone.indexing.lucene.postings import open_postings
from keystone.indexing.store import DocumentStore, build_store, from_record, to_record, update_store
from keystone.indexing.types import Document, Embedding, Progress, Store, silent
from keystone.indexing.vectors.passages import Passages
from keystone.indexing.vectors.reuse import CHUNK_TEXTS, count_long, join_vectors
from keystone.indexing.vectors.shards import Embed, Shards, Texts, embed_store
from keystone.indexing.vectors.types import Effort

CHANGED = "changed.jsonl"
"""The documents that are added, or that replace others, as the store holds them."""


@dataclass(frozen=True, slots=True)
class Changes:
    """The numbers of documents that an update added, replaced and removed, and of left-out records by their kind."""

    added: int = 0
    replaced: int = 0
    removed: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.added or self.replaced or self.removed)


def update_index(
    out: Path,
    corpora: Sequence[Path] = (),
    delete: Path | None = None,
    settings: BuildSettings = DEFAULTS,
    progress: Progress = silent,
    report: Report = stop,
) -> tuple[Index, Changes]:
    """Update the index in the folder `out`; returns it and what has changed.

    Documents of the corpora whose ids are new are added, those with another content replace the older ones, and equal
    ones stay. The file `delete` names documents to remove, one id a line. `report` receives each bad record, and each
    id that the index lacks. Of the settings, only those for reading a corpus and for the work count: the index keeps
    its models, its kinds of vectors and its passages.

    `UserError` if `out` is no index, if its documents lie where Keystone only searches, if an id is both removed and in
    a corpus, and if no document is left. Another call for the same index at the same time is a `UserError`, too.
    """
    recover(out)
    older = open_index(out)
    if older.backend not in ("lucene", "opensearch"):
        raise UserError(
            f"{out}: holds its documents in {older.backend}, which Keystone only searches; expected an index in the "
            "folder or in OpenSearch"
        )
    settings = _settle(older, settings)
    with progress("Reading files", None):
        inputs = [make_corpus_key(corpus, settings.format, settings.extract) for corpus in corpora]
        removed = hash_file(delete) if delete else None
        official = make_corpus_key(settings.segments, "segments") if settings.segments else None
    key = digest(["update", FORMAT, older.key, settings.format, settings.windows, official, inputs, removed])
    held = ("index.json", "numbers.npy") if older.at else PARTS
    parts = (*held, "*.sqlite", *(["vectors"] if settings.vectors else []))
    changes = Changes()
    with (
        lock_folder(out),
        partial_folder(out, key, parts, replaces=True) as folder,
        open_engine(settings.engine, settings.threads) as engine,
    ):
        found = stage(
            folder,
            CHANGED,
            lambda path: _find_changes(_open_store(older), corpora, delete, settings, path, engine.read, report),
        )
        changes = Changes(found["added"], found["replaced"], len(found["removed"]), found["left_out"])
        if not changes:
            raise Unneeded
        if not (folder / "index.json").exists():
            fill = _fill_cluster if older.at else _fill
            fill(folder, older, found, settings, engine.embed, progress)
        remove_shards(folder, settings.vectors)
        for file in older.folder.glob("*.sqlite"):
            copy_kept(file, folder)
        if open_index(out).key != older.key:
            raise UserError(f"{out}: was replaced during the update, expected the index that it began with: try again")
    return open_index(out), changes


def _settle(older: Index, settings: BuildSettings) -> BuildSettings:
    """Take the models and the kinds of vectors from the older index, and the rest from the settings."""
    kinds = [older.faiss, *(one.faiss for one in older.vectors.values())]
    files = older if older.faiss else next((older.with_vectors(name) for name in older.vectors), older)
    size = older.faiss_shard
    if size is None and files.faiss_shards:
        from keystone.indexing.vectors.faiss_index import load_dense

        size = load_dense(files.dense_shards[0], mapped=True).ntotal
    return replace(
        settings,
        embedding=older.embedding,
        vectors={name: one.embedding for name, one in older.vectors.items()},
        faiss=next((kind for kind in kinds if kind), None),
        faiss_shard=size,
        passages=older.passages,
        opensearch=None,
    )


def _open_store(index: Index) -> Store:
    if index.at:
        from keystone.indexing.opensearch.store import open_store

        return open_store(index)
    return DocumentStore(index.store)


def _find_changes(
    store: Store,
    corpora: Sequence[Path],
    delete: Path | None,
    settings: BuildSettings,
    path: Path,
    read: Read,
    report: Report,
) -> dict[str, Any]:
    """Write the documents that are new or have another content to a file; returns numbers, and the ids to remove."""
    left_out: Counter[str] = Counter()

    def counted(error: BadRecord) -> None:
        left_out[error.kind] += 1
        report(error)

    removed = _read_removed(delete, store, counted) if delete else {}
    numbers = {"added": 0, "replaced": 0}
    with write_whole(path) as out:
        given = _read_given(corpora, removed, delete, settings, read, counted)
        while chunk := list(islice(given, CHUNK_TEXTS)):
            rows = store.rows([document.id for document in chunk])
            older = iter(store.get(rows[rows >= 0]))
            for document, row in zip(chunk, rows.tolist(), strict=True):
                if row < 0 or next(older) != document:
                    out.write(orjson.dumps(to_record(document)) + b"\n")
                    numbers["added" if row < 0 else "replaced"] += 1
    if len(removed) == len(store) and not numbers["added"]:
        raise UserError(f"{delete}: names all {len(store)} documents of the index, expected one to be left")
    return {**numbers, "removed": list(removed), "left_out": dict(left_out)}


def _read_given(
    corpora: Sequence[Path],
    removed: Mapping[str, int],
    delete: Path | None,
    settings: BuildSettings,
    read: Read,
    report: Report,
) -> Iterator[Document]:
    """Yield the documents of corpora, each id once. `UserError` for one that is to be removed."""
    seen: set[str] = set()
    for corpus in corpora:
        documents = read_corpus(corpus, settings.format, settings.segments, report, read=read, extract=settings.extract)
        for document in cut_documents(documents, settings, report):
            if document.id in removed:
                raise UserError(
                    f"{delete}:{removed[document.id]}: found the id {document.id!r} of a document in {corpus}, "
                    "expected it in one of them"
                )
            if document.id in seen:
                where = f"{document.place}: " if document.place else ""
                message = f"{where}document id {document.id!r} occurs more than once in the corpus"
                report(BadRecord(message, "repeated id"))
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


def _fill(
    folder: Path, older: Index, found: dict[str, Any], settings: BuildSettings, embed: Embed, progress: Progress
) -> None:
    """Make all parts of the new index in a folder from the older index and the changed documents."""
    before = DocumentStore(older.store)
    with (folder / CHANGED).open("rb") as lines:
        changed = [orjson.loads(line)["id"] for line in lines]
    rows = before.rows([*found["removed"], *changed])
    left = rows[rows >= 0]
    stage(folder, "store", lambda path: update_store(before, left, folder / CHANGED, path, progress))
    store, effort = DocumentStore(folder / "store"), Effort(settings.threads, progress)
    new = np.sort(store.rows(changed)).astype(np.int64)
    stayed = store.rows_in(before)
    stayed[new] = -1
    if older.postings.is_dir():
        stage(folder, "postings", lambda path: _update_postings(older, store, stayed, new, path, progress))
    else:
        write_postings(store, folder, progress)

    def embed_set(texts: Texts, one: Embedding, name: str, place: Path) -> Shards:
        place.mkdir(exist_ok=True)
        return join_vectors(
            older.with_vectors(name or None), before, texts, stayed,
            lambda new: embed_store(new, one, place, effort, embed),
        )  # fmt: skip

    made, _, _ = write_vectors(store, settings, folder, embed_set, progress)
    if older.segments:
        segments = _change_segments(older, _read(store, new), _read(before, left))
    else:
        segments = sum_segments(store)
    models = [one.made_by for one in (settings.embedding, *settings.vectors.values()) if one]
    made_of = [FORMAT, models, made, hash_file(store.folder / "documents.jsonl")]
    meta = {"format": FORMAT, "key": digest(["updated", *made_of]), "documents": len(store)}
    meta |= {"left_out": found["left_out"], "segments": show_segments(segments), **made}
    write_description(folder, {**meta, "corpus": _read_description(older).get("corpus"), "at": {}})


def _fill_cluster(
    folder: Path, older: Index, found: dict[str, Any], settings: BuildSettings, embed: Embed, progress: Progress
) -> None:
    """Update the documents in OpenSearch, and make the new index folder from the older index and the changed documents.

    The cluster keeps the vectors of documents that stay. Those of all others are made.
    """
    from keystone.indexing.opensearch.cluster import place_at
    from keystone.indexing.opensearch.index import Target
    from keystone.indexing.opensearch.load import Upload
    from keystone.indexing.opensearch.numbers import NUMBERS, write_numbers
    from keystone.indexing.opensearch.update import replace_documents

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

    def embed_set(texts: Texts, one: Embedding, _name: str, path: Path) -> Shards:
        return embed_store(texts, one, path, effort, embed)

    said = _read_description(older)
    description, shards, offsets = {**said, "cut": 0}, None, None
    if store:
        made, shards, offsets = write_vectors(store, settings, folder, embed_set, progress)
        description |= made
    ids = [digest(found["removed"]), hash_file(folder / CHANGED)]
    first = said.get("numbers", older.documents)
    documents = (older.documents or 0) + found["added"] - len(found["removed"])
    segments = _change_segments(older, store or (), gone or ())
    meta = {name: description[name] for name in description if name != "at"}
    meta |= {"format": FORMAT, "key": digest(["updated", FORMAT, older.key, *ids]), "documents": documents}
    meta |= {"left_out": found["left_out"], "segments": show_segments(segments), "numbers": first + len(changed)}
    meta["cut"] = max(0, older.cut - _count_cut(older, gone)) + description["cut"]
    added = Upload(target, meta, store, shards, folder / "sent", offsets=offsets, first=first) if store else None
    stage(
        folder, NUMBERS,
        lambda _: write_numbers(replace_documents(place, meta, older.key, removed, added, progress), folder),
    )  # fmt: skip
    write_description(folder, {**meta, "at": older.at})


def _keep_removed(older: Index, ids: Sequence[str], path: Path) -> list[int]:
    """Put the documents of an older index that have these ids into a store; returns their numbers in the cluster."""
    from keystone.indexing.opensearch.numbers import load_numbers

    before, (numbers, _) = _open_store(older), load_numbers(older)
    rows = np.unique(before.rows(ids))
    rows = rows[rows >= 0]
    if len(rows):
        build_store(_read(before, rows), path)
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


def _read_description(index: Index) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads((index.folder / "index.json").read_bytes())
    return found


def _change_segments(older: Index, new: Iterable[Document], gone: Iterable[Document]) -> Counter[str]:
    """Count the segments of an index by kind after documents have come and gone."""
    segments = Counter(older.segments)
    segments.update(sum_segments(new))
    segments.subtract(sum_segments(gone))
    return segments


def _update_postings(
    older: Index,
    store: DocumentStore,
    stayed: NDArray[np.int64],
    new: NDArray[np.int64],
    path: Path,
    progress: Progress,
) -> None:
    """Write the postings of a new store, whose rows `new` are not those of the older index."""
    stems = (stems_of(document.contents) for document in _read(store, new))
    update_postings(open_postings(older.postings), stayed, new, stems, path, progress)


def _read(store: Store, rows: NDArray[np.integer[Any]]) -> Iterator[Document]:
    for start in range(0, len(rows), CHUNK_TEXTS):
        yield from store.get(rows[start : start + CHUNK_TEXTS])
