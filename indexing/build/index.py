"""From a corpus to an index folder: `store/`, `lucene/`, `dense.faiss` and `index.json`, whole or not at all.

Documents can also be embedded when a run finds them (`indexing.vectors.of_documents`): there is no `dense.faiss` then.

A build that was stopped, at whatever moment, goes on where it was when it is asked for again.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from indexing.build.engines import engine_of
from indexing.corpora.corpus import corpus_key, guess_format, read_corpus
from indexing.corpora.segments import is_cut_officially, is_window, segmented
from indexing.errors import BadRecord, Report, UserError, stop
from indexing.index import FORMAT, Index, open_index
from indexing.io.files import digest, unicode_name, written
from indexing.io.staged import partial_folder, stage
from indexing.store import DocumentStore, build_store
from indexing.types import MINILM, Document, Embedding, Progress, silent
from indexing.vectors.embed import embedder
from indexing.vectors.shards import Shards, embed_store
from indexing.vectors.types import Effort

if TYPE_CHECKING:
    from indexing.opensearch.index import Target

PARTS = ("store", "lucene", "dense.faiss", "dense-*.faiss", "index.json")
"""What an index folder holds when it is whole; `index.json` alone where another engine holds the rest."""


def build_index(
    corpus: Path,
    out: Path,
    *,
    format: str | None = None,
    segments: Path | None = None,
    windows: bool = False,
    embedding: Embedding | None = MINILM,
    faiss: str | None = "Flat",
    faiss_shard: int | None = None,
    opensearch: "Target | None" = None,
    threads: int = 1,
    engine: str = "local",
    progress: Progress = silent,
    report: Report = stop,
) -> tuple[Index, bool]:
    """Index a corpus; returns the index and whether it had to be built.

    Bad records go to `report`, once: a build that goes on with what was read before tells only their number.
    A document of MS MARCO V2.1 without any of its official segments is an error unless `windows` lets it be cut as
    other documents are.
    `faiss` is FAISS's factory string; None leaves the documents to be embedded by the runs that find them.
    With `faiss_shard` it is made in files of so many documents, one at a time in memory, and mapped when searched.
    With `opensearch` documents, postings and vectors are loaded to an index of that cluster, not kept in the folder.
    `engine` is `local` or `ray`; they make the same, and each goes on with what the other has done.

    A folder that already holds this very index is left as it is; one that holds anything else is refused.
    """
    format = format or guess_format(corpus)
    with progress("Reading files", None):
        inputs = [corpus_key(corpus, format), *([corpus_key(segments, "segments")] if segments else [])]
    model = asdict(embedding) if embedding else None
    made_by = embedding.made_by if embedding else None
    made_of = [FORMAT, format, made_by, [faiss, faiss_shard] if embedding else None, inputs]
    key = digest([*made_of, ["opensearch", opensearch.shards]] if opensearch else made_of)
    at = opensearch.place.at if opensearch else {}
    if out.exists():
        existing = open_index(out)
        if (existing.key, existing.at) != (key, at):
            raise UserError(f"{out}: holds an index of another corpus or other settings: remove it or choose another")
        return existing, False
    if opensearch:
        from indexing.opensearch.build import check_cluster

        check_cluster(opensearch, key, embedding, faiss)
    parts_key = digest([key, at]) if at else key
    with partial_folder(out, parts_key, PARTS[-1:] if at else PARTS) as folder, engine_of(engine, threads) as workers:
        if not (folder / "index.json").exists():
            documents = partial(read_corpus, corpus, format, segments, read=workers.read)
            read = stage(folder, "store", lambda path: _build_store(documents, windows, path, progress, report))
            store, shards, parts = DocumentStore(folder / "store"), None, 0
            if not opensearch:
                stage(folder, "lucene", lambda path: _build_lucene(store, path, progress))
            if embedding:
                _check_model(embedding, None if opensearch else faiss)
            if embedding and faiss is not None:
                shards = embed_store(store, embedding, folder / "vectors", Effort(threads, progress), workers.embed)
                parts = 0 if opensearch else _build_dense(shards, faiss, faiss_shard, folder, progress)
            meta = {"format": FORMAT, "key": key, "embedding": model, "faiss": faiss if embedding else None}
            meta |= {**read, "faiss_shards": parts, "cut": shards.cut if shards else 0}
            meta |= {"corpus": unicode_name(corpus.name)}
            if opensearch:
                from indexing.opensearch.build import load_stage

                load_stage(opensearch, meta, store, shards, folder, progress)
            with written(folder / "index.json") as file:
                file.write(orjson.dumps({**meta, "at": at}, option=orjson.OPT_INDENT_2))
    return open_index(out), True


def _build_store(
    documents: Callable[..., Iterator[Document]], windows: bool, path: Path, progress: Progress, report: Report
) -> dict[str, Any]:
    left_out: Counter[str] = Counter()
    segments = {"official": 0, "windows": 0}

    def counted(error: BadRecord) -> None:
        left_out[error.kind] += 1
        report(error)

    def cut() -> Iterator[Document]:
        for document in map(segmented, documents(report=counted)):
            if not windows:
                refuse_windows(document)
            _count(document, segments)
            yield document

    count = build_store(cut(), path, progress, counted)
    if left_out["repeated id"]:
        segments = dict.fromkeys(segments, 0)
        for document in DocumentStore(path):
            _count(document, segments)
    return {"documents": count, "left_out": dict(left_out), "segments": segments}


def refuse_windows(document: Document) -> None:
    """`UserError` for a document that has official segments, of which none is known here."""
    if is_cut_officially(document.id) and is_window(document.segments[0].id):
        where = f"{document.place}: " if document.place else ""
        raise UserError(
            f"{where}document {document.id} has no official segment, and no track knows windows that Keystone cuts: "
            "name the file of its official segments with --segments, or ask for windows with --windows"
        )


def _count(document: Document, segments: dict[str, int]) -> None:
    segments["windows" if is_window(document.segments[0].id) else "official"] += len(document.segments)


def _build_lucene(store: DocumentStore, path: Path, progress: Progress) -> None:
    from indexing.lucene.write import build_lucene

    build_lucene(store, path, progress)


def _check_model(embedding: Embedding, faiss: str | None) -> None:
    """`UserError` for an impossible model or FAISS index, before the long work."""
    dimension = embedder(embedding).dimension
    if faiss is not None:
        from indexing.vectors.faiss_index import new_index

        new_index(dimension, faiss)


def _build_dense(shards: Shards, faiss: str, size: int | None, folder: Path, progress: Progress) -> int:
    """Put the vectors into a FAISS index; returns of how many parts, 0 for one that is not in parts."""
    from indexing.vectors.faiss_files import build_dense_shards
    from indexing.vectors.faiss_index import build_dense

    if size:
        return build_dense_shards(shards, faiss, size, folder, progress)
    stage(folder, "dense.faiss", lambda path: build_dense(shards, faiss, path, progress))
    return 0
