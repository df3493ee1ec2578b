"""BM25 over the mapped postings of an index, without Java: Lucene's ranking, to the last tie.

The weight of each posting is computed as Lucene's `BM25Similarity` computes it, in single precision and from its byte
for the length of a document. Lucene adds a document's weights in double precision and rounds the sum. Such sums of
single-precision numbers of like size are exact in any order, so both give the same scores.

The postings of a query are added into an array, a range of documents after another. A sample of the first sums tells
about where the best ones begin, so few documents are looked at twice.
"""

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from keystone.indexing.errors import UserError
from keystone.indexing.lucene.analyzer import stems_of
from keystone.indexing.lucene.postings import Postings
from keystone.indexing.types import Tick
from keystone.retrieval.types import BM25, Bm25, Rankings, offsets_of

CHUNK_QUERIES = 64
"""The number of queries that a thread answers between two signs of progress."""
MOST_WORDS = 65_536
"""The maximum number of distinct words in a query; Lucene's own maximum is 1,024."""
RANGE_DOCUMENTS = 1 << 16
"""The documents whose sums are held at one time: their 0.5 MB stays in a processor's cache."""
MOST_KEPT = 1 << 26
"""The most postings whose weights are kept in memory, in 256 MB."""
SAMPLED_DOCUMENTS = 1 << 12
"""The documents whose sums tell about where the best ones begin."""

Weighted = Mapping[str, float]
"""A query as the weights of stems."""


class _Terms(NamedTuple):
    """The terms of several queries, one after another."""

    offsets: NDArray[np.int64]
    """Where the terms of each query begin, then the end: int64[q + 1]."""
    begins: NDArray[np.int64]
    """Where the postings of each term begin: int64[terms]."""
    ends: NDArray[np.int64]
    weights: NDArray[np.float32]
    """The weight of each term: its own in the query, times its inverse document frequency."""
    known: NDArray[np.bool_]
    """Whether the weight is the inverse document frequency alone, so that the kept weights of its postings count."""


