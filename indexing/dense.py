"""The exact dense index: FAISS, inner product, one vector a document in the order of rows."""

from pathlib import Path
from typing import Any

from indexing.embed import Embedder
from indexing.errors import MissingPackage, UserError
from indexing.store import DocumentStore
from indexing.types import Progress, silent

CHUNK = 4096


def faiss_module() -> Any:
    """FAISS, from either of the two exclusive packages."""
    try:
        import faiss
    except ImportError as error:
        raise MissingPackage("FAISS is needed for dense search: pip install faiss-cpu, or faiss-gpu") from error
    return faiss


def build_dense(
    store: DocumentStore, embedder: Embedder, path: Path, threads: int, progress: Progress = silent
) -> None:
    """Embed title and text of all documents and write the index."""
    faiss = faiss_module()
    index = faiss.IndexFlatIP(embedder.dimension)
    with progress("Embedding documents", len(store)) as tick:
        for start in range(0, len(store), CHUNK):
            rows = range(start, min(start + CHUNK, len(store)))
            index.add(embedder.embed([document.contents for document in store.get(rows)], threads, tick))
    faiss.write_index(index, str(path))


def load_dense(path: Path) -> Any:
    """The index as FAISS reads it. `UserError` if the file is not a whole one."""
    try:
        return faiss_module().read_index(str(path))
    except RuntimeError as error:
        raise UserError(f"{path}: not a whole FAISS index: build the index again") from error
