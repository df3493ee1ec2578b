"""The documents of a topic with only their closest segments: no passage comes from elsewhere."""

import pytest

from keystone.generation.context.fit_window import show_documents
from keystone.generation.context.topic import keep_closest_segments
from tests.support.structures.topic_segments import ANTS, BEES, make_context, toward


@pytest.mark.parametrize(
    ("near", "most", "expected"),
    [
        pytest.param((2, 5), 1, [BEES[2], ANTS[1]], id="one of each"),
        pytest.param((3, 1, 4), 2, [BEES[1], BEES[3], *ANTS], id="in the order of the text"),
        pytest.param((0,), 9, [*BEES, *ANTS], id="all, if there are no more"),
    ],
)
def test_only_the_closest_segments_of_each_document_are_evidence(
    near: tuple[int, ...], most: int, expected: list[str]
) -> None:
    context = keep_closest_segments(make_context(), toward(*near), most)
    documents = context.documents.values()
    assert [document.segment_text(segment) for document in documents for segment in document.segments] == expected
    assert list(map(len, context.segments.values())) == [len(document.segments) for document in documents]
    shown = "\n".join(item.text for item in show_documents(context, [0, 1], slice(None), 1000))
    assert [text for text in (*BEES, *ANTS) if text in shown] == [t for t in (*BEES, *ANTS) if t in expected]
