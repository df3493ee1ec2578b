"""Impacts of the documents of an index: whole-number weights of the entries of a vocabulary, by an encoder.

The encoder is a learned sparse one. The impacts have the form of mapped postings, as in
`keystone.indexing.lucene.postings`. The terms are the tokens of the vocabulary, and an impact is where the number of
occurrences would be. In an index of passages, the greatest weight in any passage of a document counts, as SPLADE takes
the greatest weight at any token. Otherwise the beginning of a document is encoded, as far as the encoder's window goes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from keystone.indexing.embedder import Effort
from keystone.indexing.encoders.checkpoint import read_checkpoint
from keystone.indexing.encoders.sparse import SparseEncoder, Weighted, open_sparse_encoder, quantise
from keystone.indexing.errors import UserError
from keystone.indexing.index import ImpactSet
from keystone.indexing.io.staged import stage
from keystone.indexing.io.writing import reserve_array
from keystone.indexing.lucene.postings import frequency_type, open_postings, save_postings
from keystone.indexing.vectors.passages import Offsets, Passages
from keystone.indexing.vectors.shards import Texts, foretell

SHARD_TEXTS = 4_096
"""The texts that are encoded before their impacts are on disk."""

POSTING_BYTES = 5
"""The space of a posting in an index: its row, and an impact below 256."""

Impacts = tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.int32]]
"""Rows of documents in ascending order, entries of the vocabulary, and impacts above 0: int32[postings] each."""


Rows = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class OlderImpacts:
    """The impacts of an older index, some of whose documents a new index has, too."""

    folder: Path
    stayed: Rows
    """The row in the older index of each document that has not changed, or -1: int64[documents]."""


def write_impacts(
    texts: Texts, one: ImpactSet, folder: Path, effort: Effort, older: OlderImpacts | None = None
) -> None:
    """Encode all documents for a set of impacts into the folder `folder`, except what an earlier try has encoded.

    `texts` are the documents, or the passages of documents. Only those documents are encoded that the older impacts
    lack. `UserError` as from `open_sparse_encoder`.
    """
    offsets = _find_offsets(texts)
    shards = folder.with_name(f"{folder.name}.shards")
    files = encode_impacts(texts, one, shards, effort, np.flatnonzero(older.stayed < 0) if older else None)
    if older:
        stage(shards, "joined.npy", lambda path: np.save(path, _join_older(older, one, files)))
        files = [shards / "joined.npy"]
    stage(folder.parent, folder.name, lambda path: _invert(files, len(offsets) - 1, one, path))


def encode_impacts(texts: Texts, one: ImpactSet, shards: Path, effort: Effort, rows: Rows | None = None) -> list[Path]:
    """Encode the documents of some rows, or all, into files in the folder `shards`, and list these in order.

    Files that an earlier try has written stay. Before long work, `effort.foretell` receives what it will take.
    `UserError` as from `open_sparse_encoder`.
    """
    offsets = _find_offsets(texts)
    rows = np.arange(len(offsets) - 1) if rows is None else rows
    shards.mkdir(parents=True, exist_ok=True)
    parts = {f"{number:08d}.npy": own for number, own in enumerate(_list_shards(rows, offsets))}
    missing = [own for name, own in parts.items() if not (shards / f"{name}.json").exists()]

    def measure(places: Sequence[int]) -> int:
        own = np.concatenate(missing)[places]
        return POSTING_BYTES * len(_encode(one, texts, own, offsets, effort.threads)[0])

    step = f"Encoding documents by {one.label}"
    if missing:
        open_impact_encoder(one)  # a trial must not measure how long it loads
        foretell(step, sum(map(len, missing)), effort, measure)
    with effort.progress(step, len(rows)) as tick:
        for name, own in parts.items():
            stage(shards, name, lambda path: np.save(path, _encode(one, texts, own, offsets, effort.threads)))  # noqa: B023
            tick(len(own))
    return [shards / name for name in parts]


class RowImpacts:
    """Impacts by row from files of `encode_impacts`, for an engine that keeps numbers up to `most` exactly."""

    def __init__(self, files: Sequence[Path], most: int) -> None:
        self._most = most
        self._shards = [shard for file in files if (shard := np.load(file, mmap_mode="r")).size]
        self._lasts = np.array([shard[0, -1] for shard in self._shards], np.int64)

    def of(self, rows: range) -> list[dict[str, int]]:
        """Return the impacts of consecutive documents by the numbers of entries. `UserError` for one above `most`."""
        found: list[dict[str, int]] = [{} for _ in rows]
        first, last = np.searchsorted(self._lasts, [rows.start, rows.stop])
        for shard in self._shards[first : last + 1]:
            start, stop = np.searchsorted(shard[0], [rows.start, rows.stop])
            if (most := shard[2, start:stop].max(initial=0)) > self._most:
                raise UserError(f"impacts: found {most}, expected at most {self._most}, which the engine keeps exactly")
            for row, entry, impact in shard[:, start:stop].T.tolist():
                found[row - rows.start][str(entry)] = impact
        return found


def _find_offsets(texts: Texts) -> Offsets:
    """Find where the texts of each document begin, then the end: int64[documents + 1]."""
    return texts.offsets if isinstance(texts, Passages) else np.arange(len(texts) + 1)


def _list_shards(rows: Rows, offsets: Offsets) -> Iterator[Rows]:
    """List the rows of documents that are encoded together: those of at most `SHARD_TEXTS` texts, or one document."""
    ends = np.cumsum(offsets[rows + 1] - offsets[rows])
    start = 0
    while start < len(rows):
        first = int(ends[start - 1]) if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, first + SHARD_TEXTS, side="right")))
        yield rows[start:stop]
        start = stop


def _encode(one: ImpactSet, texts: Texts, rows: Rows, offsets: Offsets, threads: int) -> NDArray[np.int32]:
    places = np.concatenate([np.arange(offsets[row], offsets[row + 1]) for row in rows.tolist()])
    weighted = open_impact_encoder(one).encode_documents([text.contents for text in texts.get(places)], threads)
    return np.stack(join_weights(np.repeat(rows.astype(np.int32), offsets[rows + 1] - offsets[rows]), weighted))


def _join_older(older: OlderImpacts, one: ImpactSet, files: list[Path]) -> NDArray[np.int32]:
    """Join the older impacts of the documents that stayed, and new ones, in the order of rows: int32[3, postings]."""
    postings = open_postings(older.folder)
    there = np.full(len(postings.lengths), -1, np.int32)
    stayed = np.flatnonzero(older.stayed >= 0)
    there[older.stayed[stayed]] = stayed
    ends, names = postings.term_ends.tolist(), postings.terms.tobytes()
    place_of = {token: place for place, token in enumerate(open_impact_encoder(one).vocabulary)}
    terms = [place_of[names[first:last].decode()] for first, last in pairwise(ends)]
    entries = np.repeat(np.array(terms, np.int32), np.diff(postings.offsets))
    rows = there[postings.rows]
    known = np.stack([rows, entries, postings.frequencies.astype(np.int32)])[:, rows >= 0]
    joined = np.concatenate([known, *map(np.load, files)], axis=1)
    found: NDArray[np.int32] = joined[:, np.argsort(joined[0], kind="stable")]
    return found


def join_weights(owners: NDArray[np.int32], weighted: list[Weighted]) -> Impacts:
    """Join the weights of texts, whose owners are given in ascending order, into the greatest impacts of each owner."""
    rows = np.repeat(owners, [len(entries) for entries, _ in weighted])
    entries = np.concatenate([np.empty(0, np.int32), *(own for own, _ in weighted)])
    impacts = quantise(np.concatenate([np.empty(0, np.float32), *(own for _, own in weighted)]))
    order = np.lexsort((-impacts, entries, rows))
    rows, entries, impacts = rows[order], entries[order], impacts[order]
    is_first = np.ones(len(rows), dtype=bool)
    is_first[1:] = (np.diff(rows) != 0) | (np.diff(entries) != 0)
    kept = is_first & (impacts > 0)
    return rows[kept], entries[kept], impacts[kept]


def _invert(files: list[Path], documents: int, one: ImpactSet, folder: Path) -> None:
    """Write the postings of all shards, ordered by their terms."""
    vocabulary = [token.encode() for token in open_impact_encoder(one).vocabulary]
    ranks = np.empty(len(vocabulary), np.int64)
    ranks[np.array(sorted(range(len(vocabulary)), key=vocabulary.__getitem__), np.int64)] = np.arange(len(vocabulary))
    counts, most, total = np.zeros(len(vocabulary), np.int64), 1, 0
    for _, entries, impacts in map(np.load, files):
        counts += np.bincount(ranks[entries], minlength=len(vocabulary))
        most, total = max(most, int(impacts.max(initial=0))), total + int(impacts.sum(dtype=np.int64))
    ends = np.cumsum(counts)
    cursor = ends - counts
    folder.mkdir()
    rows_file = reserve_array(folder / "rows.npy", np.int32, (int(counts.sum()),))
    impacts_file = reserve_array(folder / "frequencies.npy", frequency_type(most), (len(rows_file),))
    for rows, entries, impacts in map(np.load, files):
        own = ranks[entries]
        order = np.argsort(own, kind="stable")
        found, firsts, numbers = np.unique(own[order], return_index=True, return_counts=True)
        places = np.repeat(cursor[found] - firsts, numbers) + np.arange(len(own))
        rows_file[places], impacts_file[places] = rows[order], impacts[order]
        cursor[found] += numbers
    rows_file.flush()
    impacts_file.flush()
    held = np.flatnonzero(counts)
    terms = [term for rank, term in enumerate(sorted(vocabulary)) if counts[rank]]
    save_postings(folder, terms, np.concatenate([[0], ends[held]]), np.zeros(documents, np.uint8), documents, total)


def settle_impacts(model: str) -> ImpactSet:
    """Describe a set of impacts by a model: its place, digest and prompts. `UserError` as from `read_checkpoint`."""
    checkpoint = read_checkpoint(str(Path(model).resolve()) if Path(model).is_dir() else model)
    return ImpactSet(checkpoint.name, checkpoint.compute_digest(), any(checkpoint.read_prompts()))


def open_impact_encoder(one: ImpactSet) -> SparseEncoder:
    """Open the encoder of a set of impacts. `UserError` if its checkpoint has changed since the index was built."""
    return open_sparse_encoder(one.model, one.weights, one.prompted)