class PostingsSearcher:
    """BM25 with Anserini's English analyzer over mapped postings. Rankings hold rows."""

    def __init__(self, postings: Postings, bm25: Bm25 = BM25) -> None:
        self._postings = postings
        self._inverse = _invert_lengths(postings, bm25)
        self._kept = np.empty(0, np.float32)
        self._visited = 0

    @property
    def ranks_all(self) -> bool:
        """Whether each document with a word of a query has a score above 0, also with these parameters."""
        return bool(np.float32(1) + self._inverse[: int(self._postings.lengths.max(initial=0)) + 1].min() > 1)

    def search(
        self,
        query_ids: Sequence[str],
        queries: Sequence[str] | Sequence[Weighted],
        depth: int,
        threads: int = 1,
        tick: Tick = lambda _: None,
    ) -> Rankings:
        """Rank the top `depth` documents of each query by BM25; ties by row, ascending.

        A query is a text, or a mapping from stems to weights above 0. `UserError` if the postings are damaged, and for
        a query of more than `MOST_WORDS` distinct words.
        """
        find = self._search if self.ranks_all else self._search_all
        chunks = [slice(start, start + CHUNK_QUERIES) for start in range(0, len(queries), CHUNK_QUERIES)]

        def search_chunk(chunk: slice) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
            found = find(self._find_terms(query_ids[chunk], queries[chunk]), depth)
            tick(len(query_ids[chunk]))
            return found

        with ThreadPoolExecutor(threads) as pool:
            found = list(pool.map(search_chunk, chunks))
        counts = np.concatenate([np.empty(0, np.int64), *(own for own, _ in found)])
        keys = np.concatenate([np.empty(0, np.uint64), *(own for _, own in found)])
        rows = (0xFFFF_FFFF - (keys & 0xFFFF_FFFF)).astype(np.int32)
        return Rankings(tuple(query_ids), offsets_of(counts), rows, (keys >> 32).astype(np.uint32).view(np.float32))

    def _find_terms(self, query_ids: Sequence[str], queries: Sequence[Any]) -> _Terms:
        counted = [Counter(stems_of(query)) if isinstance(query, str) else query for query in queries]
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
            boosts * _inverse_frequencies(ends - begins, self._postings.documents),
            boosts == 1,
        )
        self._keep_weights(int((found.ends - found.begins).sum()))
        return found

    def _keep_weights(self, visited: int) -> None:
        """Compute and keep the weights of all postings once a batch, or many single queries, are worth it."""
        self._visited += visited
        own = self._postings
        if self._visited > len(own.rows) > len(self._kept) and len(own.rows) <= MOST_KEPT:
            kept = np.empty(len(own.rows), np.float32)
            frequencies = _inverse_frequencies(np.diff(own.offsets), own.documents)
            _weigh_postings(own.offsets, frequencies, own.rows, own.frequencies, own.lengths, self._inverse, kept)
            self._kept = kept

    def _search(self, terms: _Terms, depth: int) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """Search one chunk: the number of hits of each query, int64[q], and the keys of all hits, best first."""
        own, depth = self._postings, min(depth, len(self._postings.lengths))
        known = terms.known & (len(self._kept) > 0)
        size = min(len(own.lengths), RANGE_DOCUMENTS)
        sums, taken, sample = np.zeros(size), np.empty(depth + size, np.uint64), np.empty(SAMPLED_DOCUMENTS, np.uint64)
        keys = np.zeros((len(terms.offsets) - 1, depth), np.uint64)
        counts = np.empty(len(keys), np.int64)
        _search_chunk(
            terms.offsets, terms.begins.copy(), terms.ends, terms.weights, known,
            own.rows, own.frequencies, own.lengths, self._inverse, self._kept,
            sums, taken, sample, keys, counts,
        )  # fmt: skip
        if (counts < 0).any():
            raise self._damaged()
        keys.sort(axis=1)
        return counts, keys[:, ::-1][np.arange(depth) < counts[:, None]]

    def _search_all(self, terms: _Terms, depth: int) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """Search one chunk as `_search` does, and also find documents whose score is 0."""
        own, one, found = self._postings, np.float32(1), []
        for query in range(len(terms.offsets) - 1):
            rows, weights = [np.empty(0, np.int32)], [np.empty(0, np.float32)]
            for term in range(terms.offsets[query], terms.offsets[query + 1]):
                part = slice(terms.begins[term], terms.ends[term])
                rows.append(own.rows[part])
                if not (rows[-1].view(np.uint32) < len(own.lengths)).all():
                    raise self._damaged()
                norms = own.frequencies[part].astype(np.float32) * self._inverse[own.lengths[rows[-1]]]
                weights.append(terms.weights[term] - terms.weights[term] / (one + norms))
            documents, places = np.unique(np.concatenate(rows), return_inverse=True)
            scores = np.bincount(places, np.concatenate(weights), len(documents)).astype(np.float32)
            keys = (scores.view(np.uint32).astype(np.uint64) << 32) | (0xFFFF_FFFF - documents.astype(np.uint64))
            found.append(np.sort(keys)[::-1][:depth])
        counts = np.array([len(keys) for keys in found], np.int64)
        return counts, np.concatenate([np.empty(0, np.uint64), *found])

    def _damaged(self) -> UserError:
        return UserError(f"{self._postings.folder}: found postings that are not in order: build the index again")

    def stems(self, text: str) -> list[str]:
        """Return the stems of a text in order, as the index holds them."""
        return stems_of(text)

    def stem_frequencies(self, stems: Sequence[str]) -> list[int]:
        """Count the documents that hold each stem."""
        places, offsets = self._postings.find_terms(stems), self._postings.offsets
        counts: list[int] = np.where(places >= 0, offsets[places + 1] - offsets[places], 0).tolist()
        return counts

    def document_frequencies(self, words: Sequence[str]) -> list[int]:
        """Count the documents that hold the stem of each word; 0 for a stop word."""
        found = [stems_of(word) for word in words]
        counts = iter(self.stem_frequencies([stems[0] for stems in found if len(stems) == 1]))
        return [next(counts) if len(stems) == 1 else 0 for stems in found]


def refuse_long_query(query_id: str, words: Collection[str]) -> None:
    """Raise `UserError` if a query has more distinct words than a search may have."""
    if len(words) > MOST_WORDS:
        found = f"{len(words):,} distinct words, expected at most {MOST_WORDS:,}"
        raise UserError(f"query {query_id!r}: found {found}: shorten it")


def _inverse_frequencies(counts: NDArray[np.int64], documents: int) -> NDArray[np.float32]:
    """The inverse frequencies of terms, float32[terms], from the numbers of documents that hold them.

    log(1 + (N - n + 0.5) / (n + 0.5)) in double precision, as Lucene has it (Robertson and Zaragoza, 2009, section 3).
    """
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


@njit(cache=True, nogil=True, _nrt=False)  # type: ignore[untyped-decorator]
def _weigh_postings(
    offsets: Any, weights: Any, rows: Any, frequencies: Any, lengths: Any, inverse: Any, kept: Any
) -> None:
    one = np.float32(1)
    for term in range(len(weights)):
        weight = weights[term]
        for place in range(offsets[term], offsets[term + 1]):
            row = rows[place]
            if 0 <= row < len(lengths):
                kept[place] = weight - weight / (one + np.float32(frequencies[place]) * inverse[lengths[row]])


