"""The update of an index: documents of files are added or replace others, and documents are removed by their ids.

The result equals a new index of the documents that stay, in their order, and then of the added and replaced ones, in
the order of the files. Only texts that the older index lacks are embedded. The new index takes the place of the older
one at once. If an update stops at any moment, the older index is whole, and the same update goes on from there.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from keystone.indexing.index import FORMAT, SMALLEST, Index, open_index
from keystone.indexing.io.json_values import digest
from keystone.indexing.io.kept import copy_kept
from keystone.indexing.io.reading import hash_file, read_text_lines
from keystone.indexing.io.staged import partial_folder, recover, stage
from keystone.indexing.io.writing import lock_folder, write_whole
from keystone.indexing.store import BATCH_IDS, DocumentStore, to_record, write_store
from keystone.indexing.types import Document, Embedding, Progress, silent
from keystone.indexing.vectors.reuse import join_vectors
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

    `UserError` if `out` is no index, if another engine holds its documents, if an id is both removed and in a corpus,
    and if no document is left. Another call for the same index at the same time is a `UserError`, too.
    """
    recover(out)
    older = open_index(out)
    if older.at:
        raise UserError(
            f"{out}: holds its documents in {older.backend}, expected an index in the folder, which alone can be "
            "updated: index the whole corpus again, under a new name"
        )
    settings = _settle(older, settings)
    with progress("Reading files", None):
        inputs = [make_corpus_key(corpus, settings.format, settings.extract) for corpus in corpora]
        removed = hash_file(delete) if delete else None
        official = make_corpus_key(settings.segments, "segments") if settings.segments else None
    key = digest(["update", FORMAT, older.key, settings.format, settings.windows, official, inputs, removed])
    parts = (*PARTS, "*.sqlite", *(["vectors"] if settings.vectors else []))
    changes = Changes()
    with (
        lock_folder(out),
        partial_folder(out, key, parts, replaces=True) as folder,
        open_engine(settings.engine, settings.threads) as engine,
    ):
        store = DocumentStore(older.store)
        found = stage(
            folder, CHANGED, lambda path: _find_changes(store, corpora, delete, settings, path, engine.read, report)
        )
        changes = Changes(found["added"], found["replaced"], len(found["removed"]), found["left_out"])
        if not changes:
            raise Unneeded
        if not (folder / "index.json").exists():
            _fill(folder, older, found, settings, engine.embed, progress)
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
    recalls = [older.recall, *(one.recall for one in older.vectors.values())]
    wanted = next((recall for recall in recalls if recall and recall.wanted is not None), None)
    size = older.faiss_shard
    if size is None and files.faiss_shards:
        from keystone.indexing.vectors.faiss_index import load_dense

        size = load_dense(files.dense_shards[0], mapped=True).ntotal
    return replace(
        settings,
        embedding=older.embedding,
        vectors={name: one.embedding for name, one in older.vectors.items()},
        faiss=SMALLEST if wanted and wanted.chosen else next((kind for kind in kinds if kind), None),
        recall=wanted.wanted if wanted else None,
        faiss_shard=size,
        passages=older.passages,
        opensearch=None,
    )


def _find_changes(
    store: DocumentStore,
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
    seen: set[str] = set()
    numbers = {"added": 0, "replaced": 0}
    with write_whole(path) as out:
        for corpus in corpora:
            documents = read_corpus(
                corpus, settings.format, settings.segments, counted, read=read, extract=settings.extract
            )
            for document in cut_documents(documents, settings, counted):
                if document.id in removed:
                    raise UserError(
                        f"{delete}:{removed[document.id]}: found the id {document.id!r} of a document in {corpus}, "
                        "expected it in one of them"
                    )
                if document.id in seen:
                    where = f"{document.place}: " if document.place else ""
                    message = f"{where}document id {document.id!r} occurs more than once in the corpus"
                    counted(BadRecord(message, "repeated id"))
                    continue
                seen.add(document.id)
                line = orjson.dumps(to_record(document)) + b"\n"
                (row,) = store.rows([document.id]).tolist()
                if row < 0 or next(store.records([row])) != line:
                    out.write(line)
                    numbers["added" if row < 0 else "replaced"] += 1
    if len(removed) == len(store) and not numbers["added"]:
        raise UserError(f"{delete}: names all {len(store)} documents of the index, expected one to be left")
    return {**numbers, "removed": list(removed), "left_out": dict(left_out)}


def _read_removed(path: Path, store: DocumentStore, report: Report) -> dict[str, int]:
    """Read the ids of documents to remove, each with its line; `report` receives those that the store lacks."""
    found: dict[str, int] = {}
    for number, line in read_text_lines(path, report):
        if name := line.strip():
            if store.rows([name])[0] < 0:
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
    stage(folder, "store", lambda path: write_store(_list_entries(before, left, folder / CHANGED), path, progress))
    store, effort = DocumentStore(folder / "store"), Effort(settings.threads, progress)
    write_postings(store, folder, progress)
    stayed = store.rows_in(before)
    stayed[store.rows(changed)] = -1

    def embed_set(texts: Texts, one: Embedding, name: str, place: Path) -> Shards:
        place.mkdir(exist_ok=True)
        return join_vectors(
            older.with_vectors(name or None), before, texts, stayed,
            lambda new: embed_store(new, one, place, effort, embed),
        )  # fmt: skip

    made, _, _ = write_vectors(store, settings, folder, embed_set, progress)
    if older.segments:
        segments = Counter(older.segments)
        segments.update(sum_segments(_read(store, store.rows(changed))))
        segments.subtract(sum_segments(_read(before, left)))
    else:
        segments = sum_segments(store)
    models = [one.made_by for one in (settings.embedding, *settings.vectors.values()) if one]
    made_of = [FORMAT, models, _without_measures(made), hash_file(store.folder / "documents.jsonl")]
    meta = {"format": FORMAT, "key": digest(["updated", *made_of]), "documents": len(store)}
    meta |= {"left_out": found["left_out"], "segments": show_segments(segments), **made}
    corpus = orjson.loads((older.folder / "index.json").read_bytes()).get("corpus")
    write_description(folder, {**meta, "corpus": corpus, "at": {}})


def _without_measures(made: dict[str, Any]) -> dict[str, Any]:
    """Leave out of what an index says of its vectors what was measured though nobody asked for a recall."""

    def keep(said: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in said.items() if name != "recall" or value["wanted"] is not None}

    sets = {name: keep(one) for name, one in made.get("vectors", {}).items()}
    return {**keep(made), **({"vectors": sets} if sets else {})}


def _read(store: DocumentStore, rows: NDArray[np.int32]) -> Iterator[Document]:
    return (document for row in rows.tolist() for document in store.get([row]))


def _list_entries(before: DocumentStore, left: NDArray[np.int32], changed: Path) -> Iterator[tuple[str, bytes, str]]:
    """List the documents of the new store, as `write_store` takes them: those that stay, then the changed ones."""
    rows = before.arrived()
    rows = rows[~np.isin(rows, left)]
    for start in range(0, len(rows), BATCH_IDS):
        chunk = rows[start : start + BATCH_IDS]
        yield from ((name, line, "") for name, line in zip(before.ids(chunk), before.records(chunk), strict=True))
    with changed.open("rb") as lines:
        yield from ((orjson.loads(line)["id"], line, "") for line in lines)
