"""Narratives understood by a model: its requests, the readers of replies, and the records of failures."""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.generation.context.texts import clip, count_tokens
from keystone.generation.prompts.queries import NUM_QUERIES
from keystone.generation.queries.understand import (
    expand_topics,
    find_example_names,
    find_names_to_avoid,
    read_questions,
    read_topic,
    request_variants,
    select_variants,
    understand_by_model,
)
from keystone.generation.summarise import LONG_DOCUMENT_TOKENS, is_long, split_document, summarise
from keystone.generation.types import Failure, Fallback, Reply, Request, Understanding
from keystone.indexing.errors import Unusable
from keystone.indexing.types import Document
from keystone.retrieval.types import Topic
from tests.support.models.scripted import Said, Scripted, by_purpose

NARRATIVE = (
    "I want to know what makes up a community, with examples like the Amish or Silicon Valley, and how communities set "
    "boundaries."
)
QUESTIONS = {"questions": ["What makes up a community?", "How do communities set boundaries?"]}
VARIANTS = {"variants": [f"social group {letter}" for letter in "abcdefghij"]}
JUNK = "I would rather not."
TEXT = st.text(st.sampled_from("aB ,?.1-'\n") | st.characters(codec="utf-8"), max_size=40)


def _understood(**replies: object) -> tuple[list[Understanding], list[Fallback], Scripted]:
    said = {"decompose": [QUESTIONS], "topic": [{"topic": "community"}], "expand": [VARIANTS]} | replies
    model = Scripted(by_purpose(**said))
    return *asyncio.run(understand_by_model(model, [Topic("7", NARRATIVE)])), model


def test_a_narrative_is_understood_in_three_calls_with_the_expansion_last() -> None:
    understood, fallbacks, model = _understood()
    assert understood == [
        Understanding("7", tuple(QUESTIONS["questions"]), "community", tuple(VARIANTS["variants"])),
    ]
    assert not fallbacks
    assert [request.purpose for request in model.requests] == ["decompose", "topic", "expand"]
    assert all(request.temperature == 0 and request.schema for request in model.requests)
    assert all(NARRATIVE in request.messages[-1][1] for request in model.requests[:2])


def test_many_narratives_keep_their_order_whatever_the_order_of_replies() -> None:
    def say(request: Request) -> Said:
        word = next(word for word in ("bees", "wasps", "ants") if word in request.messages[-1][1])
        replies = {"questions": [f"what are {word}?"], "topic": word, "variants": [f"{word} {i}" for i in range(10)]}
        return json.dumps(replies)

    topics = [Topic(str(i), f"Tell me about {word}.") for i, word in enumerate(("bees", "wasps", "ants"))]
    understood, fallbacks = asyncio.run(understand_by_model(Scripted(say), topics))
    assert [(one.topic_id, one.topic, one.questions[0]) for one in understood] == [
        ("0", "bees", "What are bees?"),
        ("1", "wasps", "What are wasps?"),
        ("2", "ants", "What are ants?"),
    ]
    assert not fallbacks


@pytest.mark.parametrize(
    ("step", "replies", "expected"),
    [
        pytest.param("decompose", [JUNK], ((NARRATIVE,), "community", 10), id="no questions"),
        pytest.param("decompose", [{"questions": ["?", " "]}], ((NARRATIVE,), "community", 10), id="empty questions"),
        pytest.param("decompose", [Failure("gone")], ((NARRATIVE,), "community", 10), id="no reply"),
        pytest.param("topic", [JUNK], (None, "communities set boundaries", 10), id="no topic: by rule"),
        pytest.param("topic", [{"topic": "volcanoes"}], (None, "communities set boundaries", 10), id="foreign topic"),
        pytest.param("topic", [{"topic": NARRATIVE}], (None, "communities set boundaries", 10), id="all is no topic"),
        pytest.param("topic", [{"topic": "the Silicon Valley tribe"}], (None, "Silicon Valley", 10), id="cut topic"),
        pytest.param("expand", [JUNK], (None, "community", 0), id="no variants"),
        pytest.param("expand", [{"variants": ["kin", "kin", "a, b"]}], (None, "community", 1), id="fewer variants"),
        pytest.param("expand", [Failure("gone")], (None, "community", 0), id="no reply to the expansion"),
    ],
)
def test_replies_that_are_missing_are_recorded(
    step: str, replies: list[object], expected: tuple[tuple[str, ...] | None, str, int]
) -> None:
    (understood,), fallbacks, _ = _understood(**{step: replies})
    questions = expected[0] or tuple(QUESTIONS["questions"])
    assert (understood.questions, understood.topic, len(understood.variants)) == (questions, *expected[1:])
    assert [(fallback.topic_id, fallback.step) for fallback in fallbacks] == [("7", step)]


