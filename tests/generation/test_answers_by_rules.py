"""Answers by rules: what a narrative asks, which sentences fit a question, and what is said if none does."""

import asyncio

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.generation.context.topic import Sources, TopicContext, read_context
from keystone.generation.readers.reader import AnswerSettings, Task, Tools
from keystone.generation.readers.write import gather_all_sentences, write_answer
from keystone.generation.rules.answer import (
    LEAST_SHARE,
    LEAST_WORTH,
    LEAST_WORTH_BESIDE,
    LEAST_WORTH_BEYOND,
    MISSING,
    NOTHING,
    CandidateSentences,
    choose_sentences,
    count_share,
    gather_sentences,
    take_turns,
)
from keystone.generation.rules.queries import MOST_WHOLE_WORDS, open_question, split_into_questions
from keystone.generation.rules.sentences import find_sentences, read_sentence, share_words
from keystone.generation.rules.stands_alone import can_be_read, continues, find_name, stands_alone
from keystone.generation.types import Answer, EvidenceSet
from keystone.indexing.corpora.segments import cut_segments
from keystone.indexing.embedder import round_to_grid
from keystone.indexing.index import Index
from keystone.indexing.types import MINILM, WORDS, Document, Embedding, Span
from keystone.retrieval.backends import open_store
from keystone.retrieval.types import Query, Topic


def ask(*texts: str) -> list[Query]:
    return [Query("1", f"1#{number}", text, text, text) for number, text in enumerate(texts)]


@pytest.mark.parametrize(
    ("narrative", "questions"),
    [
        pytest.param("I keep bees. How do they dance?", ["How do they dance?"], id="a sentence that only tells"),
        pytest.param("I keep bees, and I want to sell honey.", ["How to sell honey?"], id="a clause that only tells"),
        pytest.param("We keep bees, so each hive must be warm.", ["What about each hive must be warm?"], id="must"),
        pytest.param("This house would ban hives.", ["What about This house would ban hives?"], id="nothing asks"),
        pytest.param(
            "This house would ban all hives of bees. Hives need air and must be warm.",
            ["This house would ban all hives of bees."],
            id="a motion",
        ),
        pytest.param(
            "This house would ban all hives of bees. Hives need air. Are they warm in winter?",
            ["This house would ban all hives of bees.", "Are they warm in winter?"],
            id="a motion and a question",
        ),
        pytest.param(
            "This house would ban all hives of bees. I need honey in winter.",
            ["What about honey in winter?"],
            id="no motion, since somebody wants something",
        ),
        pytest.param("Which straw do bees like, and how is it kept?", ["Which straw do bees like?"], id="a loose part"),
        pytest.param(
            "How do bees dance? Explain the sting.", ["How do bees dance?", "What about the sting?"], id="all ask"
        ),
    ],
)
def test_what_a_narrative_only_tells_is_no_question(narrative: str, questions: list[str]) -> None:
    assert [query.question for query in split_into_questions(ask(narrative))] == questions
    sentences = [f"{sentence}{mark}" for sentence, mark in zip(narrative.split(". "), [".", ""], strict=False)]
    assert [query.question for query in split_into_questions(ask(narrative, *sentences))] == questions


def test_a_loose_part_belongs_to_the_question_before_it() -> None:
    (question,) = split_into_questions(ask("Which straw do bees like, and how is it kept?"))
    assert question.dense_text == "Which straw do bees like? How is it kept?"


@pytest.mark.parametrize(
    ("question", "line"),
    [
        ("What about fetch the honey?", "Fetch the honey:"),
        ("How to fetch the honey?", "Fetch the honey:"),
        ("How is it kept?", "How is it kept?"),
        ("Is it lawful?", "Is it lawful?"),
        ("Which bees dance?", "Which bees dance?"),
        (
            "What about put the honey into a jar and let each one of the visitors of our club taste it?",
            "Put the honey into a jar and let each one of the visitors:",
        ),
        (
            "What about give each keeper of our club in the old town a hive in which bees live?",
            "Give each keeper of our club in the old town a hive in which bees live:",
        ),
        (
            "How do the honey and the wax of our hives get to those keepers of the club who paid for them?",
            "How do the honey and the wax of our hives get to those keepers:",
        ),
        (
            "Some keepers of our club in the old town argue that all bees always dance before the sunrise.",
            "Some keepers of our club:",
        ),
        (
            "Our hive is dark and dry for bees with a painted and a plain lid which the keeper of the club made.",
            "Our hive is dark and dry for bees:",
        ),
        (
            "Does the smoke of the keeper calm his bees (making them eat and rest before they leave the old hive)?",
            "Does the smoke of the keeper calm his bees:",
        ),
        (
            "Bees are \u201csmall insects that dance for food and live in hives of wood which keepers build.\u201d",
            "Bees are small insects that dance for food and live in hives of wood:",
        ),
        (
            "The club of the keepers gives honey, wax and young bees to each industry (and also to all its members).",
            "The club of the keepers gives honey, wax and young bees to each industry:",
        ),
        ("", ":"),
    ],
)
def test_the_line_that_opens_a_question(question: str, line: str) -> None:
    assert open_question(question) == line


