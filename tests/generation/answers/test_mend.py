"""Faults of wording that a program finds, and repairs that change wording alone."""

import asyncio
import json
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.generation.answers.mend import find_faults, mend_answer, read_mended, strip_marks
from keystone.generation.types import Answer, Failure, Reply, Sentence
from keystone.indexing.errors import Unusable
from tests.support.models.answer_replies import JSON
from tests.support.models.scripted import Scripted

DANCE = Sentence("Bees dance for food in the dark of the hive.", ("bees#0",))
EGGS = Sentence("It lays 2,000 eggs a day.", ("bees#1", "bees#2"))
DRAFT = (DANCE, EGGS)
FAULTS = find_faults(DRAFT)


def reply(*items: tuple[Any, Any]) -> Reply:
    return Reply(json.dumps({"sentences": [{"id": id, "text": text} for id, text in items]}))


@pytest.mark.parametrize(
    ("text", "points"),
    [
        ("It lays eggs.", True),
        ("It is the queen.", True),
        ("Its lid is of wood.", True),
        ("They dance in the dark.", True),
        ("The former are drones.", True),
        ("This keeps the hive warm.", True),
        ("This raises IrreversibleError if a step lacks its reverse.", True),
        ("This was a cold winter.", True),
        ("This led to a swarm.", True),
        ("This damaged the lid.", True),
        ("Those are drones.", True),
        ("That is why bees dance.", True),
        ("Then it swarms.", True),
        ("Then lift it with care.", True),
        ("Then he left.", True),
        ("Theirs is a short life.", True),
        ("For it, use smoke.", True),
        ("Lift it with care.", True),
        ("Add its name to the list.", True),
        ("To lift it, use both hands.", True),
        ("What they eat is honey.", True),
        ("This creates wax.", True),
        ("This generally takes a week.", True),
        ("There, lift the lid.", True),
        ("There bees dance in the dark.", True),
        ("In public he praised the queen.", True),
        ("At the fair, however, she sold honey.", True),
        ("There are four orders.", False),
        ("There may be frost in May.", False),
        ("Therefore bees dance.", False),
        ("In summer bees fly and they sting.", False),
        ("By now that they are many, bees swarm.", False),
        ("After the bees swarm, they rest.", False),
        ("In May the keeper says that he sold honey.", False),
        ("By its dance, a bee tells what they eat.", False),
        ("It is known that bees dance.", False),
        ("It was the queen who left.", False),
        ("The former queen left in May.", False),
        ("The same hive has a lid.", False),
        ("This hive stays warm.", False),
        ("This class has four orders.", False),
        ("This crisis ended in May.", False),
        ("This species sleeps.", False),
        ("This gas is heavy.", False),
        ("This failed attempt ended in May.", False),
        ("Those frames are of wood.", False),
        ("That swarm left in May.", False),
        ("That is, bees dance.", False),
        ("Against this, wasps enter at night.", False),
        ("Then lift the lid.", False),
        ("Italian bees are mild.", False),
        ("Both kinds of bees fly.", False),
        ("For honey, use a spoon.", False),
        ("Smoke these hives before noon.", False),
        ("When it rains, bees stay in.", False),
        ("Whether it rains matters to bees.", False),
        ("To defend their hive, bees sting.", False),
        ("Despite its name, a bumblebee is quick.", False),
        ("Given its size, a hornet is quick.", False),
        ("What bees eat is honey.", False),
    ],
)
def test_a_pronoun_for_a_thing_in_another_sentence_is_a_fault_of_an_opening(text: str, points: bool) -> None:
    assert bool(find_faults([Sentence(text, ())])) is points


