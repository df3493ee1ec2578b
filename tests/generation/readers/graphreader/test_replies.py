"""Replies of a model that explores a graph: every usable form is read, and every other one is refused."""

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from keystone.generation.context.texts import count_tokens
from keystone.generation.readers.graphreader.material import find_parts, find_support
from keystone.generation.readers.graphreader.replies import (
    Call,
    cap_notebook,
    disarm,
    find_chunk_numbers,
    find_last_call,
    read_facts,
    read_plan,
    read_scores,
    read_step,
)
from keystone.generation.types import Reply
from keystone.indexing.errors import Unusable
from tests.support.mutation import FUZZ_CASES, mutate

DAMAGED = FUZZ_CASES or 1_000

LINES = """Here are the facts:
1. Bees live in hives. | bees | hives
[2], [A hive has one queen.], [hive | queen]
**3. Mites harm bees.** | mites | bees |
| 4 | Bees dance. | bees | dance |
No keys here.
- Honey is sweet | honey"""
NODES = """Node: Danko Jones (band), Score: 90
1. **Node:** Toronto, **Score:** 100
- node: [Casa Loma] | score = 7
Node: Score of 12, Score: 250
Node: , Score: 4
Nothing"""
STEP = """*Updated Notebook*:
The performer of Never Too Loud is Danko Jones.
*Rationale for Next Action*: search_more() would not help.
*Chosen Action*: read_chunk(["C6", C13])"""


def test_facts_are_read_in_each_form() -> None:
    assert read_facts(Reply(LINES)) == [
        ("Bees live in hives.", ("bees", "hives")),
        ("A hive has one queen.", ("hive", "queen")),
        ("Mites harm bees.", ("mites", "bees")),
        ("Bees dance.", ("bees", "dance")),
        ("Honey is sweet", ("honey",)),
    ]
    assert len(read_facts(Reply(LINES, "length"))) == 4
    with pytest.raises(Unusable, match="no line of the form"):
        read_facts(Reply("Bees live in hives. Honey is sweet."))


@pytest.mark.parametrize(
    ("line", "fact"),
    [
        ("It was founded in 1996, in Toronto | band", "It was founded in 1996, in Toronto"),
        ("It was founded in 1996 | band", "It was founded in 1996"),
        ("1996: The band was founded | band", "1996: The band was founded"),
        ("The band - a trio - plays | band", "The band - a trio - plays"),
        ("[1] It opened in 1914. | band", "It opened in 1914."),
        ("Fact 1: The band is a trio | band", "The band is a trio"),
        ("**Fact 1:** The band is a trio | band", "The band is a trio"),
        ("**Fact 1**: The band is a trio | band", "The band is a trio"),
        ("**1.** The band is a trio | band", "The band is a trio"),
        ("- **[1]** The band is a trio | band", "The band is a trio"),
        ("- **Their** song **1. Never** is old | band", "Their** song **1. Never** is old"),
        ("**1996:** the band was founded | band", "1996:** the band was founded"),
    ],
)
def test_only_the_number_before_a_fact_is_left_out(line: str, fact: str) -> None:
    assert read_facts(Reply(line)) == [(fact, ("band",))]


def test_scores_are_read_with_their_nodes() -> None:
    assert read_scores(Reply(NODES)) == [
        ("Danko Jones (band)", 90),
        ("Toronto", 100),
        ("Casa Loma]", 7),
        ("Score of 12", 100),
    ]
    with pytest.raises(Unusable):
        read_scores(Reply("Toronto, I think."))


def test_a_plan_is_one_line_of_limited_length() -> None:
    assert read_plan(Reply("<think>Hm.</think>\nFirst find\nthe band.")) == "First find the band."
    assert count_tokens(read_plan(Reply("word " * 5000))) == 300
    with pytest.raises(Unusable):
        read_plan(Reply("<think>Hm.</think>  "))


NOTE = "The performer of Never Too Loud is Danko Jones."


