"""BM25 over segments, without an index, beside its formula."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from keystone.indexing.types import WORDS
from keystone.indexing.vectors.embed import embed_queries
from keystone.retrieval.bm25 import weigh_segments

NOUNS = ["bee", "flower", "river", "glacier", "queen", "colony"]
TEXTS = st.lists(st.sampled_from(NOUNS), max_size=8).map(" ".join)


def score(text: str, segment: str, segments: list[str], k1: float, b: float) -> float:
    """The share of the highest possible score of BM25 for a text, by the definition."""
    mean = sum(len(one.split()) for one in segments) / len(segments) or 1
    found = most = 0.0
    for word in text.split():
        holding = sum(word in one.split() for one in segments)
        weight = math.log(1 + (len(segments) - holding + 0.5) / (holding + 0.5))
        count = segment.split().count(word)
        found += weight * count / (count + k1 * (1 - b + b * len(segment.split()) / mean)) if count else 0
        most += weight
    return found / most if most else 0.0


@given(
    st.lists(TEXTS, min_size=1, max_size=3),
    st.lists(st.lists(TEXTS, min_size=1, max_size=3), min_size=1, max_size=3),
    st.floats(0.1, 3),
    st.floats(0, 1),
)
def test_inner_products_are_scores_of_bm25(texts: list[str], documents: list[list[str]], k1: float, b: float) -> None:
    vectors, found = weigh_segments(texts, documents, k1, b)
    segments = [one for own in documents for one in own]
    wanted = [[score(text, one, segments, k1, b) for one in segments] for text in texts]
    products = vectors @ np.concatenate(found).T
    np.testing.assert_allclose(products, wanted, atol=0.01)
    backwards = vectors[:, ::-1] @ np.concatenate(found)[:, ::-1].T
    assert products.tolist() == backwards.tolist()


@given(TEXTS, TEXTS)
def test_vectors_of_words_compare_texts_by_their_words(one: str, other: str) -> None:
    vectors = embed_queries(WORDS, [one, other, f"The {one.upper()}, and so on"])
    assert (vectors[0] @ vectors[1] > 0.1) == bool(set(one.split()) & set(other.split()))
    assert vectors[0].tolist() == vectors[2].tolist()
    assert not one or vectors[0] @ vectors[0] > 0.97
