"""The graded part of a document: its best segments, in order, without repetition, within the limit."""

from itertools import pairwise
from time import process_time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.generation.context.blocks import GAP_MARK
from keystone.generation.context.texts import count_tokens
from keystone.generation.context.topic import choose_best_spans, join_spans, make_passage
from keystone.indexing.corpora.segments import cut_segments
from keystone.indexing.types import Document, Segment, Span, merge_spans

TEXT = "".join(f"{letter * 9} " for letter in "abcdefgh")


def _document(*spans: tuple[int, int], title: str = "") -> Document:
    return Document(
        "d", TEXT, title, segments=tuple(Segment(f"d#{i}", Span("d", *span)) for i, span in enumerate(spans))
    )


APART = _document((0, 10), (20, 30), (40, 50), (60, 70))
SLIDING = _document((0, 20), (10, 30), (20, 40), (30, 50), (40, 60))


@pytest.mark.parametrize(
    ("document", "cosines", "top", "limit", "expected"),
    [
        pytest.param(APART, [0.1, 0.9, 0.5, 0.8], 1, 2000, [(20, 30)], id="the best one"),
        pytest.param(APART, [0.1, 0.9, 0.5, 0.8], 3, 2000, [(20, 30), (40, 50), (60, 70)], id="in document order"),
        pytest.param(APART, [0.1, 0.1, 0.1, 0.1], 2, 2000, [(0, 10), (20, 30)], id="ties go to the earlier"),
        pytest.param(SLIDING, [0.1, 0.9, 0.8, 0.1, 0.1], 2, 2000, [(10, 40)], id="overlapping ones are merged"),
        pytest.param(SLIDING, [0.9, 0.1, 0.8, 0.1, 0.1], 2, 2000, [(0, 40)], id="touching ones are merged"),
        pytest.param(SLIDING, [0.9, 0.5, 0.1, 0.1, 0.8], 3, 9, [(0, 30)], id="a segment that does not fit is left out"),
        pytest.param(APART, [0.1, 0.9, 0.5, 0.8], 3, 2, [(20, 28)], id="the best is cut if it alone is too long"),
        pytest.param(
            APART, [[0.9, 0, 0, 0.1], [0, 0, 0.8, 0.1]], 1, 2000, [(0, 10), (40, 50)], id="best of each query"
        ),
        pytest.param(APART, [[0.9, 0.8, 0, 0], [0, 0, 0.1, 0.05]], 2, 7, [(0, 10), (40, 50)], id="all queries' first"),
        pytest.param(APART, [0.1, 0.9, 0.5, 0.8], None, 2000, [(0, 80)], id="the whole document"),
        pytest.param(APART, [0.1, 0.9, 0.5, 0.8], None, 5, [(0, 20)], id="the document's beginning"),
        pytest.param(APART, [0.1, 0.9, 0.5, 0.8], 1, None, [(20, 30)], id="without a limit"),
        pytest.param(_document(), [], 3, 2000, [(0, 80)], id="a document without segments"),
    ],
)
def test_a_passage_holds_the_best_segments(
    document: Document, cosines: object, top: int | None, limit: int | None, expected: list[tuple[int, int]]
) -> None:
    text = make_passage(document, np.array(cosines, np.float32), top, limit)
    assert text == GAP_MARK.join(TEXT[start:end] for start, end in expected)


def test_ties_among_many_segments_go_to_the_earlier() -> None:
    document = _document(*[(at, at + 2) for at in range(0, 80, 2)])
    assert make_passage(document, np.tile(np.array([0, 1], np.float32), 20)) == GAP_MARK.join(
        TEXT[at : at + 2] for at in (2, 6, 10)
    )


def test_the_title_comes_first() -> None:
    assert make_passage(_document((0, 10), title="A title"), np.ones(1, np.float32)) == f"A title\n{TEXT[:10]}"


def test_cosines_of_another_document_are_an_error() -> None:
    with pytest.raises(ValueError, match="3 cosines for 4 segments of d"):
        make_passage(APART, np.ones(3, np.float32))


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)).map(lambda pair: (pair[0], sum(pair)))))
def test_merged_spans_cover_the_same_characters_once(spans: list[tuple[int, int]]) -> None:
    found = merge_spans(spans)
    assert {at for span in spans for at in range(*span)} == {at for span in found for at in range(*span)}
    assert all(end < start for (_, end), (start, _) in pairwise(found))


SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)).map(lambda pair: (pair[0], sum(pair))), max_size=12)


@given(
    st.permutations("abc \u4e2d\u6587\u00e9 d" * 9),
    SPANS,
    st.none() | st.integers(0, 60),
    st.sampled_from(["", "T", "\u4e2d"]),
)
def test_stretches_are_those_that_fit_one_after_the_other(
    letters: list[str], spans: list[tuple[int, int]], limit: int | None, title: str
) -> None:
    cut = tuple(Segment(f"d#{number}", Span("d", *span)) for number, span in enumerate(spans))
    document = Document("d", "".join(letters), title, segments=cut)
    expected: list[tuple[int, int]] = []
    for span in spans:
        more = merge_spans([*expected, span])
        if not expected or limit is None or count_tokens(join_spans(document, more)) <= limit:
            expected = more
    assert choose_best_spans(document, -np.arange(len(spans), dtype=np.float32), None, limit) == expected


def test_the_time_for_overlapping_segments_does_not_grow_with_their_square() -> None:
    text = "A sentence of some words stands here. " * 20_000
    count = 20_000
    cut = tuple(
        Segment(f"d#{n}", Span("d", 7 * n, min(len(text), 7 * n + 500 + 100_000 * (n % 9 == 0)))) for n in range(count)
    )
    cosines = np.random.default_rng(1).random((3, count), np.float32)
    started = process_time()
    assert choose_best_spans(Document("d", text, segments=cut), cosines, None, 8_000)
    assert process_time() - started < 60  # it takes half a second; a text anew for each segment, an hour


@given(st.data(), st.integers(1, 40), st.integers(1, 4), st.integers(1, 5), st.integers(1, 300))
def test_passages_keep_the_limit_and_hold_the_best_segment(
    data: st.DataObject, sentences: int, queries: int, top: int, limit: int
) -> None:
    document = cut_segments(Document("d", " ".join(f"Sentence number {i:02} says this." for i in range(sentences))))
    shape = queries, len(document.segments)
    values = data.draw(
        st.lists(st.sampled_from([-1, 0, 0.5, 1]), min_size=shape[0] * shape[1], max_size=shape[0] * shape[1])
    )
    cosines = np.array(values, np.float32).reshape(shape)
    text = make_passage(document, cosines, top, limit)
    assert count_tokens(text) <= limit
    assert all(piece in document.text for piece in text.split(GAP_MARK))
    numbers = [word for word in text.split() if word.isdigit() and len(word) == 2]
    assert numbers == sorted(set(numbers))
    if queries == 1:
        best = document.segment_text(document.segments[int(cosines[0].argmax())])
        assert best in text or text in best
    assert make_passage(document, np.vstack([cosines, cosines]), top, limit) == text
