"""Systems of the kind `late`: late interaction by a checkpoint, exact among the documents that another system finds.

The score of a document is MaxSim divided by the number of the query's vectors, so that it is at most 1. In an index of
passages it is that of the document's best segment.

The vectors of documents are kept in the index's `tokens.sqlite`. The texts of a document are encoded as one batch, so
that its vectors do not depend on the search that made them.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from keystone.indexing.io.kept import hash_parts, open_kept
from keystone.indexing.types import Document, chunks
from keystone.retrieval.system import OpenIndex, Rows, System
from keystone.retrieval.types import Query, Rankings, ranked

if TYPE_CHECKING:
    from keystone.indexing.encoders.late import LateEncoder, Matrix

DOCUMENTS_AT_ONCE = 64
"""The vectors of this many documents are in memory at once."""


class LateSystem(System):
    """Late interaction. If it reads passages, it searches for the passage in place of the query."""

    lowest: ClassVar[float] = -1.0
    lane: ClassVar[str] = "cpu"

    kind: Literal["late"] = "late"
    """The kind of the system."""
    model: str = Field(min_length=1)
    """The checkpoint: a folder, or a name of the hub."""
    within: str
    """Another system: the documents that it finds for any query are ranked, exactly."""

    @property
    def base(self) -> str | None:
        """The name of the system whose documents alone this one ranks."""
        return self.within

    def describe(self) -> dict[str, Any]:
        """Name the method and the checkpoint."""
        return {"method": "late interaction (MaxSim)", "model": self.model}

    def identify(self) -> str | None:
        """Compute the digest of the checkpoint. `UserError` if it is nowhere."""
        from keystone.indexing.encoders.checkpoint import read_checkpoint

        return read_checkpoint(self.model).compute_digest()

    def search(self, opened: OpenIndex, queries: Sequence[Query], within: Rows | None) -> Rankings:
        """Rank these documents for each query by MaxSim. `UserError` for a checkpoint of another kind."""
        from keystone.indexing.encoders.late import compute_maxsim, open_late_encoder

        assert within is not None  # `within` is required
        digest = self.identify()
        encoder = open_late_encoder(self.model, digest)
        asked = encode_queries(encoder, queries, self.reads)
        scores = np.zeros((len(queries), len(within)), np.float32)
        with opened.progress("Late interaction", len(within)) as tick:
            for place, passages in enumerate(_read_vectors(opened, within, encoder, f"late {digest}".encode())):
                for row, query in zip(scores, asked, strict=True):
                    row[place] = max(compute_maxsim(query, passage) for passage in passages) / len(query)
                tick(1)
        return ranked([query.id for query in queries], [within] * len(queries), list(scores), self.depth)


def encode_queries(encoder: "LateEncoder", queries: Sequence[Query], reads: str) -> "list[Matrix]":
    """Compute the vectors of each query, or of its passage."""
    return [encoder.encode_query(query.passage if reads == "passage" else query.dense_text) for query in queries]


def _read_vectors(opened: OpenIndex, rows: Rows, encoder: "LateEncoder", maker: bytes) -> "Iterator[list[Matrix]]":
    """Yield the vectors of each document's texts, float32[tokens, dimension] each: kept ones, and new ones to keep."""
    with open_kept(opened.index.folder / "tokens.sqlite") as kept, ThreadPoolExecutor(opened.threads) as pool:
        for some in chunks(rows, DOCUMENTS_AT_ONCE):
            documents = opened.store.get(some.tolist())
            texts = [_list_texts(opened, document) for document in documents]
            keys = [[hash_parts(maker, [text]) for text in own] for own in texts]
            found = kept.get([key for own in keys for key in own])
            missing = [place for place, own in enumerate(keys) if not found.keys() >= {*own}]
            made: dict[bytes, bytes] = {}
            encoded = pool.map(encoder.encode_passages, [texts[place] for place in missing])
            for place, vectors in zip(missing, encoded, strict=True):
                made |= {key: one.tobytes() for key, one in zip(keys[place], vectors, strict=True)}
            kept.put(made)
            found |= made
            for own in keys:
                yield [np.frombuffer(found[key], np.float32).reshape(-1, encoder.dimension) for key in own]


def _list_texts(opened: OpenIndex, document: Document) -> list[str]:
    """List the texts of which the best one gives a document its score."""
    segments = document.segments if opened.index.passages else ()
    return [document.segment_text(one) for one in segments] or list(opened.texts_of([document]))
