"""Reference assignment: the documents that a model names for a sentence, and the check of their subjects."""

import asyncio
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.generation.answers.cite import (
    LEAST_CITED_COSINE,
    assign_citations,
    drop_far_citations,
    read_supports,
    request_citations,
)
from keystone.generation.types import Answer, Failure, Fallback, Reply, Sentence
from keystone.indexing.errors import Unusable
from keystone.indexing.types import MINILM
from keystone.indexing.vectors.embed import load_embedder
from tests.support.indexes.small_corpus import CORPUS
from tests.support.models.answer_replies import PASSAGES, REPLY
from tests.support.models.scripted import Said, Scripted

BARE = (Sentence("Bees dance.", ()), Sentence("Ants walk.", ()))


def given_to(*sentences: tuple[Any, Any]) -> str:
    return json.dumps({"sentences": [{"id": number, "citations": citations} for number, citations in sentences]})


@pytest.mark.parametrize(
    ("reply", "found"),
    [
        pytest.param(given_to((0, [0]), (1, [1, 0])), [("bees",), ("ants", "bees")], id="numbers become ids"),
        pytest.param(given_to((1, [1])), [(), ("ants",)], id="a sentence that is not named has none"),
        pytest.param(given_to((0, []), (1, [])), [(), ()], id="nothing supports anything"),
        pytest.param(given_to((0, [0]), (0, [1, 0])), [("bees", "ants"), ()], id="named twice: united"),
        pytest.param(given_to((0, [7, -1, True, "b"]), (5, [0]), (None, [0])), [(), ()], id="unknown is dropped"),
        pytest.param(given_to(("0", ["0"]), (1.0, [1.0])), [("bees",), ("ants",)], id="numbers in other forms"),
        pytest.param('{"sentences": []}', [(), ()], id="an empty list"),
        pytest.param('{"sentences": [0]}', None, id="no objects"),
        pytest.param('{"answer": 1}', None, id="no list"),
        pytest.param("none", None, id="no JSON"),
    ],
)
def test_an_assignment_is_read_or_refused(reply: str, found: list[tuple[str, ...]] | None) -> None:
    if found is None:
        with pytest.raises(Unusable):
            read_supports(Reply(reply), BARE, PASSAGES)
    else:
        assert read_supports(Reply(reply), BARE, PASSAGES) == found


def test_references_are_requested_only_for_uncited_sentences() -> None:
    model = Scripted(lambda _: given_to((0, [1])))
    answers = [
        Answer("1", (Sentence("Bees dance.", ("bees",)), Sentence("Ants walk.", ()))),
        None,
        Answer("3", (Sentence("Bees dance.", ("bees",)),)),
    ]
    found, fallbacks = asyncio.run(assign_citations(model, answers, [PASSAGES] * 3))
    assert model.requests == [request_citations((Sentence("Ants walk.", ()),), PASSAGES)]
    assert found == [
        Answer("1", (Sentence("Bees dance.", ("bees",)), Sentence("Ants walk.", ("ants",)))),
        None,
        answers[2],
    ]
    assert fallbacks == []


def test_no_reference_is_sought_for_a_sentence_that_only_tells_a_gap() -> None:
    answer, model = Answer("1", (Sentence("The sources do not say when ants walk.", ()),)), Scripted(lambda _: "?")
    assert (asyncio.run(assign_citations(model, [answer], [PASSAGES])), model.requests) == (([answer], []), [])


def test_a_failure_leaves_the_sentence_uncited() -> None:
    answers = [Answer("1", (Sentence("Bees dance.", ("bees",)), *BARE))]
    found, fallbacks = asyncio.run(assign_citations(Scripted(lambda _: Failure("down")), answers, [PASSAGES]))
    assert found == answers
    assert fallbacks == [
        Fallback("1", "cite", "down"),
        Fallback("1", "cite", "2 of 3 sentences are left without citation"),
    ]


@given(REPLY, st.lists(st.sampled_from([(), ("bees",), ("other",)]), min_size=1, max_size=4))
def test_no_reply_changes_earlier_citations(reply: Said, citations: list[tuple[str, ...]]) -> None:
    answer = Answer("1", tuple(Sentence(f"S{n}.", cited) for n, cited in enumerate(citations)))
    (found,), _ = asyncio.run(assign_citations(Scripted(lambda _: reply), [answer], [PASSAGES]))
    assert found
    assert [sentence.text for sentence in found.sentences] == [sentence.text for sentence in answer.sentences]
    for before, after in zip(citations, found.sentences, strict=True):
        assert after.citations == before if before else set(after.citations) <= {"bees", "ants"}


def unit(*cosines: float) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Vectors whose inner product with (1, 0) is given."""
    return np.array([[cosine, np.sqrt(1 - cosine**2)] for cosine in cosines], dtype=np.float32)


def test_a_citation_is_dropped_if_no_segment_of_the_document_is_near() -> None:
    sentence = Sentence("S.", ("far", "one-near", "unknown", "empty"))
    segments = {
        "far": unit(-0.5, LEAST_CITED_COSINE - 0.01),
        "one-near": unit(0, LEAST_CITED_COSINE + 0.01),
        "empty": unit(0.5)[:0],
    }
    checked, dropped = drop_far_citations([sentence], unit(1), segments)
    assert checked == [Sentence("S.", ("one-near", "unknown", "empty"))]
    ((place, doc_id, cosine),) = dropped
    assert (place, doc_id) == (0, "far")
    assert cosine == pytest.approx(LEAST_CITED_COSINE - 0.01)


@given(
    st.lists(st.lists(st.sampled_from("abc"), unique=True), max_size=4),
    st.lists(st.lists(st.floats(-1, 1), max_size=3), min_size=3, max_size=3),
    st.floats(-1, 1),
)
def test_a_check_drops_and_adds_nothing_else(
    citations: list[list[str]], cosines: list[list[float]], near: float
) -> None:
    sentences = [Sentence("S.", tuple(cited)) for cited in citations]
    segments = {name: unit(*given).reshape(-1, 2) for name, given in zip("abc", cosines, strict=True)}
    checked, dropped = drop_far_citations(sentences, unit(*[1.0] * len(sentences)).reshape(-1, 2), segments, near)
    lost = {(place, doc_id) for place, doc_id, _ in dropped}
    assert all(cosine < near for _, _, cosine in dropped)
    for place, (before, after) in enumerate(zip(sentences, checked, strict=True)):
        assert after.text == before.text
        assert after.citations == tuple(c for c in before.citations if (place, c) not in lost)
    assert drop_far_citations(checked, unit(*[1.0] * len(sentences)).reshape(-1, 2), segments, near) == (checked, [])


@pytest.mark.slow
def test_the_threshold_separates_paraphrases_from_other_subjects() -> None:
    said = {
        "bees": "Workers of the hive show one another the way to blossoms by a dance.",
        "volcano": "Molten rock and fumes come out of openings in the ground.",
        "wasps": "Solitary hunters catch prey to nourish their larvae.",
    }
    embed = load_embedder(MINILM).embed
    segments = {name: embed([" ".join(CORPUS[name])]) for name in ("bees", "volcano", "wasps", "twin-a")}
    vectors = embed(list(said.values()))
    assert drop_far_citations([Sentence(text, (name,)) for name, text in said.items()], vectors, segments)[1] == []
    others = ["volcano", "bees", "twin-a"]
    _, dropped = drop_far_citations([Sentence("", (name,)) for name in others], vectors, segments)
    assert [doc_id for _, doc_id, _ in dropped] == others
