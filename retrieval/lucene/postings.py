"""BM25 over the mapped postings of an index, without Java: Lucene's ranking, to the last tie.

The weight of each posting is computed as Lucene's `BM25Similarity` computes it, in single precision and from its byte
for the length of a document. Lucene adds a document's weights in double precision and rounds the sum. Such sums of
single-precision numbers of like size are exact in any order, so both give the same scores.

The postings of a query are added into an array, one range of documents after another. A sample of the first sums tells
roughly where the best ones begin, so few documents are looked at twice. Compiled loops do this. A short search in a
process that has not loaded Numba does without them, since loading it takes half a second.
"""

import math
import sys
from collections import Counter
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from keystone.indexing.errors import UserError
from keystone.indexing.index import Index
from keystone.indexing.languages import DEFAULT_LANGUAGE
from keystone.indexing.lucene.analyzer import stems_of
from keystone.indexing.lucene.postings import Postings, open_postings
from keystone.indexing.types import Tick
from keystone.retrieval.backends import Sparse
from keystone.retrieval.types import BM25, Bm25, Queries, Rankings, offsets_of

CHUNK_QUERIES = 64
"""The number of queries that a thread answers between two signs of progress."""
MOST_WORDS = 65_536
"""The maximum number of distinct words in a query; Lucene's own maximum is 1,024."""
RANGE_DOCUMENTS = 1 << 16
"""The documents whose sums are held at the same time: their 0.5 MB stays in a processor's cache."""
MOST_KEPT = 1 << 26
"""The most postings whose weights are kept in memory, in 256 MB."""
SAMPLED_DOCUMENTS = 1 << 12
"""The most documents whose sums tell roughly where the best ones begin."""
LEAST_SAMPLED = 1 << 9
"""The fewest documents of that sample. A smaller one would save nothing, even for few hits."""
FEW_POSTINGS = 1 << 22
"""Up to this many postings, NumPy adds them sooner than a process loads Numba."""


class _Terms(NamedTuple):
    offsets: NDArray[np.int64]
    """Where the terms of each query begin, then the end: int64[q + 1]."""
    begins: NDArray[np.int64]
    """Where the postings of each term begin: int64[terms]."""
    ends: NDArray[np.int64]
    weights: NDArray[np.float32]
    """The weight of each term: its own in the query, times its inverse document frequency."""
    known: NDArray[np.bool_]
    """Whether the weight is the inverse document frequency alone, so that the kept weights of its postings count."""


