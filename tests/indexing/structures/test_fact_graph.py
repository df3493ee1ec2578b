"""Facts without a model, their keys in one form, and the graph of the keys' co-occurrence in facts."""

from itertools import chain, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.indexing.structures.fact_graph import (
    DEMONYMS,
    MOST_KEYS,
    find_fact_spans,
    find_key,
    find_neighbours,
    find_numbers,
    fold_key,
    is_slip,
    join_graphs,
    make_facts,
    make_graph,
    normalise_key,
)
from keystone.indexing.types import Document

FACTS = {
    6: ("Never Too Loud", "studio album", "Canadian", "hard rock band", "Danko Jones"),
    9: ("Danko Jones", "Canadian", "hard rock trio", "Toronto"),
    13: ("Casa Loma", "Gothic Revival", "castle-style mansion", "Toronto", "Canada"),
}
"""The key elements of the facts from chunks 6, 9 and 13 of the paper's example (Figure 21)."""

KEYS = st.lists(
    st.sampled_from(["Bee", "bees", "The Bee", "honey", "\u201chives\u201d", "12 hives", "13 hives", "Dutch", "", "!"])
    | st.text(st.sampled_from("aA1\u00b2\uff11\u00bd s'.\u0130\u00df"), max_size=6),
    max_size=5,
)
DOCUMENTS = st.lists(st.lists(KEYS, max_size=5), max_size=4)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Danko Jones", "danko jones"),
        ("the band", "Bands"),
        ("\u201cNever Too Loud\u201d", "Never Too Loud"),
        ("Canadian", "Canada"),
        ("Canadians", "Canada"),
        ("Dutch", "The Netherlands"),
        ("city", "cities"),
        ("Danko Jones's", "Danko Jones"),
        ("\uff11\uff12 shops", "12 shops"),
        ("hard  rock\nband", "hard rock band"),
    ],
)
def test_two_ways_to_write_a_key_have_one_form(one: str, other: str) -> None:
    assert normalise_key(one) == normalise_key(other) != ""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("1911", "1914"),
        ("10\u00b2", "102"),
        ("1990s", "1990"),
        ("-5", "5"),
        ("0.5", "5"),
        ("glass", "glas"),
        ("bus", "bu"),
        ("Canadian river", "Canada river"),
        ("Casa Loma", "cas Loma"),
        ("The", "a"),
    ],
)
def test_different_keys_have_different_forms(one: str, other: str) -> None:
    assert normalise_key(one) != normalise_key(other)


@given(KEYS, KEYS)
def test_keys_of_one_form_have_the_same_numbers(ones: list[str], others: list[str]) -> None:
    for one, other in zip(ones, others, strict=False):
        if normalise_key(one) == normalise_key(other):
            assert find_numbers(one) == find_numbers(other)
        if is_slip(one, other):
            assert find_numbers(one) == find_numbers(other)


def test_a_country_in_the_table_has_the_form_of_its_name() -> None:
    assert all(fold_key(country) == country == normalise_key(country) for country in DEMONYMS.values())


def test_neighbours_are_those_of_the_paper() -> None:
    graph = make_graph(list(FACTS.values()), {"hard rock trio": "hard rock band"})

    def name_neighbours(label: str) -> set[str]:
        return {graph.labels[key] for key in find_neighbours(graph, normalise_key(label))}

    assert name_neighbours("Never Too Loud") == {"hard rock band", "Danko Jones", "studio album", "Canada"}
    assert name_neighbours("Danko Jones") == {"hard rock band", "Never Too Loud", "studio album", "Canada", "Toronto"}
    assert graph.holders["toronto"] == (1, 2)
    assert find_key(graph, "Never Too Lou", list(graph.labels)) == "never too loud"


def test_an_alias_of_another_number_is_ignored_and_all_aliases_are_kept() -> None:
    graph = make_graph(
        [["house of 1911", "Casa Loma", "castle"]], {"castle": "Casa Loma", "house of 1911": "Casa Loma"}
    )
    assert graph.written["casa loma"] == {"Casa Loma": 1, "castle": 1}
    assert set(graph.labels.values()) == {"Casa Loma", "house of 1911"}