@given(st.lists(st.sampled_from("how what about to keep a warm hive, and of bees? in".split()), max_size=30))
def test_the_line_of_a_question_is_short_and_in_its_own_words(words: list[str]) -> None:
    line = open_question(" ".join(words))
    assert len(line.split()) <= MOST_WHOLE_WORDS
    assert line[-1] in ":?"
    assert line[:-1].lower() in " ".join(words).lower()


@given(st.data())
def test_questions_take_turns_within_the_words(data: st.DataObject) -> None:
    questions, sentences = data.draw(st.integers(1, 5)), data.draw(st.integers(0, 8))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    worth = rng.uniform(0, 2.5, (questions, sentences))
    vectors = round_to_grid(rng.normal(size=(sentences, 3)))
    vectors = round_to_grid(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-6))
    doc_ids = [f"d{number}" for number in rng.integers(0, 3, sentences)]
    costs, openings, words = rng.integers(1, 20, sentences).tolist(), [4] * questions, data.draw(st.integers(0, 60))
    served = take_turns(worth, doc_ids, costs, openings, words, vectors)
    taken = [place for own in served for place in own]
    assert len(served) == questions
    assert len(set(taken)) == len(taken)
    assert sum(costs[place] for place in taken) + 4 * sum(map(bool, served)) <= words
    for row, own in enumerate(served):
        assert len(own) <= count_share(questions)
        assert all(worth[row, place] == worth[:, place].max() >= LEAST_WORTH_BESIDE for place in own)
        assert not own or worth[row].max() >= LEAST_WORTH


def test_a_question_without_a_good_sentence_takes_none_and_a_good_one_brings_others_of_its_document() -> None:
    good, beside, poor = LEAST_WORTH + 0.1, (LEAST_WORTH + LEAST_WORTH_BESIDE) / 2, LEAST_WORTH_BESIDE - 0.1
    worth = np.array([[good, beside, beside, poor, 0.0], [0.0, 0.0, 0.0, 0.0, LEAST_WORTH - 0.1]])
    served = take_turns(worth, ["a", "a", "b", "a", "a"], [1] * 5, [0, 0], 9, np.eye(5, dtype=np.float32))
    assert served == [[0, 1], []]


def test_a_sentence_beyond_the_least_share_is_worth_more() -> None:
    worth = np.full((1, LEAST_SHARE + 2), LEAST_WORTH)
    worth[0, -1] = LEAST_WORTH_BEYOND
    places = list(range(worth.size))
    served = take_turns(worth, ["a"] * worth.size, [1] * worth.size, [0], 9, np.eye(worth.size, dtype=np.float32))
    assert served == [[places[-1], *places[: LEAST_SHARE - 1]]]
    worth[:] = LEAST_WORTH_BEYOND
    served = take_turns(worth, ["a"] * worth.size, [1] * worth.size, [0], 9, np.eye(worth.size, dtype=np.float32))
    assert served == [places]


@pytest.mark.parametrize(("questions", "share"), [(1, 10), (2, 8), (3, 5), (4, 4), (5, 3), (30, 3)])
def test_the_sentences_are_shared_among_the_questions(questions: int, share: int) -> None:
    assert count_share(questions) == share
    served = take_turns(
        np.full((questions, 11), 2.0), ["a"] * 11, [1] * 11, [0] * questions, 99, np.eye(11, dtype=np.float32)
    )
    assert list(map(len, served)) == [share] + [0] * (questions - 1)


def test_a_sentence_that_says_the_same_is_not_taken() -> None:
    vectors = np.array([[1, 0], [1, 0], [0, 1]], np.float32)
    assert take_turns(np.full((1, 3), 2.0), ["a"] * 3, [1] * 3, [0], 9, vectors) == [[0, 2]]


