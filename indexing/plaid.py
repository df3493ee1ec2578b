"""PLAID indexes of the tokens' vectors of all documents, by fast-plaid: late interaction as a first stage.

Each vector is kept as the number of its centroid and a residual of 4 bits a number (Santhanam et al., 2022, "PLAID").
fast-plaid compresses and searches. Here vectors are encoded, and its numbers of texts become rows of documents. In an
index of passages, each passage is a text. Everything runs on the CPU, where equal vectors give equal bytes.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from keystone.indexing.embedder import Effort
from keystone.indexing.encoders.checkpoint import read_checkpoint, refuse
from keystone.indexing.encoders.late import LateEncoder, Matrix, find_prompts, is_late, name_lengths, open_late_encoder
from keystone.indexing.errors import MissingPackage, UserError
from keystone.indexing.index import Index, PlaidSet, of_one_index
from keystone.indexing.io.staged import stage
from keystone.indexing.io.system import allow_open_files
from keystone.indexing.types import Tick, chunks
from keystone.indexing.vectors.shards import Texts, foretell

SHARD_TEXTS = 1_024
"""The texts that are encoded before their vectors are on disk, float16[tokens, dimension] of all of them."""
TOKEN_BYTES = 12
"""The space of a token in an index beside its residual: its centroid, and its text in the list of the centroid."""
PROBES = 8
"""The centroids closest to each vector of a query whose texts are candidates."""
LEAST_SCORED = 1_024
"""At least so many candidates are scored by their residuals, as fast-plaid does by default."""
LEAST_TOKENS = 10
"""fast-plaid tries its residuals on a twentieth of the tokens, which must be at least one."""

Hits = list[tuple[int, float]]
"""The texts that a query finds, and their sums of greatest products, best first."""


def settle_plaid(model: str) -> PlaidSet:
    """Describe a PLAID index by its model of late interaction. `UserError` for another model, and as `import_plaid`."""
    import_plaid()
    checkpoint = read_checkpoint(str(Path(model).resolve()) if Path(model).is_dir() else model)
    if not is_late(checkpoint):
        raise refuse(checkpoint, "no checkpoint of late interaction", "PyLate's or ColBERT's layout, or BGE-M3")
    is_prompted = find_prompts(checkpoint) is not None
    return PlaidSet(checkpoint.name, checkpoint.compute_digest(), is_prompted, name_lengths(checkpoint))


def import_plaid(threads: int = 1) -> Any:
    """Import fast-plaid's searches, and give PyTorch these threads. `MissingPackage` if it is not installed."""
    try:
        import torch
        from fast_plaid.search import fast_plaid
    except ImportError as error:
        raise MissingPackage("fast-plaid is needed for PLAID: pip install 'keystone-rag[plaid]'") from error
    torch.set_num_threads(threads)
    return fast_plaid


def open_plaid_encoder(one: PlaidSet) -> LateEncoder:
    """Open the encoder of a PLAID index. `UserError` if its checkpoint has changed since the index was built."""
    encoder = open_late_encoder(one.model, one.weights, one.prompted, older=not one.lengths)
    if encoder.dimension % 8:
        raise UserError(f"{one.model}: found vectors of {encoder.dimension} numbers, expected a multiple of 8")
    return encoder


def write_plaid(texts: Texts, one: PlaidSet, folder: Path, effort: Effort) -> None:
    """Encode texts for a PLAID index, except those of an earlier try.

    `UserError` for too few tokens; errors also as from `import_plaid` and `open_plaid_encoder`.
    """
    import_plaid()
    encoder, shards = open_plaid_encoder(one), folder.with_name(f"{folder.name}.shards")
    shards.mkdir(parents=True, exist_ok=True)
    parts = {f"{rows.start:08d}.npy": rows for rows in chunks(range(len(texts)), SHARD_TEXTS)}
    missing = [rows for name, rows in parts.items() if not (shards / f"{name}.json").exists()]

    def encode(places: Sequence[int]) -> list[Matrix]:
        return encoder.encode_passages([text.contents for text in texts.get(places)], effort.threads)

    def measure(places: Sequence[int]) -> int:
        rows: list[int] = np.concatenate(missing)[places].tolist()
        tokens = sum(len(vectors) for vectors in encode(rows))
        return tokens * (encoder.dimension // 2 + TOKEN_BYTES)

    step, counts = f"Encoding tokens by {one.label}", list[int]()
    if missing:
        foretell(step, sum(map(len, missing)), effort, measure)
    with effort.progress(step, len(texts)) as tick:
        for name, rows in parts.items():
            counts += stage(shards, name, lambda path: save_vectors(path, encode(rows), one.model))  # noqa: B023
            tick(len(rows))
    if sum(counts) < LEAST_TOKENS:
        raise UserError(f"{one.model}: found {sum(counts)} tokens in all documents, expected {LEAST_TOKENS} for PLAID")
    with effort.progress("Compressing tokens' vectors", None):
        files = [shards / name for name in parts]
        stage(folder.parent, folder.name, lambda path: _compress(files, counts, path, effort.threads))


def save_vectors(path: Path, texts: Sequence[Matrix], model: str) -> list[int]:
    """Save vectors as float16[tokens, dimension]; returns each text's tokens. `UserError` unless all are finite."""
    vectors = np.concatenate(texts)
    if not np.isfinite(vectors).all():
        raise UserError(f"{model}: found vectors that are not finite, expected numbers: fetch the checkpoint again")
    np.save(path, vectors.astype(np.float16))
    return list(map(len, texts))


def _compress(files: Sequence[Path], counts: Sequence[int], folder: Path, threads: int) -> None:
    """Write the PLAID index of texts, whose vectors are mapped from files and have these counts."""
    plaid = import_plaid(threads)
    import torch

    allow_open_files(len(files))
    tokens = (torch.from_numpy(np.load(file, mmap_mode="c")) for file in files)
    sizes = zip(tokens, chunks(counts, SHARD_TEXTS), strict=True)
    texts = [text for own, size in sizes for text in own.split(size)]
    with plaid.FastPlaid(str(folder), device="cpu") as made:
        made.create(texts, start_from_scratch=0, use_triton_kmeans=False)  # 0: it keeps no copy of the vectors
        made.freeze()


@of_one_index
def open_plaid(index: Index, name: str) -> Any:
    """Open a PLAID index, or take the open one. `UserError` if it is missing or damaged; also as `import_plaid`."""
    folder, plaid = index.plaid_of(name), import_plaid()

    def load() -> Any:
        try:
            found = plaid.FastPlaid(str(folder), device="cpu").indices["cpu"]
        except (OSError, ValueError, KeyError, RuntimeError) as error:
            raise UserError(f"{folder}: damaged: drop the set and add it again: {error}") from error
        if found is None:
            raise UserError(f"{folder}: damaged: drop the set and add it again")
        return found

    return index.take(("plaid", name), load)


def search_plaid(opened: Any, queries: Sequence[Matrix], depth: int, threads: int, tick: Tick) -> list[Hits]:
    """Find at most `depth` texts for the vectors of each query."""
    plaid = import_plaid()
    import torch

    def search(query: Matrix) -> Hits:
        packed, lengths = plaid.pack_queries([torch.from_numpy(query)])
        found: list[Hits] = plaid.search_on_device(
            device="cpu", queries_embeddings=packed, batch_size="auto", n_full_scores=4 * max(depth, LEAST_SCORED),
            top_k=depth, n_ivf_probe=PROBES, search_memory_fraction=0.5, index_object=opened, show_progress=False,
            query_lengths=lengths,
        )  # fmt: skip
        tick(1)
        return found[0]

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(search, queries))
