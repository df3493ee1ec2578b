"""One answer from many sub-answers: no edit moves a citation, the limit is met, and `edit` has its limits."""

import asyncio
import json
import re
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.generation.answers.sentences import Passage, count_words
from keystone.generation.answers.synthesise import (
    SynthesisTask,
    edit,
    group_repeats,
    join_sub_answers,
    resynthesise,
    select_edit,
    select_sentences,
)
from keystone.generation.types import Answer, Failure, Fallback, Request, Sentence
from keystone.indexing.embedder import Vectors
from tests.support.models.answer_replies import LINE, REPLY, make_reply, make_rewritten_reply
from tests.support.models.scripted import Said, Scripted, by_purpose

WORDS = (350, 400)
LISTED = re.compile(r"^\[?\s?(\{\"id\": .*\})[,\]]", re.MULTILINE)


def sub_answer(query: int, sentences: int, words: int) -> Answer:
    text = " ".join(["word"] * (words - 1))
    return Answer("1", tuple(Sentence(f"{text} {query}/{n}.", (f"d{query}", f"e{n}")) for n in range(sentences)))


def synthesis(sub_answers: list[Answer | None], words: tuple[int, int] = WORDS) -> SynthesisTask:
    return SynthesisTask("1", "N?", tuple(f"Q{n}?" for n in range(len(sub_answers))), tuple(sub_answers), words)


SEVEN = synthesis([sub_answer(query, 18, 21) for query in range(7)])


def vectors(task: SynthesisTask) -> tuple[Vectors, Vectors]:
    """Each sentence is a direction of its own that leans on its query."""
    sentences = [q for q, answer in enumerate(task.sub_answers) if answer for _ in answer.sentences]
    size = len(task.queries) + len(sentences)
    own = np.eye(size, dtype=np.float32)[len(task.queries) :] * np.float32(0.8)
    own[np.arange(len(sentences)), sentences] = 0.6
    return np.eye(size, dtype=np.float32)[: len(task.queries)], own


def editor(rewrite: Callable[[str], str]) -> Callable[[Request], str]:
    """Make a model that rewrites each listed sentence, and answers all other requests."""

    def reply(request: Request) -> str:
        rows = [json.loads(row) for row in LISTED.findall(request.messages[1][1])]
        return make_rewritten_reply(*((row["id"], rewrite(row["text"])) for row in rows))

    return reply


def six_words(text: str) -> str:
    return " ".join(text.split()[-6:])


def test_edit_cannot_meet_its_limit_on_seven_sub_answers() -> None:
    """A sentence that states a fact has at least six words. 126 such sentences have 756 words, and 400 are allowed."""
    assert (len(join_sub_answers(SEVEN)), count_words(join_sub_answers(SEVEN))) == (126, 2646)
    answer, fallbacks = asyncio.run(edit(Scripted(editor(six_words)), SEVEN))
    assert fallbacks == [
        Fallback("1", "edit", "756 words in 126 sentences, at most 400 wanted: cut after sentence 66, 396 words")
    ]
    assert answer
    assert {sentence.citations[0] for sentence in answer.sentences} == {"d0", "d1", "d2", "d3"}


def test_select_edit_answers_all_seven_queries_within_the_limit() -> None:
    queries, sentences = vectors(SEVEN)
    answer, fallbacks = asyncio.run(select_edit(Scripted(editor(str.upper)), SEVEN, queries, sentences))
    assert answer
    assert 350 <= count_words(answer.sentences) <= 400
    assert [sentence.citations[0] for sentence in answer.sentences] == sorted(s.citations[0] for s in answer.sentences)
    assert {sentence.citations[0] for sentence in answer.sentences} == {f"d{query}" for query in range(7)}
    assert all(sentence.text.isupper() for sentence in answer.sentences)
    assert fallbacks == []


def test_a_repeated_sentence_appears_once_with_all_citations() -> None:
    same = [Answer("1", (Sentence(f"Text {n}.", cited),)) for n, cited in enumerate([("a", "b"), ("c",), ("b", "d")])]
    task = synthesis([same[0], None, same[1], same[2]])
    toward = np.array([[1, 0], [0, 1], [1, 0]], dtype=np.float32)
    chosen = select_sentences(task, np.zeros((4, 2), dtype=np.float32), toward)
    assert chosen == (Sentence("Text 0.", ("a", "b", "d")), Sentence("Text 1.", ("c",)))


