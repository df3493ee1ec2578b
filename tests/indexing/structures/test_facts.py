"""Facts without a model: sentences with their key elements."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.indexing.structures.fact_graph import MOST_KEYS, find_fact_spans, make_facts, normalise_key
from keystone.indexing.types import Document


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