class PostingsSearcher(Sparse):
    """BM25 with Anserini's analyzer for a language over mapped postings. Rankings hold rows."""

    def __init__(self, postings: Postings, bm25: Bm25 = BM25, language: str = DEFAULT_LANGUAGE) -> None:
        self._postings, self._language = postings, language
        self._inverse = _invert_lengths(postings, bm25)
        self._kept = np.empty(0, np.float32)
        self._visited = 0

    @cached_property
    def ranks_all(self) -> bool:
        """Whether each document with a word of a query has a score above 0, also with these parameters."""
        return bool(np.float32(1) + self._inverse[: int(self._postings.lengths.max(initial=0)) + 1].min() > 1)

    def search(
        self, query_ids: Sequence[str], queries: Queries, depth: int, threads: int = 1, tick: Tick = lambda _: None
    ) -> Rankings:
        """Rank the top `depth` by BM25; ties by row. Weights of stems are above 0.

        `UserError` for damage, and beyond `MOST_WORDS`.
        """
        if self._language != DEFAULT_LANGUAGE:  # Java reads the texts, in this thread alone
            queries = [Counter(self.stems(query)) if isinstance(query, str) else query for query in queries]
        chunks = [slice(start, start + CHUNK_QUERIES) for start in range(0, len(queries), CHUNK_QUERIES)]

        def search_chunk(chunk: slice) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
            found = self._search(self._find_terms(query_ids[chunk], queries[chunk]), depth)
            tick(len(query_ids[chunk]))
            return found

        if len(chunks) == 1:  # as most batches of a server
            found = [search_chunk(chunks[0])]
        else:
            with ThreadPoolExecutor(threads) as pool:
                found = list(pool.map(search_chunk, chunks))
        counts = np.concatenate([np.empty(0, np.int64), *(own for own, _ in found)])
        keys = np.concatenate([np.empty(0, np.uint64), *(own for _, own in found)])
        rows = (0xFFFF_FFFF - (keys & 0xFFFF_FFFF)).astype(np.int32)
        return Rankings(tuple(query_ids), offsets_of(counts), rows, (keys >> 32).astype(np.uint32).view(np.float32))

    def _find_terms(self, query_ids: Sequence[str], queries: Sequence[Any]) -> _Terms:
        counted = [Counter(self.stems(query)) if isinstance(query, str) else query for query in queries]
        for query_id, own in zip(query_ids, counted, strict=True):
            refuse_long_query(query_id, own)
        stems = [stem for own in counted for stem in own]
        places = self._postings.find_terms(stems)
        held = places >= 0
        begins, ends = self._postings.offsets[places[held]], self._postings.offsets[places[held] + 1]
        boosts = np.array([weight for own in counted for weight in own.values()], np.float32)[held]
        found = _Terms(
            offsets_of(held)[offsets_of([len(own) for own in counted])],
            begins,
            ends,
            *self._weigh_terms(ends - begins, boosts),
        )
        self._keep_weights(int((found.ends - found.begins).sum()))
        return found

    def _weigh_terms(self, counts: NDArray[np.int64], boosts: NDArray[np.float32]) -> tuple[Any, Any]:
        """The weight of each term, and whether the kept weights of its postings count."""
        return boosts * _inverse_frequencies(counts, self._postings.documents), boosts == 1

    def _keep_weights(self, visited: int) -> None:
        """Compute and keep the weights of all postings once a batch or many single queries make it worthwhile."""
        self._visited += visited
        own = self._postings
        if self._are_loops_due and self._visited > len(own.rows) > len(self._kept) and len(own.rows) <= MOST_KEPT:
            from keystone.retrieval.lucene.loops import weigh_postings

            kept = np.empty(len(own.rows), np.float32)
            frequencies = _inverse_frequencies(np.diff(own.offsets), own.documents)
            weigh_postings(own.offsets, frequencies, own.rows, own.frequencies, own.lengths, self._inverse, kept)
            self._kept = kept

    def _search(self, terms: _Terms, depth: int) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """Search one chunk: the number of hits of each query, int64[q], and the keys of all hits, best first.

        A key has the bits of the score in its upper half, so that a greater score has a greater key. The lower half is
        greater for a smaller row.
        """
        own, depth = self._postings, min(depth, len(self._postings.lengths))
        if not (self._are_loops_due and self.ranks_all):
            keys = [self._search_plainly(terms, query, depth) for query in range(len(terms.offsets) - 1)]
            return np.array([len(found) for found in keys]), np.concatenate(keys)
        from keystone.retrieval.lucene.loops import search_chunk

        known = terms.known & (len(self._kept) > 0)
        size = min(len(own.lengths), RANGE_DOCUMENTS)
        sums, taken = np.zeros(size), np.empty(depth + size, np.uint64)
        sample = np.empty(min(max(4 * depth, LEAST_SAMPLED), SAMPLED_DOCUMENTS), np.uint64)
        best = np.zeros((len(terms.offsets) - 1, depth), np.uint64)
        counts = np.empty(len(best), np.int64)
        search_chunk(
            terms.offsets, terms.begins.copy(), terms.ends, terms.weights, known,
            own.rows, own.frequencies, own.lengths, self._inverse, self._kept,
            sums, taken, sample, best, counts,
        )  # fmt: skip
        if (counts < 0).any():
            raise self._damage
        best.sort(axis=1)
        return counts, best[:, ::-1][np.arange(depth) < counts[:, None]]

    def _search_plainly(self, terms: _Terms, query: int, depth: int) -> NDArray[np.uint64]:
        """Search one query without compiled loops; returns the keys of its hits, best first.

        Unless it `ranks_all`, documents that score 0 are hits, too. Memory: 9 bytes for each document of the index.
        """
        own, part = self._postings, slice(terms.offsets[query], terms.offsets[query + 1])
        sums, is_found = np.zeros(len(own.lengths)), np.zeros(len(own.lengths), bool)
        for begin, end, weight in zip(terms.begins[part], terms.ends[part], terms.weights[part], strict=True):
            rows = self._read_rows(begin, end)
            frequencies = own.frequencies[begin:end].astype(np.float32)
            sums[rows] += weight - weight / (np.float32(1) + frequencies * self._inverse[own.lengths[rows]])
            is_found[rows] = True
        found = np.flatnonzero(sums > 0 if self.ranks_all else is_found)
        scores = sums[found].astype(np.float32).view(np.uint32).astype(np.uint64)
        keys = scores << np.uint64(32) | (np.uint64(0xFFFF_FFFF) - found.astype(np.uint64))
        if len(keys) > depth:
            keys = np.partition(keys, len(keys) - depth)[len(keys) - depth :]
        keys.sort()
        return keys[::-1]

    @property
    def _are_loops_due(self) -> bool:
        """Whether compiled loops are worth their loading: for many postings, or if Numba is loaded anyway."""
        return self._visited > FEW_POSTINGS or "numba" in sys.modules

    @property
    def _damage(self) -> UserError:
        return UserError(f"{self._postings.folder}: found postings that are not in order: build the index again")

    def _read_rows(self, begin: int, end: int) -> NDArray[np.int32]:
        """Read the documents of a term. `UserError` unless they ascend within those of the index."""
        rows = self._postings.rows[begin:end]
        if not len(rows) or not 0 <= rows[0] <= rows[-1] < len(self._postings.lengths) or (rows[1:] <= rows[:-1]).any():
            raise self._damage
        return rows

    def stems(self, text: str) -> list[str]:
        """Return the stems of a text in order, as the index holds them."""
        return stems_of(text, self._language)

    def stem_frequencies(self, stems: Sequence[str]) -> list[int]:
        """Count the documents that hold each stem."""
        places, offsets = self._postings.find_terms(stems), self._postings.offsets
        counts: list[int] = np.where(places >= 0, offsets[places + 1] - offsets[places], 0).tolist()
        return counts


