"""The ranking of segments: it equals a plain implementation, and each document has a limited number."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.fusion.closest import choose_closest_segments, find_closest_segments, rank_segments
from keystone.indexing.embedder import Vectors, round_to_grid

VECTOR = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=2, max_size=2)
VECTORS = st.lists(VECTOR, min_size=1, max_size=5)


def pack(drawn: Sequence[Sequence[float]]) -> Vectors:
    return round_to_grid(np.array(drawn, dtype=np.float32))


def rank_plainly(texts: Vectors, documents: Sequence[Vectors], most: int) -> list[tuple[int, int, float]]:
    """Rank as the definition says, with loops over texts, documents and segments."""
    close = {
        (place, number): max(float(text @ segment) for text in texts)
        for place, own in enumerate(documents)
        for number, segment in enumerate(own)
    }
    kept: list[tuple[int, int]] = []
    for place in range(len(documents)):
        own_pairs = [pair for pair in close if pair[0] == place]
        kept += sorted(own_pairs, key=lambda pair: (-close[pair], pair))[:most]
    near = sorted(kept, key=lambda pair: (-close[pair], kept.index(pair)))
    ranks = {pair: (kept.index(pair) + 1, near.index(pair) + 1) for pair in kept}
    score = {pair: 1 / (60 + ranks[pair][0]) + 1 / (60 + ranks[pair][1]) for pair in kept}
    order = sorted(kept, key=lambda pair: (-score[pair], min(ranks[pair]), ranks[pair]))
    return [(*pair, score[pair]) for pair in order]


@given(VECTORS, st.lists(VECTORS, max_size=5), st.integers(1, 6))
def test_the_ranking_equals_the_plain_one_with_at_most_so_many_of_a_document(
    texts: list[list[float]], documents: list[list[list[float]]], most: int
) -> None:
    own = [pack(one) for one in documents]
    found = rank_segments(pack(texts), own, most)
    assert found == rank_plainly(pack(texts), own, most)
    counts = [sum(place == document for place, _, _ in found) for document in range(len(own))]
    assert counts == [min(most, len(one)) for one in own]


@pytest.mark.parametrize(
    ("most", "expected"),
    [
        pytest.param(1, [(0, 1), (1, 0)], id="one of each: documents in order"),
        pytest.param(2, [(0, 1), (1, 0), (0, 0), (1, 1)], id="close segments of the second document rise"),
    ],
)
def test_documents_and_cosines_decide_together(most: int, expected: list[tuple[int, int]]) -> None:
    first, second = ([[cosine, math.sqrt(1 - cosine**2)] for cosine in own] for own in ((0.1, 0.9), (0.8, 0.5)))
    found = rank_segments(pack([[1, 0]]), [pack(first), pack(second)], most)
    assert [(place, number) for place, number, _ in found] == expected


@given(VECTOR, VECTORS)
def test_the_first_closest_segment_is_that_of_the_paper(text: list[float], segments: list[list[float]]) -> None:
    one, own = pack([text]), pack(segments)
    assert choose_closest_segments(one, own, 1) == find_closest_segments(one, own)[0].tolist()
