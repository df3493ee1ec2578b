"""The expected shape of a reply's JSON: it is found anywhere in the reply, and no other shape replaces it."""

import json

import pytest

from keystone.generation.structured import find_objects, read_list, read_objects, read_string, read_strings
from keystone.generation.types import Reply
from keystone.indexing.errors import Unusable


@pytest.mark.parametrize(
    "text", ['{"k": ["a"]}', '["a"]', 'Sure: {"k": ["a"]}.', '```json\n["a"]\n```', '<think>[1]</think>{"k": ["a"]}']
)
def test_a_list_is_found_under_its_key_or_alone(text: str) -> None:
    assert read_list(Reply(text), "k") == read_strings(Reply(text), "k") == ["a"]


@pytest.mark.parametrize(
    ("value", "message"),
    [({"k": "a"}, 'it holds no list "k"'), ({"other": []}, 'it holds no list "k"'), (5, 'it holds no list "k"'),
     ([5], 'the items of "k" are not all objects')],
)  # fmt: skip
def test_objects_are_found_or_the_reply_cannot_be_used(value: object, message: str) -> None:
    with pytest.raises(Unusable, match=message):
        read_objects(Reply(json.dumps(value)), "k")


@pytest.mark.parametrize("value", [{"k": "a"}, {"k": [1]}, {}, [None], "a"])
def test_strings_are_found_or_the_reply_cannot_be_used(value: object) -> None:
    with pytest.raises(Unusable, match='it is no JSON object with a list of strings under "k"'):
        read_strings(Reply(json.dumps(value)), "k")


@pytest.mark.parametrize(("value", "found"), [({"k": "a"}, "a"), ({"k": 1}, ""), ({}, ""), (["a"], ""), ("a", "")])
def test_a_string_is_found_under_its_key_alone(value: object, found: str) -> None:
    assert read_string(Reply(json.dumps(value)), "k") == found


FENCED = "First draft:\n```json\n%s\n```\nChecked, the final reply:\n```json\n%s\n```"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        pytest.param(FENCED % ('{"k": ["a"]}', '{"k": ["b"]}'), ["b"], id="two fences"),
        pytest.param('The form is {"k": ["a"]}. My reply:\n{"k": ["b"]}', ["b"], id="an example in prose"),
        pytest.param('{"k": ["b"]}, for {"why": ["a"]} and ["c"]', ["b"], id="other values after it"),
        pytest.param(FENCED % ('{"k": ["a", ...]}', '{"k": ["b"]}'), ["b"], id="a draft that is broken"),
        pytest.param('{"k": ["a"]} and {"k": "b"}', ["a"], id="the last one does not fit"),
        pytest.param('["a"] and then ["b"]', ["b"], id="lists alone"),
        pytest.param('{"k": ["a"]} and then {"k": ["b"', None, id="the last one is broken"),
        pytest.param('{"k": ["a"]}, {"k": ["b"], "k": ["b"]}', None, id="the last one repeats a key"),
    ],
)
def test_the_last_value_that_fits_counts(text: str, found: list[str] | None) -> None:
    if found is None:
        with pytest.raises(Unusable, match="broken"):
            read_strings(Reply(text), "k")
    else:
        assert read_strings(Reply(text), "k") == found


def test_all_objects_are_found_those_in_lists_too() -> None:
    assert find_objects(Reply('I say {"a": 1}, and [{"b": 2}, 3] or 4.')) == [{"a": 1}, {"b": 2}]
    assert find_objects(Reply('{"a": 1}', "length")) == [{"a": 1}]
    with pytest.raises(Unusable, match="cut"):
        find_objects(Reply('{"a": 1} and', "length"))
