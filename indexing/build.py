"""From a corpus to an index folder: `store/`, `lucene/`, `dense.faiss` and `index.json`, whole or not at all.

Documents can also be left to be embedded when a run finds them (`indexing.document_vectors`): no `dense.faiss` then.

A build that was stopped, at whatever moment, goes on where it was when it is asked for again.
"""

from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from indexing.corpora import corpus_key, guess_format, read_corpus
from indexing.embed import MINILM, Embedding, embedder
from indexing.errors import BadRecord, Report, UserError, stop
from indexing.files import digest, unicode_name, written
from indexing.partial import partial_folder, stage
from indexing.segments import segmented
from indexing.store import DocumentStore, build_store
from indexing.types import Progress, silent

if TYPE_CHECKING:
    from indexing.opensearch import Place
    from indexing.opensearch_index import Target
    from indexing.vectors import Shards

FORMAT = 4
"""Raised when the layout of an index folder changes."""

PARTS = ("store", "lucene", "dense.faiss", "index.json")
"""What an index folder holds when it is whole; `index.json` alone where another engine holds the rest."""


@dataclass(frozen=True, slots=True)
class Index:
    """An index folder: its parts and its key, which changes with the corpus, the settings and the layout.

    `at` says where documents and postings are, if not in the folder: {"backend": "opensearch", "url": ...}.

    `left_out` counts the records of the corpus that are no documents, by kind. `cut` of the documents were longer
    than the embedding model's window; their vectors stand for their beginning. `faiss` is the kind of the FAISS
    index; None where there is none.
    """

    folder: Path
    key: str
    embedding: Embedding | None
    documents: int
    left_out: dict[str, int]
    cut: int
    faiss: str | None
    at: dict[str, str] = field(default_factory=dict)

    @property
    def backend(self) -> str:
        """What holds documents and postings: a name of `indexing.stores` and `retrieval.backends`."""
        return self.at.get("backend", "lucene")

    @property
    def pooled(self) -> bool:
        """Whether a run embeds the candidates that it finds by BM25, and searches among them alone."""
        return self.embedding is not None and self.faiss is None

    @property
    def store(self) -> Path:
        """The document store."""
        return self.folder / "store"

    @property
    def lucene(self) -> Path:
        """The Lucene index."""
        return self.folder / "lucene"

    @property
    def dense(self) -> Path:
        """The FAISS index; there only where `faiss` says of which kind."""
        return self.folder / "dense.faiss"


def open_index(folder: Path) -> Index:
    """An index that `build_index` made. `UserError` if the folder is not one."""
    try:
        found = orjson.loads((folder / "index.json").read_bytes())
        if found["format"] != FORMAT:
            raise UserError(f"{folder}: index format {found['format']}, expected {FORMAT}: build it again")
        embedding = Embedding(**found["embedding"]) if found["embedding"] else None
        return Index(
            folder, found["key"], embedding, found["documents"], found["left_out"], found["cut"], found["faiss"],
            found["at"],
        )  # fmt: skip
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise UserError(f"{folder}: not an index: expected a folder made by `keystone index`") from error


def build_index(
    corpus: Path,
    out: Path,
    *,
    format: str | None = None,
    segments: Path | None = None,
    embedding: Embedding | None = MINILM,
    faiss: str | None = "Flat",
    opensearch: "Target | None" = None,
    threads: int = 1,
    progress: Progress = silent,
    report: Report = stop,
) -> tuple[Index, bool]:
    """Index a corpus; returns the index and whether it had to be built.

    Bad records go to `report`, once: a build that goes on with what was read before tells only their number.
    `faiss` is FAISS's factory string; None leaves the documents to be embedded by the runs that find them.
    With `opensearch` documents, postings and vectors are loaded to an index of that cluster, not kept in the folder.

    A folder that already holds this very index is left as it is; one that holds anything else is refused.
    """
    format = format or guess_format(corpus)
    with progress("Reading files", None):
        inputs = [corpus_key(corpus, format), *([corpus_key(segments, "segments")] if segments else [])]
    model = asdict(embedding) if embedding else None
    made_of = [FORMAT, format, model, faiss if embedding else None, inputs]
    key = digest([*made_of, ["opensearch", opensearch.shards]] if opensearch else made_of)
    at = opensearch.place.at if opensearch else {}
    if out.exists():
        existing = open_index(out)
        if (existing.key, existing.at) != (key, at):
            raise UserError(f"{out}: holds an index of another corpus or other settings: remove it or choose another")
        return existing, False
    if opensearch:
        _check_cluster(opensearch, key, embedding, faiss)
    with partial_folder(out, digest([key, at]) if at else key, PARTS[-1:] if at else PARTS) as folder:
        if not (folder / "index.json").exists():
            read = stage(folder, "store", lambda path: _build_store(corpus, format, segments, path, progress, report))
            store, cut, vectors = DocumentStore(folder / "store"), 0, None
            if not opensearch:
                stage(folder, "lucene", lambda path: _build_lucene(store, path, progress))
            if embedding:
                embedder(embedding)  # an impossible model is known now, also where it is only used later
            if embedding and faiss is not None:
                vectors = _embed(store, embedding, None if opensearch else faiss, folder, threads, progress)
                cut = vectors.cut
            if vectors and not opensearch:
                _build_dense(vectors, str(faiss), folder, progress)
            meta = {"format": FORMAT, "key": key, "embedding": model, "faiss": faiss if embedding else None}
            meta |= {**read, "cut": cut, "corpus": unicode_name(corpus.name)}
            if opensearch:
                _load(opensearch, meta, store, vectors, folder, progress)
            with written(folder / "index.json") as file:
                file.write(orjson.dumps({**meta, "at": at}, option=orjson.OPT_INDENT_2))
    return open_index(out), True