@pytest.mark.parametrize(
    ("first", "second", "cosine", "same"),
    [
        ("The copy2 function copies data and metadata.", "copy2 copies metadata and data.", 0.9, True),
        ("The copy2 function copies data and metadata.", "copy2 copies metadata and data.", 0.7, False),
        ("Bees dance in the hive.", "Ants walk to food.", 0.96, True),
        ("Bees dance in the hive.", "Bees dance for 3 minutes in the hive.", 0.9, False),
        ("Bees dance in the hive.", "Bees die in the cold.", 0.9, False),
        ("So it is.", "It is so.", 0.9, False),
    ],
)
def test_sentences_say_the_same_by_words_and_embedding(first: str, second: str, cosine: float, same: bool) -> None:
    pair = np.array([[1, 0], [cosine, np.sqrt(1 - cosine**2)]], dtype=np.float32)
    assert group_repeats([first, second], pair) == ([[0, 1]] if same else [[0], [1]])


def test_sentences_stand_in_the_order_of_the_sub_answers() -> None:
    """A sentence that is closer to another query stays with the query that it was written for."""
    task = synthesis([sub_answer(0, 1, 5), sub_answer(1, 1, 5)])
    queries, sentences = vectors(task)
    assert select_sentences(task, queries, sentences[::-1]) == join_sub_answers(task)


def test_the_first_sentences_of_a_sub_answer_come_before_later_ones_that_are_nearer_to_the_query() -> None:
    task = synthesis([sub_answer(query, 6, 10) for query in range(3)], words=(1, 90))
    queries, sentences = vectors(task)
    sentences[np.arange(18), np.repeat(range(3), 6)] = [0.3, 0.3, 0.3, 0.52, 0.52, 0.52] * 3
    chosen = select_sentences(task, queries, sentences)
    assert Counter(sentence.citations[1] for sentence in chosen) == {"e0": 3, "e1": 3, "e2": 3}


def test_a_sentence_near_no_query_still_serves_its_own_query() -> None:
    task = synthesis([sub_answer(0, 1, 5), sub_answer(1, 1, 5)])
    queries, _ = vectors(task)
    assert select_sentences(task, queries, np.eye(4, dtype=np.float32)[2:]) == join_sub_answers(task)


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        pytest.param(Failure("down"), "down", id="no reply"),
        pytest.param("{}", 'it holds no list "sentences"', id="no list"),
        pytest.param(make_rewritten_reply((0, "Shorter.")), "1 of 2 sentences are missing", id="a sentence is missing"),
        pytest.param(
            make_rewritten_reply((0, "In 1999."), (1, "B.")), "sentence 0 did not hold the number 1999", id="a number"
        ),
        pytest.param(
            make_rewritten_reply((0, "x " * 12), (1, "B.")), "it has 13 words, wanted are 5 to 12", id="too long"
        ),
        pytest.param(make_rewritten_reply((0, "A."), (1, "B.")), "it has 2 words, wanted are 5 to 12", id="too short"),
    ],
)
def test_an_edit_that_fails_leaves_the_chosen_sentences(reply: str | Failure, reason: str) -> None:
    task = synthesis([sub_answer(0, 1, 5), sub_answer(1, 1, 5)], (5, 12))
    queries, sentences = vectors(task)
    answer, fallbacks = asyncio.run(select_edit(Scripted(lambda _: reply), task, queries, sentences))
    assert answer == Answer("1", join_sub_answers(task))
    assert fallbacks == [Fallback("1", "edit", f"sentences left unedited: {reason}")]


def test_without_sub_answers_the_model_is_not_asked() -> None:
    task, model = synthesis([None, None]), Scripted(lambda _: make_reply())
    queries, sentences = np.eye(2, dtype=np.float32), np.empty((0, 2), dtype=np.float32)
    results = [
        asyncio.run(edit(model, task)),
        asyncio.run(select_edit(model, task, queries, sentences)),
        asyncio.run(resynthesise(model, task, [])),
    ]
    assert [answer for answer, _ in results] == [None] * 3
    assert [[fallback.step for fallback in fallbacks] for _, fallbacks in results] == [
        ["edit"],
        ["select_edit"],
        ["resynthesise"],
    ]
    assert model.requests == []