@pytest.mark.parametrize("step", ["decompose", "topic", "expand"])
def test_a_successful_repair_is_not_recorded(step: str) -> None:
    good = {"decompose": QUESTIONS, "topic": {"topic": "community"}, "expand": VARIANTS}[step]
    understood, fallbacks, model = _understood(**{step: [JUNK, good]})
    assert understood == _understood()[0]
    assert not fallbacks
    assert len(model.requests) == 4


@pytest.mark.parametrize("in_context", [False, True])
def test_the_expansion_sees_the_narrative_if_that_is_wanted(in_context: bool) -> None:
    model = Scripted(by_purpose(expand=[VARIANTS]))
    found, _ = asyncio.run(expand_topics(model, [Topic("7", NARRATIVE)], ["community"], 10, in_context))
    assert found == [tuple(VARIANTS["variants"])]
    (_, system), (_, user) = model.requests[0].messages
    assert (NARRATIVE in user) == in_context
    assert "Phrase: community" in user
    assert "keep them out of every variant: Amish; Silicon Valley" in user
    assert ("description" in system) == in_context


def test_a_repair_adds_to_the_variants_that_were_right() -> None:
    halves = [{"variants": VARIANTS["variants"][:6]}, {"variants": VARIANTS["variants"][4:]}]
    (understood,), fallbacks, _ = _understood(expand=halves)
    assert understood.variants == tuple(VARIANTS["variants"])
    assert not fallbacks


def test_surplus_variants_are_left_out() -> None:
    (understood,), fallbacks, _ = _understood(expand=[{"variants": [*VARIANTS["variants"], "one more"]}])
    assert understood.variants == tuple(VARIANTS["variants"])
    assert not fallbacks


def test_without_a_topic_or_variants_to_make_the_model_is_not_asked() -> None:
    model = Scripted(by_purpose(expand=[VARIANTS]))
    topics = [Topic("1", NARRATIVE)]
    assert asyncio.run(expand_topics(model, topics, [""], 10)) == ([()], [])
    assert asyncio.run(expand_topics(model, topics, ["community"], 0)) == ([()], [])
    assert not model.requests


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        pytest.param(["what is a bee?", "What is a  BEE"], ("What is a bee?",), id="case, space, final mark"),
        pytest.param(["1. How?", "- Why?", "2024 results?"], ("How?", "Why?", "2024 results?"), id="list markers go"),
        pytest.param(["b?", "a?", "b?"], ("B?", "A?"), id="order is kept"),
    ],
)
def test_questions_are_normalised(said: list[str], expected: tuple[str, ...]) -> None:
    assert read_questions(Reply(json.dumps({"questions": said}))) == expected
    assert read_questions(Reply(json.dumps(said))) == expected


@given(st.lists(TEXT, max_size=6))
def test_read_questions_are_distinct_and_reading_them_again_changes_nothing(said: list[str]) -> None:
    try:
        found = read_questions(Reply(json.dumps(said)))
    except Unusable:
        assert not any(character.isalnum() for text in said for character in text)
        return
    assert len({question.casefold() for question in found}) == len(found) > 0
    assert read_questions(Reply(json.dumps(found))) == found


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        pytest.param("Community", ("Community", ""), id="in any case"),
        pytest.param("'community.'", ("community", ""), id="without quotes"),
        pytest.param("communities boundaries", ("communities boundaries", ""), id="words need not be neighbours"),
        pytest.param(
            "how communities set borders", ("how communities set", "how communities set borders"), id="longest run"
        ),
    ],
)
def test_topics_have_only_words_of_the_narrative(said: str, expected: tuple[str, str]) -> None:
    assert read_topic(Reply(json.dumps({"topic": said})), NARRATIVE) == expected


@pytest.mark.parametrize("said", ['{"topic": 3}', '["community"]', '{"topic": ""}', '{"topic": "of the"}', "community"])
def test_a_reply_without_a_topic_is_refused(said: str) -> None:
    with pytest.raises(Unusable):
        read_topic(Reply(said), NARRATIVE)


@given(TEXT | st.lists(st.sampled_from([*NARRATIVE.split(), "tribe", "of"]), max_size=6).map(" ".join))
def test_no_reply_makes_a_topic_of_other_words(said: str) -> None:
    try:
        topic, _ = read_topic(Reply(json.dumps({"topic": said})), NARRATIVE)
    except Unusable:
        return
    known = {word.strip(".,").casefold() for word in NARRATIVE.split()}
    assert topic
    assert {word.strip(".,'").casefold() for word in topic.split()} <= known


