"""The JSON of a reply: found anywhere in it, in no other shape, and never in the thoughts around it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.generation.queries.enrich import read_passage
from keystone.generation.replies import (
    find_objects,
    read_json,
    read_list,
    read_objects,
    read_string,
    read_strings,
    strip_thought,
)
from keystone.generation.rerank.open import read_ranking
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


MARKS = {
    "think": ("<think>", "</think>"),
    "thinking": ("<thinking>", "</thinking>"),
    "thought": ("<thought>", "</thought>"),
    "reasoning": ("<reasoning>", "</reasoning>"),
    "a name space": ("<seed:think>", "</seed:think>"),
    "capitals": ("<THINK>", "</THINK>"),
    "Mistral": ("[THINK]", "[/THINK]"),
    "Kimi": ("\u25c1think\u25b7", "\u25c1/think\u25b7"),
    "Command": ("<|START_THINKING|>", "<|END_THINKING|><|START_RESPONSE|>"),
    "Gemma": ("<|channel>thought\n", "<channel|>"),
    "Gemma, unused": ("<unused94>thought\n", "<unused95>"),
    "Apertus": ("<|inner_prefix|>", "<|inner_suffix|>"),
    "Granite": ("Here is my thought process: ", "Here's my response:"),
    "Ollama": ("Thinking...\n", "\n...done thinking.\n"),
    "gpt-oss": ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
    "gpt-oss with a form": ("<|channel|>analysis<|message|>", "<|channel|>final <|constrain|>json<|message|>"),
}
ENDS = {name: ("", end) for name, (_, end) in MARKS.items()}
WORDS = st.text(st.sampled_from("ab {}[]:,0\n<>|"), max_size=30)
DRAFT, FINAL = '{"ranking": [3, 2, 1]}', '{"ranking": [1, 2, 3]}'


@pytest.mark.parametrize(
    ("begin", "end"), [*MARKS.values(), *ENDS.values()], ids=[*MARKS, *(f"end: {n}" for n in ENDS)]
)
def test_thoughts_before_a_reply_are_skipped(begin: str, end: str) -> None:
    said = f"{begin}Perhaps {DRAFT}, or the moon. No.\n{end}"
    assert read_ranking(Reply(f"{said}\n\n{FINAL}"), 3) == [0, 1, 2]
    assert read_ranking(Reply(f"{said}Sure:\n```json\n{FINAL}\n```"), 3) == [0, 1, 2]
    assert read_passage(Reply(f"{said}\n\nBees smell flowers.")) == "Bees smell flowers."
    assert read_passage(Reply(f"{said}{said}Bees smell flowers.")) == "Bees smell flowers."


@pytest.mark.parametrize(("begin", "end"), MARKS.values(), ids=MARKS)
def test_thoughts_without_a_reply_are_none(begin: str, end: str) -> None:
    for text in (f"{begin}Perhaps {DRAFT}", f"{begin}Perhaps {DRAFT}{end}", f"Perhaps {DRAFT}{end}\n"):
        with pytest.raises(Unusable):
            read_ranking(Reply(text), 3)
        with pytest.raises(Unusable):
            read_passage(Reply(text))


@pytest.mark.parametrize(
    ("text", "reply"),
    [
        ("<think>a</think>b</think>c", "c"),
        ("The reply.<think>Was it right?</think>", "The reply."),
        ("analysisWe need a passage.assistantfinalBees smell flowers.", "Bees smell flowers."),
        ("analysis of flowers by bees", "analysis of flowers by bees"),
        ("<|channel|>final<|message|>Bees.<|return|>", "Bees."),
        ("Bees.<|im_end|>\n<|im_start|>user\nAnd wasps?", "Bees."),
        ("<|im_start|>assistant\nBees.<|im_end|>", "Bees."),
        ("Bees.<|eot_id|>", "Bees."),
        ("Bees.<end_of_turn>\n", "Bees."),
        ("Bees.</s>", "Bees."),
        ("Bees.<|endoftext|>Wasps.", "Bees."),
        ("<think>Hm.</think>\n<answer>Bees.</answer>\n", "Bees."),
        ('{"text": "the mark <|im_end|> ends"}<|im_end|>', '{"text": "the mark <|im_end|> ends"}'),
        ("a < b > c [think about it] | <b>", "a < b > c [think about it] | <b>"),
    ],
)
def test_what_is_left_of_a_text(text: str, reply: str) -> None:
    assert strip_thought(text) == reply


@pytest.mark.parametrize("end", [end for _, end in MARKS.values()], ids=MARKS)
def test_a_mark_in_a_string_of_json_is_no_mark(end: str) -> None:
    value = {"text": f"Its thoughts end with {end}, as the manual says."}
    for before in ("", "Sure: ", f"<think>Perhaps {DRAFT}?</think>"):
        assert read_json(Reply(before + json.dumps(value))) == value
        assert read_json(Reply(f"{before}```json\n{json.dumps(value)}\n```")) == value


@given(WORDS, st.sampled_from([end for _, end in MARKS.values()]), WORDS)
def test_a_thought_changes_no_reply(thought: str, end: str, more: str) -> None:
    assert strip_thought(f"{thought}{end}{FINAL}{more}") == f"{FINAL}{more}"


@given(st.text(st.sampled_from('abc {}[]"0,:\n')))
def test_a_text_without_marks_stays(text: str) -> None:
    assert strip_thought(text) == text
