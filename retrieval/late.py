"""Late interaction: systems of the kind `late`, exact among what another system finds, and `plaid`, over all documents.

The score of a document is MaxSim divided by the number of the query's vectors, so that it is at most 1. In an index of
passages it is that of the document's best segment. PLAID scores compressed vectors; `late` can rank its finds exactly.

The vectors of documents are kept in the index's `tokens.sqlite`. The texts of a document are encoded as one batch, so
that its vectors do not depend on the search that made them.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from keystone.indexing.index import Index
from keystone.indexing.io.kept import hash_parts, open_kept
from keystone.indexing.types import Document, chunks
from keystone.retrieval.system import OpenIndex, Rows, System
from keystone.retrieval.types import Query, Rankings, ranked

if TYPE_CHECKING:
    from keystone.indexing.encoders.late import LateEncoder, Matrix
    from keystone.indexing.plaid import Hits

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

    def describe(self) -> dict[str, Any]:
        """Name the method and the checkpoint."""
        return {"method": "late interaction (MaxSim)", "model": self.model}

    def identify(self) -> str | None:
        """Compute the digest of the checkpoint, and name how it is read. `UserError` if it is nowhere."""
        from keystone.indexing.encoders.checkpoint import read_checkpoint
        from keystone.indexing.encoders.late import name_lengths

        checkpoint = read_checkpoint(self.model)
        return checkpoint.compute_digest() + name_lengths(checkpoint)

    def search(self, opened: OpenIndex, queries: Sequence[Query], within: Rows | None) -> Rankings:
        """Rank these documents for each query by MaxSim. `UserError` for a checkpoint of another kind."""
        from keystone.indexing.encoders.checkpoint import read_checkpoint
        from keystone.indexing.encoders.late import compute_maxsim, open_late_encoder

        assert within is not None  # `within` is required
        encoder = open_late_encoder(self.model, read_checkpoint(self.model).compute_digest())
        asked, maker = encode_queries(encoder, queries, self.reads), f"late {self.identify()}{encoder.reading}"
        scores = np.zeros((len(queries), len(within)), np.float32)
        with opened.progress("Late interaction", len(within)) as tick:
            for place, passages in enumerate(_read_vectors(opened, within, encoder, maker.encode())):
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
    """List a document's texts, of which the best one gives the document its score."""
    segments = document.segments if opened.index.passages else ()
    return [document.segment_text(one) for one in segments] or list(opened.texts_of([document]))


class PlaidSystem(System):
    """Late interaction over all documents. If it reads passages, it searches for the passage in place of the query."""

    lowest: ClassVar[float] = -1.0
    lane: ClassVar[str] = "cpu"

    kind: Literal["plaid"] = "plaid"
    """The kind of the system."""
    plaid: str = Field(min_length=1)
    """The name of the PLAID index."""

    def fits(self, index: Index) -> bool:
        """Tell whether the index holds the PLAID index. `UserError` if it lacks it."""
        return bool(index.plaid_of(self.plaid))

    def open_parts(self, opened: OpenIndex) -> None:
        """Open the PLAID index."""
        from keystone.indexing.plaid import open_plaid

        open_plaid(opened.index, self.plaid)

    def describe(self) -> dict[str, Any]:
        """Describe the method, by the name of the PLAID index."""
        return {"method": "late interaction (PLAID)", "plaid": self.plaid}

    def search(self, opened: OpenIndex, queries: Sequence[Query], within: Rows | None) -> Rankings:
        """Rank the documents that PLAID finds for each query. `UserError` as from `open_plaid`."""
        from keystone.indexing.plaid import open_plaid, open_plaid_encoder, search_plaid
        from keystone.indexing.vectors.passages import load_offsets

        assert within is None  # no setting gives candidates to this kind
        index = opened.index
        asked = encode_queries(open_plaid_encoder(index.plaid[self.plaid]), queries, self.reads)
        plaid, offsets = open_plaid(index, self.plaid), load_offsets(index) if index.offsets.exists() else None

        def find(places: Sequence[int], wanted: int) -> "list[Hits]":
            with opened.progress("PLAID search", len(places)) as tick:
                return search_plaid(plaid, [asked[place] for place in places], wanted, opened.threads, tick)

        hits = rank_texts(find, list(map(len, asked)), offsets, self.depth)
        return ranked([query.id for query in queries], [rows for rows, _ in hits], [own for _, own in hits], self.depth)


def rank_texts(
    find: "Callable[[Sequence[int], int], list[Hits]]",
    lengths: Sequence[int],
    offsets: NDArray[np.int64] | None,
    depth: int,
) -> list[tuple[Rows, NDArray[np.float32]]]:
    """List the rows and scores of at least `depth` documents for each query, or of all that there are.

    `find(places, wanted)` returns the best `wanted` texts of the queries at these places, or fewer if there are fewer.
    `lengths` are the numbers of the queries' vectors. `offsets` map documents to texts; None: each text is a document.
    """
    from keystone.indexing.plaid import LEAST_SCORED

    wanted = depth
    if offsets is not None:  # a document's passages may be many
        wanted = max(LEAST_SCORED, depth * -(-int(offsets[-1]) // (len(offsets) - 1)))
    ranking: dict[int, tuple[Rows, NDArray[np.float32]]] = {}
    left = list(range(len(lengths)))
    while left:
        found = dict(zip(left, find(left, wanted), strict=True))
        ranking |= {place: _rank_hits(hits, lengths[place], offsets) for place, hits in found.items()}
        left = [place for place in left if len(ranking[place][0]) < depth and len(found[place]) >= wanted]
        wanted *= 2
    return [ranking[place] for place in range(len(lengths))]


def _rank_hits(hits: "Hits", length: int, offsets: NDArray[np.int64] | None) -> tuple[Rows, NDArray[np.float32]]:
    """List the rows of the documents of texts, and the best score of each by one of `length` vectors of the query."""
    texts = np.array([text for text, _ in hits], np.int64)
    scores = np.array([score / length for _, score in hits], np.float32)
    owners = texts if offsets is None else np.searchsorted(offsets, texts, side="right") - 1
    rows, firsts = np.unique(owners, return_index=True)  # the first hit of a document is its best
    return rows.astype(np.int32), scores[firsts]