class ImpactSearcher(PostingsSearcher):
    """Inner products of the impacts of queries, and of documents in mapped postings. Rankings hold rows.

    A score is exact: products of whole numbers are added in double precision, and rounded to single precision.
    """

    def __init__(self, postings: Postings) -> None:
        super().__init__(postings)
        self._inverse = np.empty(0, np.float32)

    @cached_property
    def ranks_all(self) -> bool:
        """Whether each document with an entry of a query has a score above 0: always."""
        return True

    @property
    def _are_loops_due(self) -> bool:
        return True

    def _weigh_terms(self, counts: NDArray[np.int64], boosts: NDArray[np.float32]) -> tuple[Any, Any]:
        return boosts, np.zeros(len(counts), dtype=bool)

    def _keep_weights(self, visited: int) -> None:
        """Keep nothing: an impact is its own weight."""


def open_impacts(index: Index, name: str) -> ImpactSearcher:
    """Open the search of a set of impacts in the folder of an index. `UserError` if its files are damaged."""
    return ImpactSearcher(open_postings(index.impacts_of(name)))


def refuse_long_query(query_id: str, words: Collection[str]) -> None:
    """Raise `UserError` if a query has more distinct words than a search may have."""
    if len(words) > MOST_WORDS:
        found = f"{len(words):,} distinct words, expected at most {MOST_WORDS:,}"
        raise UserError(f"query {query_id!r}: found {found}: shorten it")


def _inverse_frequencies(counts: NDArray[np.int64], documents: int) -> NDArray[np.float32]:
    """log(1 + (N - n + 0.5) / (n + 0.5)) of terms: float32[terms] (Robertson and Zaragoza, 2009, section 3)."""
    return np.array([math.log(1 + (documents - n + 0.5) / (n + 0.5)) for n in counts.tolist()], np.float32)


def _invert_lengths(postings: Postings, bm25: Bm25) -> NDArray[np.float32]:
    """1 / (k1 * (1 - b + b * length / mean length)) for each of Lucene's bytes for a length, in its order of steps."""
    one, k1, b = np.float32(1), np.float32(bm25.k1), np.float32(bm25.b)
    mean = np.float32(postings.tokens / max(postings.documents, 1))
    lengths = np.array([_decode_length(byte) for byte in range(256)], np.float32)
    with np.errstate(divide="ignore", invalid="ignore"):
        return (one / (k1 * ((one - b) + b * lengths / mean))).astype(np.float32)


def _decode_length(byte: int) -> int:
    """The length that one of Lucene's bytes stands for: exact up to 40, then to four significant bits."""
    if byte < 24:
        return byte
    shift, bits = divmod(byte - 24, 8)
    return 24 + (bits if shift == 0 else (bits | 8) << (shift - 1))


def compile_loops() -> None:
    """Compile the loops of a search, once for all processes."""
    import keystone.retrieval.lucene.loops  # noqa: F401  (so that searches use them)

    ends, one = np.array([0, 1], np.int64), np.zeros(1, np.uint8)
    postings = Postings(Path(), one, ends, ends, np.zeros(1, np.int32), one + np.uint8(1), one, 1, 1)
    for array in (one, ends, postings.rows, postings.frequencies):
        array.flags.writeable = False  # as mapped files are
    for _ in range(2):
        PostingsSearcher(postings).search(["1", "2"], [{"\0": 1.0}] * 2, 1)


if __name__ == "__main__":
    compile_loops()