@given(st.lists(TEXT, max_size=15), TEXT, st.lists(TEXT.filter(str.strip), max_size=2))
def test_fitting_variants_keep_every_rule(variants: list[str], phrase: str, names: list[str]) -> None:
    found = select_variants(variants, phrase, names)
    assert len({variant.casefold() for variant in found}) == len(found)
    assert not any(set(",?") & set(variant) for variant in found)
    assert phrase.casefold() not in {variant.casefold() for variant in found}
    assert select_variants(found, phrase, names) == found
    assert select_variants([f"{variant}, {variant}?" for variant in variants], phrase, names) == ()


@pytest.mark.parametrize(
    ("narrative", "names"),
    [
        pytest.param(NARRATIVE, ("Amish", "Silicon Valley"), id="like"),
        pytest.param("Firms such as Bank of America and IBM. Is Paris one?", ("Bank of America", "IBM"), id="sentence"),
        pytest.param("Cities, especially Rome's, and I'm sure of it.", ("Rome",), id="possessive, and no pronoun"),
        pytest.param("I would like to learn how NASA works.", (), id="like as a verb"),
        pytest.param("Rivers (e.g. the Nile) in Egypt, and why Cairo grew.", ("Nile",), id="until the bracket"),
        pytest.param("Events like the Olympics and how Tokyo held them.", ("Olympics",), id="until a question"),
        pytest.param("How did Napoleon fall?", (), id="a subject is no example"),
    ],
)
def test_names_given_as_examples_are_found(narrative: str, names: tuple[str, ...]) -> None:
    assert find_example_names(narrative) == names


def test_the_prompt_names_the_example_names_and_variants_lack_them() -> None:
    assert find_names_to_avoid(NARRATIVE, "Silicon Valley") == ("Amish",)
    assert "Amish; Silicon Valley" in request_variants("community", ["Amish", "Silicon Valley"], 10).messages[-1][1]
    assert select_variants(
        ["amish life", "silicon valleys", "in Silicon  Valley"], "x", ["Amish", "Silicon Valley"]
    ) == ("silicon valleys",)
    _, fallbacks, model = _understood(expand=[{"variants": ["Amish life", *VARIANTS["variants"][1:]]}])
    assert [fallback.step for fallback in fallbacks] == ["expand"]
    assert NUM_QUERIES == 10
    assert "exactly 10" in model.requests[2].messages[-1][1]


@pytest.mark.parametrize(("text", "expected"), [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2)])
def test_tokens_are_a_quarter_of_the_characters_rounded_up(text: str, expected: int) -> None:
    assert count_tokens(text) == expected
    assert clip(text, expected) == text


@given(
    st.integers(LONG_DOCUMENT_TOKENS + 1, 40_000),
    st.sampled_from([600, 4096, 32_768, 131_072]),
    st.sampled_from(["ab ", "x"]),
)
def test_parts_are_the_whole_text_and_leave_room_in_the_window(length: int, window: int, unit: str) -> None:
    text = (unit * (4 * length))[: 4 * length]
    found = split_document(text, window)
    assert "".join(part for part, _ in found) == text
    assert all(count_tokens(part) <= window // 2 + 25 and limit <= window // 4 for part, limit in found)
    assert len(found) == 1 or sum(limit for _, limit in found) < length


@pytest.mark.parametrize(
    ("window", "calls"), [pytest.param(100_000, 1, id="one part"), pytest.param(8000, 3, id="several parts")]
)
def test_only_long_documents_are_summarised(window: int, calls: int) -> None:
    long = Document("long", "word " * 9000, "Title")
    model = Scripted(by_purpose(summarise=["A summary."]))
    summaries, fallbacks = asyncio.run(summarise(model, [Document("short", "word " * 6000), long], window))
    assert summaries == {"long": "\n".join(["A summary."] * calls)}
    assert not fallbacks
    assert len(model.requests) == calls
    assert all('<document id="long">' in request.messages[-1][1] for request in model.requests)


@pytest.mark.slow
@given(st.sampled_from([600, 2000, 20_000]), st.sampled_from(["word " * 20_000, "", "fine"]), st.booleans())
def test_summaries_of_any_model_end_under_the_limit(window: int, said: str, cut: bool) -> None:
    model = Scripted(lambda _: Reply(said, "length" if cut else "stop"))
    documents = [Document("a", "word " * 12_000), Document("b", "x" * 33_000)]
    summaries, fallbacks = asyncio.run(summarise(model, documents, window))
    assert all(map(is_long, documents))
    assert all(0 < count_tokens(text) <= LONG_DOCUMENT_TOKENS for text in summaries.values())
    assert {fallback.topic_id for fallback in fallbacks} == (set() if said else {"a", "b"})
