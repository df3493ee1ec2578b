"""The documents of a topic: their closest segments, those shown whole, and those in the language of the answer."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from keystone.generation.context.texts import count_tokens
from keystone.generation.context.topic import (
    LONG_TOKENS,
    TopicContext,
    keep_closest_segments,
    keep_language,
    show_documents,
    show_whole_documents,
    skip_blank,
)
from keystone.indexing.store import DocumentStore, build_store
from keystone.indexing.types import Document, Segment, Span
from tests.support.structures.topic_segments import ANTS, BEES, make_context, make_document, toward


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


LONG = [f"Swarm {number} of the bees leaves its hive in May to find a tree." for number in range(20)]


@pytest.mark.parametrize(
    ("rows", "spare", "expected"),
    [
        pytest.param([0, 1, 2], 10_000, [0, 1, 2], id="all fit"),
        pytest.param([1, 0, 2], 10_000, [1, 0, 2], id="in the order of the ranking"),
        pytest.param([0, 2, 1], 0, [0, 2], id="no room is left after the second"),
        pytest.param([0, 2, 1], 63, [0, 2], id="too little room for a part of the third"),
    ],
)
def test_the_first_documents_are_whole_while_there_is_room(rows: list[int], spare: int, expected: list[int]) -> None:
    context = make_context((make_document("swarms", LONG),))
    tokens = spare + sum(count_tokens(context.documents[row].contents) for row in expected)
    shown = show_whole_documents(context, rows, tokens)
    assert [item.text for item in shown] == [context.documents[row].text for row in expected]


def test_the_first_document_without_room_is_shown_by_its_best_segments_and_the_last_of_the_list() -> None:
    context = make_context((make_document("swarms", LONG),))
    first, *rest = show_whole_documents(context, [0, 2, 1], count_tokens(context.documents[0].contents) + 100)
    assert first.text == context.documents[0].text
    assert {item.span.doc_id for item in rest} == {"swarms"}
    assert 0 < sum(count_tokens(item.text) for item in rest) <= 100
    assert all(item.text in context.documents[2].text for item in rest)


BOOKS = [make_document(name, [f"{text} Part {n} of {name}." for n, text in enumerate(LONG * 8)]) for name in ("a", "b")]


@pytest.mark.parametrize(("spare", "whole"), [(0, ["a", "b"]), (-10, ["a"]), (-1850, [])])
def test_room_that_is_left_goes_to_the_longer_documents_in_their_order(spare: int, whole: list[str]) -> None:
    context = make_context(BOOKS)
    costs = {row: count_tokens(document.contents) for row, document in context.documents.items()}
    assert costs[2] > LONG_TOKENS
    tokens = sum(costs.values()) + spare
    shown = show_whole_documents(context, [2, 0, 3, 1], tokens)
    assert list(dict.fromkeys(item.span.doc_id for item in shown)) == ["a", "bees", "b", "ants"]
    texts = {document.text for document in BOOKS}
    assert [item.span.doc_id for item in shown if item.text in texts] == whole
    assert 0.8 * tokens < sum(count_tokens(item.text) for item in shown) <= tokens


def test_a_segment_that_is_too_long_is_cut_after_a_sentence() -> None:
    document = make_document("swarms", LONG)
    document = replace(document, segments=(Segment("swarms#0", Span("swarms", 0, len(document.text))),))
    (first,) = show_documents(make_context((document,)), [2], slice(None), 100)
    assert first.text == " ".join(LONG[:6])
    (first,) = show_documents(make_context((make_document("swarms", ["Swarm " * 99]),)), [2], slice(None), 100)
    assert 90 < count_tokens(first.text) <= 100


@pytest.mark.parametrize(
    ("rows", "number", "expected"),
    [
        pytest.param([0, 1, 2, 3], 2, [0, 3], id="blank ones are skipped until there are enough"),
        pytest.param([3, 0, 1, 2], 2, [3, 0, 1, 2], id="later ones are not looked at"),
        pytest.param([1, 2], 2, [], id="none has a text"),
        pytest.param([], 2, [], id="none"),
    ],
)
def test_documents_without_text_are_skipped(tmp_path: Path, rows: list[int], number: int, expected: list[int]) -> None:
    texts = {"a": "x", "b": "", "c": " \n", "d": "y"}
    build_store((Document(name, text, "Title") for name, text in texts.items()), tmp_path / "store")
    assert skip_blank(DocumentStore(tmp_path / "store"), rows, number) == expected


TEXTS = (
    "The law was passed in May, and it is the first of its kind.",
    "\u0417\u0430\u043a\u043e\u043d \u043f\u0440\u0438\u043d\u044f\u0442 \u0432 \u043c\u0430\u0435.",
    "La ley que se aprob\u00f3 en mayo es la primera de su tipo, y no es la \u00fanica.",
    "9-1-1",
)


@pytest.mark.parametrize(
    ("language", "rows"), [("English", [0, 3]), ("Russian", [1, 3]), ("Spanish", [2, 3]), ("", [0, 1, 2, 3])]
)
def test_documents_in_other_languages_are_left_out(language: str, rows: list[int]) -> None:
    vectors = np.zeros((1, 2), np.float32)
    documents = {row: Document(f"d{row}", text) for row, text in enumerate(TEXTS)}
    kept = keep_language(TopicContext(documents, dict.fromkeys(documents, vectors), (), vectors), language)
    assert list(kept.documents) == list(kept.segments) == rows
