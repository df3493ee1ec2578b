"""Citations of segments: by words and embedding, or the closest; no limit costs a sentence its first citation."""

from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.fusion.closest import find_closest_segments
from keystone.generation.answers.cite import (
    LEAST_GAIN_SHARE,
    TopicSegments,
    choose_segments,
    cite_segments,
    limit_references,
    list_segments,
)
from keystone.generation.context.topic import TopicContext
from keystone.generation.rules.words import find_terms
from keystone.generation.types import MOST_CITATIONS, Answer, Sentence
from tests.support.structures.topic_segments import SEGMENTS, make_context, toward


@pytest.mark.parametrize(
    ("sentence", "near", "cited", "closest", "words"),
    [
        pytest.param("Bees dance.", 0, ["bees"], ["bees#0"], ["bees#0"], id="both agree"),
        pytest.param("The queen lays 2,000 eggs.", 3, ["bees"], ["bees#3"], ["bees#2"], id="words outweigh a cosine"),
        pytest.param("Nobody knows.", 1, ["bees"], ["bees#1"], ["bees#1"], id="without common words, the cosine"),
        pytest.param(
            "Drones leave and wax is honey.", 1, ["bees"], ["bees#1"], ["bees#1", "bees#3"], id="two say it together"
        ),
        pytest.param("Bees and ants seek food.", 0, ["ants", "bees"], ["ants#0", "bees#0"], ["ants#0", "bees#0"],
                     id="each document has one"),
        pytest.param("Soldiers guard.", 5, ["bees"], ["bees#0"], ["bees#0"], id="no other document is cited"),
        pytest.param("Bees dance.", 0, [], [], [], id="nothing is cited"),
    ],
)  # fmt: skip
def test_segments_are_chosen(sentence: str, near: int, cited: list[str], closest: list[str], words: list[str]) -> None:
    vectors = 0.5 * toward(near) + np.float32(0.2)
    answer = Answer("1", (Sentence(sentence, tuple(cited)),))
    for choice, expected in (("closest", closest), ("words", words)):
        found, dropped = cite_segments(answer, vectors, SEGMENTS, choice)  # type: ignore[arg-type]
        assert (list(found.sentences[0].citations), dropped) == (expected, [])


def test_a_document_about_something_else_is_not_cited() -> None:
    answer = Answer("1", (Sentence("Bees dance.", ("bees", "ants")),))
    found, dropped = cite_segments(answer, toward(0), SEGMENTS, "words")
    assert found.sentences == (Sentence("Bees dance.", ("bees#0",)),)
    assert [fallback.reason for fallback in dropped] == ["sentence 0 does not cite ants: cosine 0.00"]
    found, dropped = cite_segments(answer, toward(0), SEGMENTS, "words", measured=False)
    assert ([one.citations for one in found.sentences], dropped) == ([("bees#0", "ants#0")], [])


def test_only_segments_with_evidence_are_candidates() -> None:
    first, last = make_context().documents[0].segments[0].span, make_context().documents[0].segments[3].span
    assert list_segments(make_context(), [first, last]).ids == ("bees#0", "bees#3", "ants#0", "ants#1")


WORDS = st.lists(
    st.sampled_from("bees dance queen eggs drones wax honey ants walk guard nest x1 7".split()), max_size=8
)


@given(WORDS, st.lists(st.sampled_from(["bees", "ants"]), unique=True), st.integers(0, 7))
def test_a_choice_has_the_best_segment_of_each_document_and_then_gains(
    words: list[str], doc_ids: list[str], near: int
) -> None:
    terms = find_terms(" ".join(words))
    ratings = SEGMENTS.rate(terms, toward(near)[0])
    found = choose_segments(SEGMENTS, terms, ratings, doc_ids)
    assert len(found) == len(set(found)) <= max(MOST_CITATIONS, len(doc_ids))
    assert {SEGMENTS.doc_ids[place] for place in found} == set(doc_ids)
    for place, doc_id in zip(found, doc_ids, strict=False):
        assert ratings[place] == max(ratings[SEGMENTS.find_of([doc_id])])
    for number in range(len(doc_ids), len(found)):
        covered = set(chain.from_iterable(SEGMENTS.terms[place] for place in found[:number]))
        gain = SEGMENTS.weigh((terms & SEGMENTS.terms[found[number]]) - covered)
        assert gain >= LEAST_GAIN_SHARE * SEGMENTS.weigh(terms)


@given(st.lists(st.tuples(st.integers(0, 7), st.sampled_from([("bees",), ("ants", "bees")])), max_size=4))
def test_the_closest_segments_equal_a_plain_search(drawn: list[tuple[int, tuple[str, ...]]]) -> None:
    context = make_context()
    vectors = toward(*(near for near, _ in drawn)) + np.float32(0.2)
    answer = Answer("1", tuple(Sentence("S.", cited) for _, cited in drawn))
    found, _ = cite_segments(answer, vectors.reshape(-1, 8), list_segments(context), "closest")
    own = context.by_id
    for sentence, before, vector in zip(found.sentences, answer.sentences, vectors, strict=True):
        plain = [find_closest_segments(vector[None], own[doc_id][1])[0][0] for doc_id in before.citations]
        assert sentence.citations == tuple(f"{d}#{n}" for d, n in zip(before.citations, plain, strict=True))


@given(st.lists(st.lists(st.sampled_from("abcdef"), unique=True, max_size=3), max_size=6), st.integers(1, 7))
def test_a_limit_on_references_spares_first_citations(cited: list[list[str]], most: int) -> None:
    sentences = [Sentence("S.", tuple(own)) for own in cited]
    kept = limit_references(sentences, most)
    assert len({c for sentence in kept for c in sentence.citations}) <= most
    firsts = {own[0] for own in cited if own}
    if len(firsts) <= most:
        assert all(now.citations[:1] == tuple(own[:1]) for now, own in zip(kept, cited, strict=True))
    assert limit_references(sentences, None) == sentences


def test_segments_of_no_document_are_an_empty_list() -> None:
    empty = list_segments(TopicContext({}, {}, [], np.empty((0, 8), np.float32)))
    assert isinstance(empty, TopicSegments)
    assert empty.ids == ()
    assert empty.rate(frozenset({"bees"}), toward(0)[0]).tolist() == []