@pytest.mark.parametrize(("told", "sentences"), [(True, 1), (False, 2)])
def test_only_equal_texts_say_the_same_if_cosines_do_not_tell_it(told: bool, sentences: int) -> None:
    said = ("The queen of a hive lays eggs.", "Honey of bees keeps for many years.")
    documents = [cut_segments(Document(name, " ".join(said), "Bees")) for name in "ab"]
    empty = np.zeros((1, 2), np.float32)
    asked = ask("How does a queen lay eggs, and how long does honey of bees keep?")
    context = TopicContext(dict(enumerate(documents)), {0: empty, 1: empty}, asked, empty)
    near = np.array([[1, 0], [0.9, 0.43]] * 2, np.float32)
    candidates = CandidateSentences(find_sentences(context), near, () if told else said * 2)
    made = choose_sentences("1", context, gather_sentences(context, candidates), candidates, 60, measured=False)
    assert [len(sentence.citations) for sentence in made.sentences] == [2] * sentences


def test_cosines_tell_repeats_by_a_measured_model_and_by_words() -> None:
    assert [one.tells_repeats for one in (MINILM, WORDS, Embedding("intfloat/e5-small"))] == [True, True, False]


def test_if_only_words_can_tell_a_sentence_fits_that_shares_two_of_them() -> None:
    text = "Bees dance in the hive. Bees rest at night in winter."
    document = cut_segments(Document("d", text, "Queens"))
    spans = [Span("d", 0, 23), Span("d", 24, len(text))]
    vectors = np.zeros((len(document.segments), 2), np.float32)

    def share(question: str) -> list[bool]:
        context = TopicContext({0: document}, {0: vectors}, ask(question), np.zeros((1, 2), np.float32))
        shared: list[list[bool]] = share_words(context, spans).tolist()
        return shared[0]

    assert share("How do bees dance?") == [True, False]
    assert share("What are bees?") == [True, True]
    assert share("Do queens rest?") == [False, True]
    assert share("Who bakes bread?") == [False, False]


def answer(index: Index, *questions: str, words: int = 200) -> Answer:
    sources = Sources(index, open_store(index))
    context = read_context(sources, list(range(len(sources.store))), ask(*questions))
    tools = Tools(sources, None, AnswerSettings("rules"))
    task = Task(Topic("1", " ".join(questions)), context, words, lambda sentences: sentences)
    return asyncio.run(write_answer(tools, task, EvidenceSet(tuple(gather_all_sentences(tools, task)))))


@pytest.mark.parametrize(
    "question", ["What is the capital of France?", "Who wrote Hamlet?", "How is diabetes treated?"]
)
def test_if_no_sentence_fits_that_is_the_answer_and_it_cites_nothing(question: str, index: Index) -> None:
    made = answer(index, question)
    assert [(sentence.text, sentence.citations) for sentence in made.sentences] == [(NOTHING, ())]


@pytest.mark.parametrize("question", ["How do honey bees live in colonies?", "Who wrote Hamlet?"])
def test_without_room_for_any_sentence_the_first_words_of_a_segment_are_quoted(question: str, index: Index) -> None:
    (quoted,) = answer(index, question, words=5).sentences
    assert len(quoted.text.split()) == 5
    assert quoted.citations


def test_each_question_has_its_line_and_those_without_a_sentence_are_named(index: Index) -> None:
    questions = ("How do honey bees live in colonies?", "Who wrote Hamlet?", "How do glaciers move?")
    made = answer(index, *questions)
    texts = [sentence.text for sentence in made.sentences]
    opened = [[place for place, text in enumerate(texts) if text.startswith(one)] for one in questions]
    assert opened[0] == [0]
    assert opened[1] == []
    assert len(opened[2]) == 1
    assert made.missing == f"{MISSING} Who wrote Hamlet."
    assert all(sentence.citations for sentence in made.sentences)


def test_a_line_with_a_name_that_the_source_lacks_is_left_out(index: Index) -> None:
    made = answer(index, "How do honey bees of Zurich live in colonies?", "How do glaciers move?")
    assert len(made.sentences) > 1
    assert not any("Zurich" in sentence.text for sentence in made.sentences)
    assert any(sentence.text.startswith("How do glaciers move? ") for sentence in made.sentences)


