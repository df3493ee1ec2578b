"""The update of an index: documents of files are added or replace others, and documents are removed by their ids.

The result equals a new index of the documents that stay, in their order, followed by the added and replaced ones, in
the order of the files. Only texts that the older index lacks are embedded. The new index takes the place of the older
one in one step. If an update stops at any moment, the older index is whole, and the same update goes on from there.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
from numpy.typing import NDArray

from keystone.indexing.builds.changes import (
    CHANGED,
    Changes,
    Reading,
    change_segments,
    find_changes,
    holds_beginnings,
    make_updated_key,
    open_documents,
    read_description,
    read_documents,
    replace_index,
)
from keystone.indexing.builds.index import (
    PARTS,
    describe_device,
    describe_language,
    show_segments,
    sum_segments,
    write_postings,
    write_sets,
    write_vectors,
)
from keystone.indexing.builds.settings import DEFAULTS, BuildSettings, Kind
from keystone.indexing.corpora.corpus import make_corpus_key
from keystone.indexing.embedder import Effort
from keystone.indexing.errors import Report, Unneeded, UserError, stop
from keystone.indexing.index import FORMAT, SMALLEST, Index, Recall, VectorSet, open_index
from keystone.indexing.io.json_values import digest
from keystone.indexing.io.reading import hash_file
from keystone.indexing.io.staged import recover, stage, write_description
from keystone.indexing.languages import DEFAULT_LANGUAGE
from keystone.indexing.lucene.analyzer import stems_of
from keystone.indexing.lucene.changed_postings import update_postings
from keystone.indexing.lucene.postings import open_postings
from keystone.indexing.store import DocumentStore, update_store
from keystone.indexing.types import Progress, silent

if TYPE_CHECKING:
    from keystone.indexing.impacts import OlderImpacts
    from keystone.indexing.vectors.shards import Embed, Shards, Texts


def update_index(
    out: Path,
    corpora: Sequence[Path] = (),
    delete: Path | None = None,
    settings: BuildSettings = DEFAULTS,
    progress: Progress = silent,
    report: Report = stop,
    since: Reading | None = None,
) -> tuple[Index, Changes]:
    """Update the index in the folder `out`; returns it and what has changed.

    Documents of the corpora whose ids are new are added, those with another content replace the older ones, and equal
    ones stay. The file `delete` names documents to remove, one id a line. `report` receives each bad record, and each
    id that the index lacks. Only the settings for reading a corpus and for the work count: the index keeps its models,
    its kinds of vectors and its passages.

    With `since`, documents that earlier updates read of the same corpora, and that are no longer in them, are removed,
    too. As long as more records are left out than before, they stay, because they may be among these records.

    `UserError` if `out` is not an index, or its documents lie where Keystone only searches. `UserError` also if an id
    is both removed and in a corpus, and if no document is left. Another call for the same index at the same time is a
    `UserError`, too.
    """
    out = recover(out)
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
    known = None if since is None else [sorted(since.ids), since.left_out]
    key = digest(["update", FORMAT, older.key, settings.format, settings.windows, official, inputs, removed, known])
    held = ("index.json", "numbers.npy") if older.at else PARTS
    parts = (*held, "*.sqlite", *settings.sets)
    changes = Changes()
    with replace_index(out, older, key, parts, settings) as (folder, engine):
        found = stage(
            folder,
            CHANGED,
            lambda path: find_changes(
                open_documents(older), corpora, delete, settings, path, engine.read, report, since
            ),
        )
        numbers = found["added"], found["replaced"], len(found["removed"])
        reading = None if since is None else Reading(frozenset(found["ids"]), found["fewest"])
        changes = Changes(*numbers, found["left_out"], reading)
        if not changes:
            raise Unneeded
        if not (folder / "index.json").exists():
            fill = _fill
            if older.at:
                from keystone.indexing.builds.update_cluster import fill_cluster as fill
            fill(folder, older, found, settings, engine.embed, progress)
    return open_index(out), changes


def _settle(older: Index, settings: BuildSettings) -> BuildSettings:
    """Take the models and the kinds of vectors from the older index, and the rest from the settings."""
    sets: dict[str, Index | VectorSet] = {"": older, **older.vectors}
    files = older if older.faiss else next((older.with_vectors(name) for name in older.vectors), older)
    size = older.faiss_shard
    if size is None and files.faiss_shards:
        from keystone.indexing.vectors.faiss_index import load_dense

        size = load_dense(files.dense_shards[0], mapped=True).ntotal
    return replace(
        settings,
        language=older.language,
        embedding=older.embedding,
        vectors={name: one.embedding for name, one in older.vectors.items()},
        impacts=older.impacts,
        plaid=older.plaid,
        kinds={name: _find_kind(one.faiss, one.recall) for name, one in sets.items()},
        faiss_shard=size,
        passages=older.passages,
        opensearch=None,
    )


def _find_kind(faiss: str | None, recall: Recall | None) -> Kind:
    return Kind(SMALLEST if recall and recall.chosen else faiss, recall.wanted if recall else None)


def _fill(
    folder: Path,
    older: Index,
    found: dict[str, Any],
    settings: BuildSettings,
    embed: "Embed | None",
    progress: Progress,
) -> None:
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
    if older.postings.is_dir() and older.language == DEFAULT_LANGUAGE:
        stage(folder, "postings", lambda path: _update_postings(older, store, stayed, new, path, progress))
    else:
        write_postings(store, folder, progress, older.language)

    embedded = list[str]()

    def reuse(name: str, texts: "Texts", make: "Callable[[Texts], Shards]") -> "Shards":
        from keystone.indexing.vectors.reuse import join_vectors  # only if there are vectors: imports take long

        def make_new(new: "Texts") -> "Shards":
            embedded.append(name)
            return make(new)

        return join_vectors(older.with_vectors(name or None), before, texts, stayed, make_new)

    made, _, _ = write_vectors(store, settings, folder, effort, embed, reuse)

    def find_older(name: str) -> "OlderImpacts | None":
        from keystone.indexing.impacts import OlderImpacts

        return None if holds_beginnings(older) else OlderImpacts(older.impacts_of(name), stayed)

    made |= write_sets(store, settings, folder, effort, find_older)
    parts = read_documents(store, new), read_documents(before, left)
    segments = change_segments(older, found, *parts) if older.segments else sum_segments(store)
    made |= describe_language(store, older.language)
    if embedded or older.device != "cpu":
        made |= describe_device(settings, older)
    meta = {"format": FORMAT, "key": make_updated_key(older, found, folder), "documents": len(store)}
    meta |= {"left_out": found["left_out"], "segments": show_segments(segments), **made}
    write_description(folder, {**meta, "corpus": read_description(older).get("corpus"), "at": {}})


def _update_postings(
    older: Index,
    store: DocumentStore,
    stayed: NDArray[np.int64],
    new: NDArray[np.int64],
    path: Path,
    progress: Progress,
) -> None:
    """Write the postings of a new store, whose rows `new` are not those of the older index."""
    stems = (stems_of(document.contents) for document in read_documents(store, new))
    update_postings(open_postings(older.postings), stayed, new, stems, path, progress)
