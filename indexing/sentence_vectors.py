"""Embeddings of single sentences, made when first asked for and kept beside the index.

The cache (`sentences.sqlite`) is keyed by the text that was embedded. It may be deleted at any time and shared by
several processes.
"""

import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from hashlib import sha256

import numpy as np

from indexing.build import Index
from indexing.embed import Vectors, embed_passages, embedder
from indexing.errors import UserError
from indexing.segment_vectors import vector_cache


def sentence_vectors(index: Index, texts: Sequence[str], threads: int = 1) -> Vectors:
    """The vectors of texts by the index's model, float32[len(texts), dimension]; each text is embedded once."""
    if index.embedding is None:
        raise UserError(f"{index.folder}: has no embeddings, which answers need: build it with them")
    size = 4 * embedder(index.embedding).dimension
    keys = [sha256(text.encode(errors="surrogatepass")).digest() for text in texts]
    found: dict[bytes, bytes] = {}
    with closing(vector_cache(index.folder / "sentences.sqlite", "text BLOB")) as cache:
        for key in keys:
            known = cache.execute("SELECT vectors FROM vectors WHERE text = ?", (key,)).fetchone()
            if known and len(known[0]) == size:
                found[key] = known[0]
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in found}
        made = embed_passages(index.embedding, list(missing.values()), threads)
        rows = [(key, vector.tobytes()) for key, vector in zip(missing, made, strict=True)]
        with suppress(sqlite3.OperationalError), cache:  # an index that cannot be written is used as it is
            cache.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", rows)
    found.update(rows)
    joined = np.frombuffer(b"".join(found[key] for key in keys), dtype=np.float32)
    return joined.reshape(len(texts), size // 4)