@pytest.mark.parametrize(
    ("text", "notebook", "call"),
    [
        pytest.param(STEP, NOTE, Call("read_chunk", '["C6", C13]'), id="the form of the paper"),
        pytest.param(
            "**Chosen Action:** termination()\n\n**Updated Notebook:**\nA.", "A.", Call("termination"), id="other order"
        ),
        pytest.param("### Chosen Action\nsearch_more()", "", Call("search_more"), id="headings of Markdown"),
        pytest.param(
            "2. *Chosen Action*: search_more() or rather read_neighbor_node(Danko Jones (band))",
            "",
            Call("read_neighbor_node", "Danko Jones (band)"),
            id="the last call counts, with nested parentheses",
        ),
        pytest.param(
            "*Chosen Action*: read_neighbour_node(Bees", "", Call("read_neighbor_node", "Bees"), id="not closed"
        ),
        pytest.param("I go on.\nsearch_more()", "", Call("search_more"), id="a call in the last line"),
        pytest.param(
            "*Updated Notebook*: (unchanged)\n*Chosen Action*: Termination ()", "", Call("termination"), id="same"
        ),
        pytest.param(
            "<think>termination()</think>*Chosen Action*: search_more()", "", Call("search_more"), id="after a thought"
        ),
    ],
)
def test_a_step_is_a_notebook_and_the_last_call_of_its_action(text: str, notebook: str, call: Call) -> None:
    assert read_step(Reply(text)) == (notebook, call)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "termination() is too early.\nI do not know.",
        "*Rationale for Next Action*: termination()\n*Chosen Action*: I stop.",
        "*Chosen Action*: finish()",
    ],
)
def test_a_step_without_a_call_in_its_place_is_refused(text: str) -> None:
    with pytest.raises(Unusable, match="function call"):
        read_step(Reply(text))


def test_chunks_are_named_by_ids_or_numbers() -> None:
    assert find_chunk_numbers("[C6, 'ID-9', c13, 4, C6]") == [6, 9, 13, 4]
    assert find_chunk_numbers("all, C12x, ABC3, C1234567") == []


def test_a_notebook_keeps_its_last_sentences() -> None:
    notebook = " ".join(f"Point {number} says something new." for number in range(100))
    kept = cap_notebook(notebook, 50)
    assert notebook.endswith(kept)
    assert kept.startswith("Point ")
    assert 40 < count_tokens(kept) <= 50
    assert cap_notebook("word " * 100, 10) == "word word word word word word word word"
    assert cap_notebook("Short.", 10) == "Short."


def test_calls_in_a_text_are_no_calls_any_more() -> None:
    for text in ("read_chunk(C1)", "TERMINATION ()", "*Chosen Action*: search_more()", "read_neighbor_node( x)"):
        assert find_last_call(text) is not None
        assert find_last_call(disarm(text)) is None


READERS: list[tuple[Callable[[Reply], Any], str]] = [
    (read_facts, LINES),
    (read_scores, NODES),
    (read_step, STEP),
    (read_plan, STEP),
]


@pytest.mark.slow
@pytest.mark.parametrize(("read", "text"), READERS, ids=[read.__name__ for read, _ in READERS])
def test_many_damaged_replies_are_read_or_refused(read: Callable[[Reply], Any], text: str) -> None:
    chance = Random(0)
    refused = 0
    for _ in range(DAMAGED):
        damaged = mutate(text.encode(), chance).decode("utf-8", "surrogateescape")
        try:
            read(Reply(damaged, chance.choice(["stop", "stop", "length"])))
        except Unusable:
            refused += 1
    assert refused < DAMAGED


STRETCHES = [
    find_parts(text)
    for text in (
        "The band Danko Jones was founded in Toronto.",
        "Casa Loma is a mansion in Toronto with 98 rooms.",
        "Ships follow the lighthouse.",
        "\u591a\u4f26\u591a\u6709\u4e00\u5ea7\u57ce\u5821\u3002",
    )
]


@pytest.mark.parametrize(
    ("note", "expected"),
    [
        pytest.param("Danko Jones come from Toronto.", [0], id="most words in common"),
        pytest.param(
            "The mansion Casa Loma has 98 rooms; the founders of Danko Jones saw it.", [1, 0], id="two stretches"
        ),
        pytest.param("A lighthouse.", [2], id="a note of one word"),
        pytest.param("The performer is unknown, and the city too.", [], id="nothing in common"),
        pytest.param(
            "Toronto has many other famous places, and none of them is of use here.", [], id="one of many words"
        ),
        pytest.param("It is so.", [], id="no word with content"),
        pytest.param("\u591a\u4f26\u591a\u57ce\u5821", [3], id="characters without spaces"),
    ],
)
def test_a_note_rests_on_the_stretches_that_share_its_words(note: str, expected: list[int]) -> None:
    assert find_support(note, STRETCHES) == expected


def test_without_stretches_a_note_rests_on_none() -> None:
    assert find_support("Danko Jones", []) == []
