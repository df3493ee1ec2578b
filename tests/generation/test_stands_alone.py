"""Sentences that can be read without the text around them, and sentences with the subject that a title names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.generation.rules.answer import leave_out_repeats
from keystone.generation.rules.sentences import find_listed, read_sentence
from keystone.generation.rules.stands_alone import can_be_read, continues, explains_entry, explains_title, stands_alone
from keystone.generation.types import Evidence
from keystone.indexing.types import Document, Span


@pytest.mark.parametrize(
    "sentence",
    [
        "A colony of bees has one queen.",
        "The heart is a muscle that pumps blood through the body.",
        "Napoleon invaded Russia in the summer of 1812.",
        "To copy a folder, use the command for recursive copies.",
        "When a file is closed, it cannot be read again.",
        "Semaphores guard resources that have a limited capacity.",
        "The keeper deals with bees of 301, 302, 303 and 307 hives.",
        "To count the bees of a hive, keepers can use count().",
        "A wasp has the same enemies as a bee of the colony.",
        "The queen\u2019s sting has no barbs, so she can use it again.",
        "The US has many colonies of bees and drives for fast I/O.",
        "The counter lists all bees that live on this computer.",
    ],
)
def test_these_sentences_stand_alone(sentence: str) -> None:
    assert stands_alone(sentence)


@pytest.mark.parametrize(
    "sentence",
    [
        pytest.param("Too short a sentence.", id="too short"),
        pytest.param(" ".join(["A colony of bees has one queen"] * 8) + ".", id="too long"),
        pytest.param("it ends without the sign that ends a sentence", id="no full stop"),
        pytest.param("Is a colony of bees led by a queen?", id="a question"),
        pytest.param("A colony of bees has one queen and...", id="a cut sentence"),
        pytest.param("A colony of bees has one (and only one queen.", id="an open bracket"),
        pytest.param("and a colony of bees has one queen.", id="the rest of a sentence"),
        pytest.param("+-----+ | x | +----+ | y | .", id="a table"),
        pytest.param("f(x) = g[y] * h{z} and so on.", id="code"),
        pytest.param("Bees are divided as is known: \n- the queen has a sting.", id="an item of a list"),
        pytest.param("Home About Us Our Products Is Contact Sitemap Imprint.", id="a menu"),
        pytest.param("Figure 3: The queen is larger than workers are.", id="a caption"),
        pytest.param("Tools for work with bees and other small insects.", id="no verb"),
        pytest.param("This is the largest bee of the whole colony.", id="This"),
        pytest.param("These bees are the largest of the whole colony.", id="These"),
        pytest.param("Here a queen is the largest bee of the colony.", id="Here"),
        pytest.param("It is the largest bee of the whole colony.", id="it"),
        pytest.param("If they are hungry, bees look for flowers.", id="they, before a name"),
        pytest.param("However, a colony of bees has only one queen.", id="However"),
        pytest.param("Also, a colony of bees has only one queen.", id="Also"),
        pytest.param("In this case, a colony of bees has only one queen.", id="In this case"),
        pytest.param("For example, a colony of bees has only one queen.", id="For example"),
        pytest.param("A colony of such bees has only one queen.", id="such"),
        pytest.param("The rules of a colony are described below.", id="below"),
        pytest.param("A colony of bees is treated in the next chapter.", id="the next chapter"),
        pytest.param("The function returns the number of bees in a hive.", id="the function"),
        pytest.param("Returns the number of bees that a hive has.", id="no subject"),
        pytest.param("Count the bees that leave the hive in the morning.", id="an instruction"),
        pytest.param("If omitted, the bees of all hives are counted.", id="an option without a name"),
        pytest.param("The keeper counts the same bees again and again.", id="the same"),
        pytest.param("The hive is a home for us and for our bees.", id="us"),
        pytest.param("We think that a colony of bees has one queen.", id="first person"),
        pytest.param("hive - This is the home of a colony of bees.", id="an explanation that points"),
        pytest.param("Functionally identical to a hive of another kind of bees.", id="no subject of a comparison"),
        pytest.param("The bees of a hive are then counted by the keeper.", id="then"),
        pytest.param("Class for counting the bees that leave a hive.", id="a kind without a name"),
        pytest.param("hive - A home.", id="an explanation that is too short"),
        pytest.param("", id="nothing"),
    ],
)
def test_these_sentences_do_not_stand_alone(sentence: str) -> None:
    assert not stands_alone(sentence)


@given(st.text(max_size=200) | st.text('a bThis.,-()"\n', max_size=200))
def test_any_text_is_judged(text: str) -> None:
    assert explains_title(text, text[:1]) in (True, False)
    assert stands_alone(text) in (True, False)
    assert explains_entry(text) in (True, False)
    assert continues(text) in (True, False)


@pytest.mark.parametrize(
    ("sentence", "goes_on"),
    [
        ("It has one queen and many thousand workers.", True),
        ("They are the largest insects of the hive.", True),
        ("It is described in the next chapter of the book.", False),
        ("Bees have one queen and many thousand workers.", False),
        ("This keeps the honey warm in winter.", True),
        ("The keeper opens the hive for this purpose in spring.", True),
        ("However, the bees keep the honey warm in winter.", True),
        ("The bees keep the honey warm in winter.", False),
        ("The table below lists all keepers of these bees.", False),
    ],
)
def test_sentences_that_go_on_from_the_one_before(sentence: str, goes_on: bool) -> None:
    assert continues(sentence) == goes_on


@pytest.mark.parametrize(
    ("title", "text", "sentence"),
    [
        ("hive", "This module counts bees.", "The hive module counts bees."),
        ("A headline of many words", "This module counts bees.", "This module counts bees."),
        ("", "This module counts bees.", "This module counts bees."),
        ("hive", "This picture\nshows bees.", "This picture shows bees."),
        ("hive", "count(bees, most=3) -> int\nCount all bees.", "count() of hive - Count all bees."),
        ("", "count(bees)\nCount all bees.", "count() - Count all bees."),
        ("hive", "count(bees)\ncount(bees): count\nall bees.", "count() of hive - Count all bees."),
        ("hive", "count(bees)\ncount() - count bees.", "count() of hive - Count bees."),
        ("hive", "hive - A counter of bees", "hive - A counter of bees."),
        ("hive", "Bees are counted\nby this module.", "Bees are counted by the hive module."),
        ("hive", "Bees leave this\nprogram.", "Bees leave this program."),
        ("hive", "An *old queen* of the `Hive` is **big** (see Queens).", "An old queen of the Hive is big."),
        ("hive", "2 * 3 * 4 and a*b*c are products.", "2 * 3 * 4 and a*b*c are products."),
        ("hive", "* On some days bees rest.", "On some days bees rest."),
        ("hive", "count(bees), sum() -- count all\n  bees;", "count(), sum() of hive - Count all bees."),
        ("", "- count (bees) - count all bees", "count() - Count all bees."),
        ("hive", "BEE_MAX -- the most bees", "BEE_MAX of hive - The most bees."),
        ("hive", "  queen     The mother of all bees.", "queen of hive - The mother of all bees."),
        ("hive", "bees  Wasps and others", "bees Wasps and others"),
        ("hive", "Bees can be counted in the dark:", "Bees can be counted in the dark."),
        ("hive", "Bees are counted in two ways:", "Bees are counted in two ways:"),
        ("hive", "To count bees:", "To count bees:"),
        ("hive", "Bees are counted with:", "Bees are counted with:"),
    ],
)
def test_a_sentence_is_read_with_its_subject(title: str, text: str, sentence: str) -> None:
    document = Document("d", text, title)
    assert read_sentence(document, Span("d", 0, len(text))) == sentence


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param("count(bees)\n{Count all bees.} Then rest.", "count() of hive - Count all bees.", id="first"),
        pytest.param("count(bees)\nCount all bees. {Drones are bees.}", "Drones are bees.", id="second"),
        pytest.param("count(bees)\n{Count bees}\n\nmore", "count() of hive - Count bees.", id="without a full stop"),
        pytest.param("count(bees)\n{Count}\nall bees.", "count() of hive - Count", id="a part of a sentence"),
        pytest.param("count(bees)\n\n{Drones are bees.}", "Drones are bees.", id="another paragraph"),
        pytest.param("class Hive(Home)\nHive(bees)\n\n{A home.}", "Hive() of hive - A home.", id="class"),
        pytest.param("class a.Hive(Home)\n{A home.}", "a.Hive() of hive - A home.", id="class of a module"),
        pytest.param("class b.Hive(Home)\n\nfly(self)\n{Leave it.}", "fly() of hive - Leave it.", id="method"),
        pytest.param("hive.fly(self)\n\n   {Leave it.}", "hive.fly() of hive - Leave it.", id="an indented paragraph"),
        pytest.param(
            "fly() method of hive.Bee instance\n{Leave it.}", "fly() of hive - Leave it.", id="method of an object"
        ),
    ],
)
def test_the_line_before_a_sentence_names_its_subject(text: str, sentence: str) -> None:
    start, end = text.index("{"), text.index("}") - 1
    document = Document("d", text.replace("{", "").replace("}", ""), "hive")
    assert read_sentence(document, Span("d", start, end)) == sentence


@pytest.mark.parametrize(
    ("explanation", "explained"),
    [
        ("Wait for a bee.", True),
        ("Called when a bee leaves the hive.", True),
        ("A home, which is warm.", True),
        ("Leave the hive if it is warm.", True),
        ("Fly far away.", False),
        ("Then wait for a bee.", False),
        ("It waits for a bee.", False),
        ("Wait for this bee.", False),
        ("Wait for the given bee.", True),
        ("Chooses k of the bees.", True),
        ("This class waits for a bee.", True),
        ("This waits for a bee.", True),
        ("Wait for a bee", False),
        ("wait for a bee.", False),
        ("Like bees = 0 of the hive.", False),
        ("We wait for a bee.", False),
    ],
)
def test_the_explanation_of_an_entry_has_the_entry_as_its_subject(explanation: str, explained: bool) -> None:
    assert explains_entry(f"Bee.wait() of hive - {explanation}") == explained
    assert not explains_entry(explanation)


@pytest.mark.parametrize(
    ("sentence", "read"),
    [
        pytest.param("A colony of bees has one queen.", True, id="stands alone"),
        pytest.param("Bee.wait() of hive - Wait for a bee.", True, id="explains an entry"),
        pytest.param("Bee Hive - A home of insects.", True, id="explains the title"),
        pytest.param("Wasp Nest - A home of insects.", False, id="explains another title"),
        pytest.param("A colony of bees has one queen", False, id="no full stop"),
    ],
)
def test_sentences_that_can_be_read(sentence: str, read: bool) -> None:
    assert can_be_read(sentence, "Bee Hive") == read


@pytest.mark.parametrize("name", ["wait(), fly() of hive", "queen of hive", "BEE_MAX of hive", "BEE_MAX"])
def test_names_of_lists_are_entries(name: str) -> None:
    assert explains_entry(f"{name} - Wait for a bee.")


@pytest.mark.parametrize(
    ("text", "listed"),
    [
        pytest.param("fly() - leave\nwait() - rest\n", ["fly() - leave", "wait() - rest"], id="calls"),
        pytest.param("fly() -- leave the\n  hive\n\nmore", ["fly() -- leave the\n  hive"], id="two lines"),
        pytest.param("fly() - Leave.\nBees rest.", ["fly() - Leave."], id="a full stop ends it"),
        pytest.param("queen  Mother.\ndrone  Father of.", ["queen  Mother.", "drone  Father of."], id="columns"),
        pytest.param("bee.  Wasps rest.\nbees - insects\n", [], id="prose"),
        pytest.param("", [], id="nothing"),
    ],
)
def test_lines_of_lists_are_found(text: str, listed: list[str]) -> None:
    assert [text[start:end] for start, end in find_listed(text)] == listed


@given(st.text("fly() -\nAb.", max_size=80))
def test_lines_of_lists_are_disjoint_and_in_order(text: str) -> None:
    borders = [border for span in find_listed(text) for border in span]
    assert borders == sorted(borders)
    assert all(start < end <= len(text) for start, end in find_listed(text))


@pytest.mark.parametrize(
    ("sentence", "explained"),
    [
        pytest.param("bee.hive - A home of insects.", True, id="with an article"),
        pytest.param("bee.hive - Counter of insects.", True, id="two new words"),
        pytest.param("bee.hive - Bee hive counter.", False, id="little more than the title"),
        pytest.param("bee.hive - Module of hive counters.", False, id="a kind and one new word"),
        pytest.param("bee.hive - Counter insects.", False, id="too short"),
        pytest.param("bee.hive - Home About Our Products.", False, id="a menu"),
        pytest.param("wasp.nest - A home of insects.", False, id="another title"),
        pytest.param("A home of insects.", False, id="no title"),
    ],
)
def test_an_explanation_of_the_title_stands_alone_if_it_says_more(sentence: str, explained: bool) -> None:
    assert explains_title(sentence, "bee.hive") == explained


def test_a_sentence_that_repeats_a_better_one_is_left_out() -> None:
    texts = ("Bees collect nectar from flowers.", "Flowers give nectar, which bees collect.", "Glaciers move slowly.")
    items = [Evidence(Span("d", n, n + 1), text, 1.0 + n, "1") for n, text in enumerate(texts)]
    assert leave_out_repeats(items) == items[1:]