STRETCH = (
    "A colony of bees has one queen.",
    "This keeps the honey warm in winter.",
    "It also keeps all wasps of the garden away.",
)


@pytest.mark.parametrize(
    ("text", "most"),
    [
        pytest.param(" ".join(STRETCH), 3, id="all sentences"),
        pytest.param(" ".join((*STRETCH, "It is warm in the hives of bees.")), 3, id="at most three sentences"),
        pytest.param(f"{STRETCH[0]}\n\n{STRETCH[1]}", 1, id="one paragraph"),
    ],
)
def test_sentences_that_go_on_from_one_are_found_with_it(text: str, most: int) -> None:
    document = cut_segments(Document("d", text, "Bees"))
    empty = np.zeros((len(document.segments), 2), np.float32)
    found = find_sentences(TopicContext({0: document}, {0: empty}, [], np.zeros((0, 2), np.float32)))
    expected = [" ".join(STRETCH[:count]) for count in range(1, most + 1)]
    assert [text[span.start : span.end] for span in found] == expected


@pytest.mark.parametrize(("words", "sentences"), [(7, 1), (22, 1), (23, 3)])
def test_a_chosen_sentence_has_those_that_go_on_from_it_if_words_are_left(words: int, sentences: int) -> None:
    document = cut_segments(Document("d", " ".join(STRETCH), "Bees"))
    segments = np.zeros((len(document.segments), 3), np.float32)
    context = TopicContext(
        {0: document}, {0: segments}, ask("How many queens has a colony?"), np.zeros((1, 3), np.float32)
    )
    candidates = CandidateSentences(find_sentences(context), np.eye(3, dtype=np.float32))
    evidence = gather_sentences(context, candidates)
    made = choose_sentences("1", context, evidence, candidates, words, measured=False)
    assert [sentence.text for sentence in made.sentences] == [" ".join(STRETCH[:sentences])]
    assert made.sentences[0].citations


def test_one_question_has_no_line_and_nothing_is_missing(index: Index) -> None:
    made = answer(index, "How do honey bees live in colonies?")
    assert made.sentences
    assert made.missing == ""
    assert not any(sentence.text.startswith("How") for sentence in made.sentences)


@pytest.mark.parametrize(
    "sentence",
    [
        pytest.param("When hives are full, where possible, use the move_out() method to reduce the work.", id="a call"),
        pytest.param("move_out() is supported by all hives except those of straw.", id="a name in front"),
        pytest.param("The move_out method copies all bees to a new hive.", id="a name inside"),
        pytest.param("Looping over bees() instead of counting ensures that large hives fit.", id="an action"),
        pytest.param("Opening the hives in winter is bad for bees.", id="an action with an auxiliary"),
    ],
)
def test_statements_with_names_stand_alone(sentence: str) -> None:
    assert stands_alone(sentence)


@pytest.mark.parametrize(
    "sentence",
    [
        pytest.param("A list of names that tells which bees the queen wants to keep.", id="a noun and its clause"),
        pytest.param("A named basket to store combs in an old hive.", id="a participle"),
        pytest.param("Writing the dances and local formats.", id="an action without a verb"),
        pytest.param("Whether bees that hold honey should be counted.", id="whether"),
        pytest.param("If you do, bees of other hives cannot come in.", id="if you do"),
        pytest.param("As a consequence, the bees of the hive are hungry.", id="as a consequence"),
        pytest.param("The bees count # the combs in the hive.", id="a comment in code"),
        pytest.param("The guide to hives describes how bees are kept in this country.", id="points at the text"),
        pytest.param("For a start with bees, see the book of hives.", id="a reference"),
        pytest.param("Suppose a keeper has a hive with two queens.", id="an example"),
        pytest.param("Sometimes a keeper has a hive with two queens.", id="leads up to something"),
        pytest.param("Queens of straw hives are ignored by the counter of bees.", id="says only what has no effect"),
        pytest.param("Bees have the same restrictions as wasps of the hive.", id="says only what is not possible"),
        pytest.param("Keepers who visit hives.example.com can see all queens.", id="belongs to an example"),
    ],
)
def test_parts_of_statements_and_remarks_on_the_page_do_not(sentence: str) -> None:
    assert not can_be_read(sentence, "Bees")


def find_in(document: Document) -> list[Span]:
    empty = np.zeros((len(document.segments), 2), np.float32)
    return find_sentences(TopicContext({0: document}, {0: empty}, [], np.zeros((0, 2), np.float32)))