def test_resynthesise_writes_anew_and_assigns_documents_that_the_sub_answers_cite() -> None:
    task = synthesis([sub_answer(0, 1, 5), None, sub_answer(2, 1, 5)], (2, 6))
    passages = [Passage(name, "", name) for name in ("unused", "d0", "e0", "d2")]
    model = Scripted(
        by_purpose(
            resynthesise=['{"sentences": ["One new text of many words.", "Two."]}'],
            shorten=[make_rewritten_reply((0, "One new text."), (1, "Two."))],
            cite=['{"sentences": [{"id": 0, "citations": [2, 0]}]}'],
        )
    )
    answer, fallbacks = asyncio.run(resynthesise(model, task, passages))
    assert answer == Answer("1", (Sentence("One new text.", ("d2", "d0")), Sentence("Two.", ())))
    assert fallbacks == [Fallback("1", "cite", "1 of 2 sentences are left without citation")]
    assert "unused" not in model.requests[-1].messages[1][1]
    user = model.requests[0].messages[1][1]
    assert (
        user.index("N?") < user.index('<document id="0">\nQ0?\n') < user.index('<document id="2">') < user.rindex("N?")
    )


LENGTHS = st.lists(st.none() | st.lists(st.integers(1, 9), max_size=4), min_size=1, max_size=4)
EDITED = REPLY | st.lists(LINE, max_size=12).map(
    lambda lines: json.dumps({"sentences": [{**line, "id": place} for place, line in enumerate(lines)]})
)


def of(lengths: list[list[int] | None], high: int) -> SynthesisTask:
    return synthesis(
        [
            None
            if own is None
            else Answer("1", tuple(Sentence("w " * n + f"{q}.", (f"{q}-{p}", "all")) for p, n in enumerate(own)))
            for q, own in enumerate(lengths)
        ],
        (1, high),
    )


@given(LENGTHS, st.integers(1, 40), EDITED)
def test_no_edit_changes_a_citation_or_exceeds_the_limit(
    lengths: list[list[int] | None], high: int, reply: Said
) -> None:
    """Here each citation names its sentence, so that a moved citation can be seen."""
    task = of(lengths, high)
    queries, sentences = vectors(task)
    every = [sentence.citations for sentence in join_sub_answers(task)]
    model = Scripted(lambda _: reply)
    edited, recorded = asyncio.run(edit(model, task))
    assert (
        [sentence.citations for sentence in edited.sentences] == every[: len(edited.sentences)] if edited else recorded
    )
    selected, recorded = asyncio.run(select_edit(model, task, queries, sentences))
    if selected is None:
        assert recorded
    else:
        chosen = select_sentences(task, queries, sentences)
        assert [sentence.citations for sentence in selected.sentences] == [sentence.citations for sentence in chosen]
    for answer in (edited, selected):
        assert answer is None or 0 < count_words(answer.sentences) <= high


@pytest.mark.slow
@given(LENGTHS, st.integers(1, 40), st.lists(EDITED, min_size=1, max_size=4))
def test_no_reply_breaks_a_resynthesis(lengths: list[list[int] | None], high: int, replies: list[Said]) -> None:
    turns = iter(replies * 20)
    task = of(lengths, high)
    documents = [Passage(citation, "", "Text.") for s in join_sub_answers(task) for citation in s.citations]
    answer, fallbacks = asyncio.run(resynthesise(Scripted(lambda _: next(turns)), task, documents))
    assert fallbacks if answer is None else 0 < count_words(answer.sentences) <= high


@given(LENGTHS, st.integers(1, 40), st.lists(st.integers(0, 2), min_size=16, max_size=16))
def test_merging_joins_all_citations_of_the_same_sentence(
    lengths: list[list[int] | None], high: int, kinds: list[int]
) -> None:
    task = of(lengths, high)
    kinds = kinds[: len(join_sub_answers(task))]
    chosen = select_sentences(task, np.zeros((len(lengths), 3), dtype=np.float32), np.eye(3, dtype=np.float32)[kinds])
    united = [
        {c for s, k in zip(join_sub_answers(task), kinds, strict=True) if k == kind for c in s.citations}
        for kind in range(3)
    ]
    assert count_words(chosen) <= high
    for sentence in chosen:
        assert set(sentence.citations) in united
        assert len(set(sentence.citations)) == len(sentence.citations)