@pytest.mark.parametrize(
    ("texts", "faulty"),
    [
        pytest.param(["To fly, bees warm up.", "To fly, they eat.", "To fly, drones wait."], {2}, id="alike openings"),
        pytest.param(["The queen flies.", "The drones wait.", "The hive sleeps."], set(), id="one word alike"),
        pytest.param(["To fly, bees warm up.", "To dance, bees fly.", "Bees dance to eat."], set(), id="two alike"),
        pytest.param(
            ["A queen lays 2,000 eggs a day in summer.", "In summer a queen lays 2,000 eggs."], {1}, id="a repetition"
        ),
        pytest.param(["A queen lays eggs.", "A drone lays nothing."], set(), id="short and different"),
    ],
)
def test_repetitions_and_rows_of_alike_openings_are_faults(texts: list[str], faulty: set[int]) -> None:
    assert set(find_faults([Sentence(text, ()) for text in texts])) == faulty


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        pytest.param((1, "A bee lays 2,000 eggs a day."), "A bee lays 2,000 eggs a day.", id="reworded"),
        pytest.param((1, "A bee lays `2,000` eggs a day."), "A bee lays 2,000 eggs a day.", id="without marks"),
        pytest.param((1, "A bee lays 3,000 eggs a day."), None, id="another number"),
        pytest.param((1, "A bee lays eggs a day."), None, id="a lost number"),
        pytest.param((1, "In Paris a bee lays 2,000 eggs."), None, id="a new name"),
        pytest.param((1, f"A bee lays 2,000 eggs{' again' * 9}."), None, id="much longer"),
        pytest.param((0, "Bees never dance for food."), None, id="a sentence without a fault"),
        pytest.param((7, "A bee lays 2,000 eggs a day."), None, id="no sentence"),
        pytest.param((1, "Buy 2,000 jars of our honey."), None, id="another statement"),
        pytest.param((1, "A bee never lays 2,000 eggs a day."), None, id="the reverse"),
        pytest.param((1, "``"), None, id="marks alone"),
        pytest.param((1, ""), None, id="an empty text"),
        pytest.param((1, EGGS.text), EGGS.text, id="the same text"),
    ],
)
def test_a_repair_changes_wording_alone(item: tuple[Any, Any], expected: str | None) -> None:
    if expected is None:
        with pytest.raises(Unusable):
            read_mended(reply(item), DRAFT, FAULTS)
        return
    first, second = read_mended(reply(item), DRAFT, FAULTS)
    assert (first, second.citations) == (DANCE, EGGS.citations)
    assert second.text == expected


@given(JSON)
def test_no_reply_moves_a_citation(value: Any) -> None:
    try:
        found = read_mended(Reply(json.dumps(value)), DRAFT, FAULTS)
    except Unusable:
        return
    assert [one.citations for one in found] == [one.citations for one in DRAFT]
    assert found[0] == DANCE


def test_an_answer_without_faults_costs_no_request() -> None:
    model = Scripted(lambda _: Failure("down"))
    answer = Answer("1", (DANCE,))
    assert asyncio.run(mend_answer(model, "Why?", answer, (10, 20))) == (answer, [])
    assert not model.requests


def test_an_answer_stays_as_it_is_without_a_usable_reply() -> None:
    answer = Answer("1", DRAFT)
    found, fallbacks = asyncio.run(mend_answer(Scripted(lambda _: Failure("down")), "Why?", answer, (10, 20)))
    assert found == answer
    assert [(one.step, one.reason) for one in fallbacks] == [("mend", "1 faults of wording stay: down")]


def test_of_new_texts_that_are_too_long_the_shorter_ones_stay() -> None:
    draft = (DANCE, EGGS, Sentence("Its food is royal jelly.", ("bees#3",)))
    texts = {1: "Every single day a queen bee lays some 2,000 eggs.", 2: "A queen's food is royal jelly."}
    model = Scripted(lambda _: reply(*texts.items()))
    found, fallbacks = asyncio.run(mend_answer(model, "Why?", Answer("1", draft), (10, 23)))
    assert [sentence.text for sentence in found.sentences[1:]] == [EGGS.text, texts[2]]
    assert not fallbacks