@njit(cache=True, nogil=True, _nrt=False)  # type: ignore[untyped-decorator]
def _search_chunk(
    offsets: Any, places: Any, ends: Any, weights: Any, known: Any,
    rows: Any, frequencies: Any, lengths: Any, inverse: Any, kept: Any,
    sums: Any, taken: Any, sample: Any, best: Any, counts: Any,
) -> None:  # fmt: skip
    """Put the keys of the best documents of each query into a row of `best`, in any order, their number into `counts`.

    The number is -1 for damaged postings. A key has the bits of the score in its upper half, so that a greater score
    has a greater key. The lower half is greater for a smaller row. `places` has the next posting of each term; it
    moves. `sums` holds zeros, and does so at the end; `taken` and `sample` are space.
    """
    one, size, depth = np.float32(1), len(sums), best.shape[1]
    for query in range(len(counts)):
        found, least = 0, np.uint64(0)
        for first in range(0, len(lengths), size):
            count = min(size, len(lengths) - first)
            for term in range(offsets[query], offsets[query + 1]):
                place, end, weight = places[term], ends[term], weights[term]
                is_known = known[term]
                while place < end:
                    at = np.uint32(rows[place] - first)
                    if at >= count:
                        break
                    if is_known:
                        sums[at] += np.float64(kept[place])
                    else:
                        length = inverse[lengths[first + at]]
                        sums[at] += np.float64(weight - weight / (one + np.float32(frequencies[place]) * length))
                    place += 1
                places[term] = place
            low = least
            if found < depth:
                low = _guess_least(sums, count, first, depth, sample)
            above = _take_above(sums, count, first, low, taken, found)
            if above < depth and low > least:
                above = _take_above(sums, count, first, least, taken, found)
            found = above
            if found > depth:
                _put_best_first(taken, found, depth)
                found = depth
            if found == depth:
                least = _find_least(taken, found)
            for done in range(count):
                sums[done] = 0.0
        for place in range(found):
            best[query, place] = taken[place]
        for term in range(offsets[query], offsets[query + 1]):
            if places[term] != ends[term]:
                found = -1
        counts[query] = found


@njit(cache=True, nogil=True, _nrt=False)  # type: ignore[untyped-decorator]
def _key_of(sum: float, row: int) -> Any:
    return (np.uint64(np.float32(sum).view(np.uint32)) << np.uint64(32)) | np.uint64(0xFFFF_FFFF - row)


@njit(cache=True, nogil=True, _nrt=False)  # type: ignore[untyped-decorator]
def _take_above(sums: Any, count: int, first: int, low: Any, keys: Any, found: int) -> int:
    """Append the keys above `low` of documents with a sum; returns the number of keys then."""
    near = np.float64(np.uint32(low >> np.uint64(32)).view(np.float32)) * (1 - 1e-6)
    for at in range(count):
        if sums[at] > near:
            key = _key_of(sums[at], first + at)
            if key > low:
                keys[found] = key
                found += 1
    return found


@njit(cache=True, nogil=True, _nrt=False)  # type: ignore[untyped-decorator]
def _guess_least(sums: Any, count: int, first: int, depth: int, sample: Any) -> Any:
    """Guess a key below those of the best `depth` documents of a range from an even sample of it; 0 for no guess."""
    step = count // len(sample)
    if step < 2:
        return np.uint64(0)
    expected = depth / step
    wanted = int(expected + 3 * math.sqrt(expected) + 8)
    if wanted >= len(sample):
        return np.uint64(0)
    for place in range(len(sample)):
        at = place * step
        sample[place] = _key_of(sums[at], first + at) if sums[at] > 0 else 0
    _put_best_first(sample, len(sample), wanted)
    return _find_least(sample, wanted)


@njit(cache=True, nogil=True, _nrt=False)  # type: ignore[untyped-decorator]
def _find_least(keys: Any, count: int) -> Any:
    """Find the least of the first `count` keys."""
    least = keys[0]
    for place in range(1, count):
        least = min(least, keys[place])
    return least


@njit(cache=True, nogil=True, _nrt=False)  # type: ignore[untyped-decorator]
def _put_best_first(keys: Any, count: int, best: int) -> None:
    """Put the `best` greatest of the first `count` keys first, in any order (Hoare, 1961)."""
    low, high = 0, count - 1
    while low < high:
        pivot, left, right = keys[(low + high) >> 1], low, high
        while left <= right:
            while keys[left] > pivot:
                left += 1
            while keys[right] < pivot:
                right -= 1
            if left <= right:
                keys[left], keys[right] = keys[right], keys[left]
                left += 1
                right -= 1
        if best - 1 <= right:
            high = right
        elif best - 1 >= left:
            low = left
        else:
            break


def compile_loops() -> None:
    """Compile the loops of a search, once for all processes."""
    ends, one = np.array([0, 1], np.int64), np.zeros(1, np.uint8)
    postings = Postings(Path(), one, ends, ends, np.zeros(1, np.int32), one + np.uint8(1), one, 1, 1)
    for array in (one, ends, postings.rows, postings.frequencies):
        array.flags.writeable = False  # as mapped files are
    for _ in range(2):
        PostingsSearcher(postings).search(["1", "2"], [{"\0": 1.0}] * 2, 1)


if __name__ == "__main__":
    compile_loops()