def _build_store(
    corpus: Path, format: str, segments: Path | None, path: Path, progress: Progress, report: Report
) -> dict[str, Any]:
    left_out: Counter[str] = Counter()

    def counted(error: BadRecord) -> None:
        left_out[error.kind] += 1
        report(error)

    found = map(segmented, read_corpus(corpus, format, segments, counted))
    documents = build_store(found, path, progress, counted)
    return {"documents": documents, "left_out": dict(left_out)}


def _build_lucene(store: DocumentStore, path: Path, progress: Progress) -> None:
    from indexing.lucene import build_lucene

    build_lucene(store, path, progress)


def _embed(
    store: DocumentStore, embedding: Embedding, faiss: str | None, folder: Path, threads: int, progress: Progress
) -> "Shards":
    """Embed all documents, in shards; a wrong factory string is known before the long work."""
    from indexing.vectors import embed_store

    if faiss is not None:
        from indexing.dense import new_index

        new_index(embedder(embedding).dimension, faiss)
    return embed_store(store, embedding, folder / "vectors", threads, progress)


def _build_dense(vectors: "Shards", faiss: str, folder: Path, progress: Progress) -> None:
    from indexing.dense import build_dense

    stage(folder, "dense.faiss", lambda path: build_dense(vectors, faiss, path, progress))


def _check_cluster(target: "Target", key: str, embedding: Embedding | None, faiss: str | None) -> None:
    """`UserError` for a cluster that cannot take the index, before anything is read or embedded for it."""
    from indexing.opensearch import close, connect
    from indexing.opensearch_index import check_possible, held_at, index_body, refuse_other

    dimension = embedder(embedding).dimension if embedding and faiss is not None else None
    body = index_body({"faiss": faiss}, target.shards, dimension)
    nodes = connect(target.place.urls, 1)
    try:
        held = held_at(nodes, target.place)
        refuse_other(target.place, held, key)
        if held is None:
            check_possible(nodes, target.place, body)
    finally:
        close(nodes)


def _load(
    target: "Target",
    meta: dict[str, Any],
    store: DocumentStore,
    vectors: "Shards | None",
    folder: Path,
    progress: Progress,
) -> None:
    from indexing.opensearch_load import load

    note = folder / "acknowledged"
    stage(folder, "opensearch", lambda _: load(target, meta, store, vectors, note, progress))


def attach(place: "Place", out: Path) -> tuple[Index, bool]:
    """An index folder for an index that was loaded to OpenSearch elsewhere; also says whether it had to be made.

    `UserError` where there is no finished index, or the folder holds another one.
    """
    from indexing.opensearch import close, connect
    from indexing.opensearch_index import held_at

    nodes = connect(place.urls, 1)
    try:
        held = held_at(nodes, place)
    finally:
        close(nodes)
    if held is None or not held.finished:
        found = "not yet finished" if held else "no such index"
        raise UserError(f"{place}: {found}; expected one that `keystone index CORPUS --opensearch` has made")
    if out.exists():
        existing = open_index(out)
        if (existing.key, existing.at) != (held.meta["key"], place.at):
            raise UserError(f"{out}: holds another index: remove it or choose another")
        return existing, False
    with partial_folder(out, digest([held.meta, place.at]), PARTS[-1:]) as folder:
        with written(folder / "index.json") as file:
            file.write(orjson.dumps({**held.meta, "at": place.at}, option=orjson.OPT_INDENT_2))
        open_index(folder)  # what another version has made is refused and leaves nothing
    return open_index(out), True