@pytest.mark.parametrize(("most", "mended"), [(28, False), (29, True)])
def test_a_repair_leaves_room_for_what_is_missing(most: int, mended: bool) -> None:
    answer = Answer("1", DRAFT, missing="The sources do not tell how long a queen lives.")
    model = Scripted(lambda _: reply((1, "Every day a queen bee lays some 2,000 eggs.")))
    found, fallbacks = asyncio.run(mend_answer(model, "Why?", answer, (10, most)))
    assert (found.sentences != DRAFT) is mended is not bool(fallbacks)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Call `f(x)` first.", "Call f(x) first."),
        ("**Never** call ``f``.", "Never call f."),
        ("## Opening a hive", "Opening a hive"),
        ("Define def f(sender, **kwargs): and x ** y.", "Define def f(sender, **kwargs): and x ** y."),
        ('See [the `hive`](https://bees.example/a_(b) "Bees") and ![a lid](lid.html#top).', "See the hive and a lid."),
        ("- Lift the lid.", "Lift the lid."),
        ("- * 1. Lift the lid.", "Lift the lid."),
        ("12) Lift the lid.", "Lift the lid."),
        ("> Bees dance.", "Bees dance."),
        ("Two steps: - Lift the lid. * Close it.", "Two steps: Lift the lid. Close it."),
        ("Sizes: | Bee | mm | | --- | :-: | | queen | 20 |", "Sizes: Bee, mm; queen, 20"),
        ("A *queen* lays _many_ eggs, says _The Hive_.", "A queen lays many eggs, says The Hive."),
        ("<b>Bees</b> dance in ***the*** `<b>dark</b>`.", "Bees dance in the <b>dark</b>."),
        ("**Use `*args` and `[a](https://b)`.**", "Use *args and [a](https://b)."),
        ("- 5 is less than 1. FC Bee has 1.", "- 5 is less than 1. FC Bee has 1."),
        ("1. FC Bee won.", "1. FC Bee won."),
        ("1. Mai 1945 endete der Krieg.", "1. Mai 1945 endete der Krieg."),
        ("Sizes: | Bee | mm | | --- | --- | | queen | | | worker | 12 |", "Sizes: Bee, mm; queen; worker, 12"),
        ("The size is: | x - y |", "The size is: | x - y |"),
        ("Write ``a`b`` or `` `c` ``.", "Write a`b or `c`."),
        ("\u871c\u8702**\u8df3\u821e**\u3002 \u201c*Bees*\u201d", "\u871c\u8702\u8df3\u821e\u3002 \u201cBees\u201d"),
        ("* * * * * runs each minute.", "* * * * * runs each minute."),
    ],
)
def test_marks_of_markdown_are_taken_off(text: str, expected: str) -> None:
    assert strip_marks(text) == expected


WORDS = ("Bees", "dance", "is", "and", "hive.", "keeps:", "lid,")
CODE = (
    "*args", "**kwargs", "f(*args,", "*rest)", "a_b", "_a", "b_", "__init__", "x[0](y)", "[f](a)", "a > b", "C#", "-1",
    "*.py", "**/*.md", "a*b*c", "(a)*b*(c)", "x ** y", "x * y", "List<b>", "<b>", "|x|", "int | None", "a || b", "#1",
    "--flag", "[0]", ">>> f()", "1.", "5",
)  # fmt: skip


@given(st.lists(st.sampled_from(WORDS + CODE), min_size=1).map(" ".join))
def test_code_among_words_stays_as_it_is(text: str) -> None:
    assert strip_marks(f"So {text}") == f"So {text}"


@pytest.mark.parametrize("text", ["`" * 200_000, f"[a]({'.md' * 40_000}", ": | " * 40_000 + "x"])
def test_a_reply_that_repeats_itself_is_read_in_linear_time(text: str) -> None:
    started = process_time()
    assert strip_marks(text) == text
    assert process_time() - started < 20  # they take less than a second together; in quadratic time, a minute each


@given(st.text("*_[](){}<>|#->/:.b1 ").map(lambda text: f"x{' '.join(text.split())}x"))
def test_code_between_its_marks_stays_as_it_is(code: str) -> None:
    assert strip_marks(f"- Call `{code}` *now*.") == f"Call {code} now."
