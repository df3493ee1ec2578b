"""Words in common: the sentences that a note rests on."""

import pytest

from keystone.generation.readers.graphreader.material import find_parts, find_support

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