@pytest.mark.parametrize(
    ("sentence", "read", "goes_on"),
    [
        pytest.param("PREMIER ADA MOVED ALL BEES OF THE U.S . TO NEW HIVES .", True, False, id="a statement"),
        pytest.param("BEES OF ONE HIVE CAN NEVER DANCE AT NIGHT .", True, False, id="a subject without a name"),
        pytest.param("IN THIS CASE, BEES OF ONE HIVE CAN NEVER DANCE AT NIGHT .", False, True, id="it points back"),
        pytest.param("A NAMED BASKET TO STORE COMBS IN AN OLD HIVE .", False, False, id="no predicate"),
        pytest.param("BEES OF ONE HIVE CAN NEVER DANCE AT", False, False, id="no stop"),
    ],
)
def test_a_sentence_in_capitals_is_told_by_its_words(sentence: str, read: bool, goes_on: bool) -> None:
    assert (can_be_read(sentence, ""), continues(sentence)) == (read, goes_on)


def test_headings_are_no_sentences() -> None:
    text = "# Bees are insects.\n\nHoney\n=====\n\nHoney is made from the nectar of flowers.\n\n### Wasps\n"
    document = cut_segments(Document("d", text, "Bees"))
    assert [read_sentence(document, span) for span in find_in(document)] == [
        "Honey is made from the nectar of flowers."
    ]


@pytest.mark.parametrize(
    ("heading", "after"),
    [
        ("Honey in the comb", "Honey is made from the nectar of flowers."),
        ("3. Honey", "Honey is made from the nectar of flowers."),
        ("3.2 Honey in the comb", "Honey is made from the nectar of flowers."),
        ("3.2. Honey", "Honey is made from the nectar of flowers."),
        ("3) Honey", "Honey is made from the nectar of flowers."),
    ],
)
def test_a_heading_on_the_line_before_is_no_part_of_a_sentence(heading: str, after: str) -> None:
    before = "A colony of bees has one queen and thousands of workers in summer."
    document = cut_segments(Document("d", f"{before} {heading}\n{after}", "Bees", headings=f"Bees\n{heading}"))
    assert [read_sentence(document, span) for span in find_in(document)] == [before, after]


def test_a_sentence_below_a_heading_does_not_go_on_from_the_one_above() -> None:
    text = f"{STRETCH[0]} Honey in the comb of the honey bees\n{STRETCH[1]}"
    document = cut_segments(Document("d", text, "Bees", headings="Honey in the comb of the honey bees"))
    assert [read_sentence(document, span) for span in find_in(document)] == [STRETCH[0]]


def test_an_item_of_a_list_that_names_an_action_is_no_sentence() -> None:
    text = "Signatures are good for:\n\n* Keeping honey that has not been tampered with.\n"
    document = cut_segments(Document("d", text, "Bees"))
    assert find_in(document) == []


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("Bees: Methods: fly()", "fly()"),
        ("Bees | HIVE_MAX", "HIVE_MAX"),
        ("Bees: Commands: collectbees", "collectbees"),
        ("Bees: LiveHive", "LiveHive"),
        ("Bees: Honey", ""),
        ("Bees: How to fly", ""),
        ("", ""),
    ],
)
def test_the_name_at_the_end_of_a_title(title: str, name: str) -> None:
    assert find_name(title) == name


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("Returns the bees that left the hive.", "fly() - Returns the bees that left the hive."),
        ("This method counts the bees.", "fly() - This method counts the bees."),
        ("This callable should count bees.", "This callable should count bees."),
        ("Bees leave the hive at noon.", "Bees leave the hive at noon."),
    ],
)
def test_the_title_names_the_subject_of_a_sentence_without_one(text: str, sentence: str) -> None:
    title = "All of the bees: Methods: fly()"
    assert read_sentence(Document("d", text, title), Span("d", 0, len(text))) == sentence


@pytest.mark.parametrize(
    ("sentence", "goes_on"),
    [
        ("However, bees of one hive can never dance at night.", True),
        ("In this case, bees of one hive can never dance at night.", True),
        ("As a result, it is warm in the hives of bees.", True),
        ("However, see the next chapter about bees.", False),
        ("Bees of one hive can never dance at night.", False),
    ],
)
def test_an_opening_that_joins_a_sentence_to_the_one_before(sentence: str, goes_on: bool) -> None:
    assert continues(sentence) == goes_on