def test_a_written_key_is_found_by_its_form_or_but_for_a_slip_and_never_by_another_number() -> None:
    graph = make_graph([["mansion of 1911", "Danko Jones (band)", "Toronto"]])
    keys = list(graph.labels)
    assert find_key(graph, '"The Toronto"', keys) == "toronto"
    assert find_key(graph, "Danko Jone (band)", keys) == normalise_key("Danko Jones (band)")
    assert find_key(graph, "mansion of 1914", keys) is None
    assert find_key(graph, "Toronto", keys[:1]) is None
    assert find_key(graph, "", keys) is None


@given(st.lists(KEYS, max_size=8))
def test_the_graph_is_symmetric_and_its_weights_are_co_occurrences(facts: list[list[str]]) -> None:
    graph = make_graph(facts)
    forms = [{normalise_key(key) for key in keys} - {""} for keys in facts]
    for key in graph.labels:
        wanted = {
            other: sum(key in own and other in own for own in forms)
            for other in graph.labels
            if other != key and any(key in own and other in own for own in forms)
        }
        found = find_neighbours(graph, key)
        assert found == wanted
        assert list(found.values()) == sorted(found.values(), reverse=True)
        assert all(find_neighbours(graph, other)[key] == weight for other, weight in found.items())


@pytest.mark.slow
@given(DOCUMENTS, DOCUMENTS, DOCUMENTS)
def test_joining_graphs_is_associative_and_equals_one_graph_of_all_facts(
    one: list[list[list[str]]], two: list[list[list[str]]], three: list[list[list[str]]]
) -> None:
    graphs = [join_graphs([make_graph(facts) for facts in documents]) for documents in (one, two, three)]
    left = join_graphs([join_graphs(graphs[:2]), graphs[2]])
    right = join_graphs([graphs[0], join_graphs(graphs[1:])])
    assert left == right == make_graph(list(chain.from_iterable([*one, *two, *three])))
    assert left.labels == right.labels


def find_keys(text: str) -> list[tuple[str, ...]]:
    return [fact.keys for fact in make_facts(Document("d", text))]


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        pytest.param("Never Too Loud came out in spring.", "Never Too Loud", id="a title of words without content"),
        pytest.param("In spring Danko Jones toured.", "Danko Jones", id="a name"),
        pytest.param("The Council of the City met again.", "Council of the City", id="a name with links"),
        pytest.param("They met in Studio 606 at night.", "Studio 606", id="a name with a number"),
        pytest.param("They counted 12 shops at night.", "12 shops", id="a number with its noun"),
        pytest.param("They met in 1911 and at night.", "1911", id="a number alone"),
        pytest.param("They met in the harbour at night.", "harbour", id="a word with content"),
    ],
)
def test_names_amounts_and_words_are_keys(sentence: str, expected: str) -> None:
    ((*keys,),) = find_keys(sentence)
    assert expected in keys
    assert not {"In", "The", "They", "606"} & set(keys)


def test_the_first_word_of_a_sentence_is_a_name_unless_it_stands_in_lower_case_elsewhere() -> None:
    first, second = find_keys("Mites kill many bees here. Toronto fears the mites.")
    assert "Mites" not in first[:1]
    assert second[0] == "Toronto"


def test_words_of_few_sentences_come_before_words_of_all() -> None:
    facts = find_keys("A river froze once. A river flooded valleys. A river carried timber. A river dried last year.")
    assert facts[1][-1] == "river"


@given(st.text(st.sampled_from("Ab c1.2 ,\n\u4e2d\u00e9'-") | st.characters(), max_size=300))
def test_facts_are_ordered_sentences_with_distinct_keys(text: str) -> None:
    facts = make_facts(Document("d", text))
    assert [(fact.start, fact.end) for fact in facts] == find_fact_spans(text)
    assert all(one.end <= other.start for one, other in pairwise(facts))
    for fact in facts:
        forms = [normalise_key(key) for key in fact.keys]
        assert len(forms) == len(set(forms)) <= MOST_KEYS
        assert all(forms)
        assert all(key in text for key in fact.keys)
