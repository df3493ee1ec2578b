"""From a corpus to an index folder: `store/`, `lucene/`, `dense.faiss` and `index.json`, whole or not at all."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import orjson

from indexing.corpora import corpus_key, guess_format, read_corpus
from indexing.embed import embedder
from indexing.errors import BadRecord, Report, UserError, stop
from indexing.files import digest, written_folder
from indexing.segments import segmented
from indexing.store import DocumentStore, build_store
from indexing.types import Progress, silent

FORMAT = 2
"""Raised when the layout of an index folder changes."""


@dataclass(frozen=True, slots=True)
class Index:
    """An index folder: its parts and its key, which changes with the corpus, the settings and the layout.

    `left_out` counts the records of the corpus that are no documents, by kind.
    """

    folder: Path
    key: str
    embedding: str | None
    documents: int
    left_out: dict[str, int]

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
        """The FAISS index; there only where `embedding` names a model."""
        return self.folder / "dense.faiss"


def open_index(folder: Path) -> Index:
    """An index that `build_index` made. `UserError` if the folder is not one."""
    try:
        found = orjson.loads((folder / "index.json").read_bytes())
        if found["format"] != FORMAT:
            raise UserError(f"{folder}: index format {found['format']}, expected {FORMAT}: build it again")
        return Index(folder, found["key"], found["embedding"], found["documents"], found["left_out"])
    except (OSError, orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise UserError(f"{folder}: not an index: expected a folder made by `keystone index`") from error


def build_index(
    corpus: Path,
    out: Path,
    *,
    format: str | None = None,
    segments: Path | None = None,
    embedding: str | None = "all-MiniLM-L6-v2",
    threads: int = 1,
    progress: Progress = silent,
    report: Report = stop,
) -> tuple[Index, bool]:
    """Index a corpus; returns the index and whether it had to be built. Bad records go to `report`.

    A folder that already holds this very index is left as it is; one that holds anything else is refused.
    """
    format = format or guess_format(corpus)
    with progress("Reading files", None):
        inputs = [corpus_key(corpus, format), *([corpus_key(segments, "segments")] if segments else [])]
    key = digest([FORMAT, format, embedding, inputs])
    if out.exists():
        existing = open_index(out)
        if existing.key != key:
            raise UserError(f"{out}: holds an index of another corpus or other settings: remove it or choose another")
        return existing, False
    with written_folder(out) as folder:
        left_out: Counter[str] = Counter()

        def counted(error: BadRecord) -> None:
            left_out[error.kind] += 1
            report(error)

        found = map(segmented, read_corpus(corpus, format, segments, counted))
        documents = build_store(found, folder / "store", progress, counted)
        store = DocumentStore(folder / "store")
        from indexing.lucene import build_lucene

        build_lucene(store, folder / "lucene", progress)
        if embedding:
            from indexing.dense import build_dense

            build_dense(store, embedder(embedding), folder / "dense.faiss", threads, progress)
        meta = {"format": FORMAT, "key": key, "embedding": embedding, "documents": documents, "corpus": corpus.name}
        meta["left_out"] = dict(left_out)
        (folder / "index.json").write_bytes(orjson.dumps(meta, option=orjson.OPT_INDENT_2))
    return open_index(out), True
