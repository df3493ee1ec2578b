"""The forms in which servers reply and refuse: each known one is read, and any other is named."""

import math
from typing import Any

import pytest

from keystone.generation.grading.umbrela import read_grades
from keystone.generation.llm.cache import decode_reply, encode_reply
from keystone.generation.llm.chat import (
    FINISHES,
    MOST_REFUSED_SCHEMAS,
    Dialect,
    PaidReply,
    ReplyBound,
    find_other_dialect,
    find_room,
    find_schema,
    read_reply,
    write_body,
)
from keystone.generation.types import Failure, Reply, Request
from keystone.indexing.errors import UnknownForm, WrongReply
from keystone.indexing.io.json_values import read_whole_number

ANY = ReplyBound(None)


def read(message: dict[str, Any], finish: Any = "stop", bound: ReplyBound = ANY, **choice: Any) -> PaidReply:
    return read_reply({"choices": [{"message": message, "finish_reason": finish, **choice}]}, bound)


@pytest.mark.parametrize(
    "finish",
    ["error", "abort", "network_error", "ERROR", "insufficient_system_resource", "OTHER", "load", "RATE_LIMIT"],
)
def test_a_reply_that_broke_off_is_asked_for_again(finish: str) -> None:
    with pytest.raises(WrongReply, match="broke off"):
        read({"content": "Bees"}, finish)


def test_an_error_beside_a_message_says_that_the_reply_broke_off() -> None:
    with pytest.raises(WrongReply, match="broke off: the provider disconnected"):
        read({"content": "Bees"}, error={"code": 502, "message": "the provider disconnected"})


@pytest.mark.parametrize("finish", ["content_filter", "SAFETY", "RECITATION", "PROHIBITED_CONTENT", "content-filter"])
def test_a_reply_that_is_held_back_is_a_failure(finish: str) -> None:
    assert read({"content": "Bees"}, finish).outcome == Failure("a filter holds the reply back")


@pytest.mark.parametrize(
    "finish", ["length", "MAX_TOKENS", "FINISH_REASON_MAX_TOKENS", "model_length", "model_context_window_exceeded"]
)
def test_a_reply_that_was_cut_says_so(finish: str) -> None:
    assert read({"content": "Bees"}, finish) == read({"content": "Bees"}, "length")
    assert read({"content": None}, finish).outcome == Reply("", "length")


@pytest.mark.parametrize("finish", [None, "", "stop", "STOP", "eos", "end_turn", "tool_calls"])
def test_a_whole_reply_has_no_note(finish: Any) -> None:
    found = read({"content": "Bees"}, finish)
    assert (found.outcome, found.note) == (Reply("Bees"), "")


@pytest.mark.parametrize("finish", ["wings", 5, ["stop"], {"a": 1}, True])
def test_an_unknown_end_is_named(finish: Any) -> None:
    found = read({"content": "Bees"}, finish)
    assert found.outcome == Reply("Bees")
    assert "ends replies for an unknown reason" in found.note


def test_each_word_has_one_meaning() -> None:
    assert all(word == word.casefold() and "-" not in word for word in FINISHES)


@pytest.mark.parametrize(
    "content",
    [
        "Bees see.",
        [{"type": "text", "text": "Bees see."}],
        [{"type": "text", "text": None}, {"type": "text", "text": "Bees see."}],
        [{"type": "thinking", "thinking": [{"type": "text", "text": "Hm."}]}, {"type": "text", "text": "Bees see."}],
        [
            {"type": "reasoning", "text": "Hm."},
            {"type": "output_text", "text": "Bees "},
            {"type": "text", "text": "see."},
        ],
        ["Bees ", "see."],
        [{"text": "Bees see."}],
        {"type": "text", "text": {"value": "Bees see.", "annotations": []}},
    ],
)
def test_content_in_parts_is_joined_without_thoughts(content: Any) -> None:
    assert read({"content": content}) == PaidReply(Reply("Bees see."), read({"content": ""}).usage)


@pytest.mark.parametrize("key", ["reasoning_content", "reasoning", "thinking"])
@pytest.mark.parametrize("content", [None, ""])
def test_thoughts_beside_no_content_are_no_reply_and_named(key: str, content: Any) -> None:
    found = read({"content": content, key: 'Perhaps {"grade": 2}.'})
    assert found.outcome == Reply("")
    assert key in found.note
    assert read({"content": "Bees", key: "Hm."}).note == ""


def test_a_refusal_among_the_parts_is_a_failure() -> None:
    found = read({"content": [{"type": "refusal", "refusal": "I will not"}]}).outcome
    assert found == Failure("the model refuses: I will not")


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({"candidates": [], "usage": {}}, "without choices, but candidates, usage"),
        ({"choices": [{"text": "Bees", "index": 0}]}, "without message in its choice, but text, index"),
        ({"choices": [{"message": {"content": [{"type": "image", "data": ""}]}}]}, "but type image, data"),
        ({"choices": [{"message": {"content": 5}}]}, "content that is not text"),
        ({"choices": [{"message": {"content": None, "tool_calls": [{}]}}]}, "without content, but tool_calls"),
    ],
)  # fmt: skip
def test_an_unknown_form_is_named_by_the_members_that_it_has(body: Any, named: str) -> None:
    with pytest.raises(UnknownForm, match=named):
        read_reply(body, ANY)


SCHEMA = find_schema(write_body("m", Request("step", (), 9, {"type": "object"})))


@pytest.mark.parametrize(
    ("said", "dialect"),
    [
        ("This response_format type is unavailable now", Dialect(schemas=False)),
        ("Invalid schema for response_format 'reply': not permitted", Dialect(refused=frozenset({SCHEMA}))),
        ("The provided JSON schema contains features not supported by xgrammar.", Dialect(refused=frozenset({SCHEMA}))),
        ("failed to parse grammar", Dialect(refused=frozenset({SCHEMA}))),
        ("Structured outputs are not enabled", Dialect(refused=frozenset({SCHEMA}))),
        ("use 'max_completion_tokens' instead", Dialect(limit="max_completion_tokens")),
        ("'max_tokens' or 'max_completion_tokens' is too large", None),
        ("'temperature' does not support 0", Dialect(temperature=False)),
        ("`temperature` is deprecated for this model.", Dialect(temperature=False)),
        ("invalid temperature: only 1 is allowed for this model", Dialect(temperature=False)),
        ("You are not allowed to request logprobs", Dialect(logprobs=False)),
        ("Unrecognized request argument supplied: seed", Dialect(seed=False)),
        ('"loc": ["body", "seed"], "msg": "Extra inputs are not permitted"', Dialect(seed=False)),
        ("Argument not supported on this model: seed", Dialect(seed=False)),
        ("System role not supported", Dialect(system=False)),
        ("Conversation roles must alternate user/assistant/user/assistant/...", Dialect(system=False)),
        ("maximum context length is 1024 tokens", None),
    ],
)
def test_a_refusal_leads_to_the_dialect_that_it_names_once(said: str, dialect: Dialect | None) -> None:
    found = find_other_dialect(Dialect(), said, SCHEMA)
    assert (found[0] if found else None) == dialect
    if found:
        body = write_body("m", Request("step", (), 9, {"type": "object"}), dialect=found[0])
        assert find_other_dialect(found[0], said, find_schema(body)) is None


@pytest.mark.parametrize(
    ("said", "room"),
    [
        ("(1000 in the messages, 192 in the functions, and 8000 in the completion)", 7000),
        ("(7000 of text input, 192 of tool input, 8000 in the output)", 1000),
        ("your request has 1000 input tokens. Your request has 1000 input tokens", 7192),
        ("and your prompt contains at least 193 input tokens", 7066),
        ("more than 1920 characters, which is the upper bound for 192 input tokens", 7066),
        ("", 7066),
        ("(8000 in the messages, 8000 in the completion)", None),
    ],
)
def test_the_room_for_a_reply_is_what_the_prompt_leaves(said: str, room: int | None) -> None:
    asked = Request("step", (("user", "word" * 1000),), 8000)
    found = find_room(asked, f"maximum context length is 8192 tokens. {said}", Dialect(), again=False)
    assert (found[0] if found else None) == room
    assert find_room(asked, said, Dialect(), again=False) is None


def test_without_system_messages_their_texts_begin_those_of_the_user() -> None:
    messages = (("system", "Grade."), ("user", "Bees"), ("assistant", "2"), ("user", "Cats"))
    body = write_body("m", Request("step", messages, 9), dialect=Dialect(system=False))
    assert body["messages"] == [
        {"role": "user", "content": "Grade.\n\nBees"},
        {"role": "assistant", "content": "2"},
        {"role": "user", "content": "Cats"},
    ]


@pytest.mark.parametrize(
    "body",
    [
        {"object": "error", "message": "No wings", "code": 404},
        {"detail": "No wings"},
        {"error_code": 17, "error_msg": "No wings"},
        {"error": {"message": "No wings"}, "choices": []},
    ],
)
def test_an_error_with_status_200_says_its_text(body: Any) -> None:
    with pytest.raises(WrongReply, match="an error: No wings"):
        read_reply(body, ANY)


def test_a_server_that_refuses_several_schemas_gets_no_other() -> None:
    dialect, asked = Dialect(), Request("step", (), 9, {"type": "object"})
    for number in range(MOST_REFUSED_SCHEMAS):
        assert "response_format" in write_body("m", asked, dialect=dialect)
        found = find_other_dialect(dialect, "grammar", str(number))
        assert found
        dialect = found[0]
    assert "response_format" not in write_body("m", asked, dialect=dialect)


@pytest.mark.parametrize(
    ("value", "number"),
    [(2, 2), (2.0, 2), ("2", 2), ("2.0", 2), (" 2 ", 2), ("-1", -1), ("+3", 3), (True, None), (None, None), (2.5, None),
     ("2.5", None), ("two", None), ("", None), ([2], None), (math.inf, None), (math.nan, None), (1e99, None),
     ("9" * 5000, None), ("\u0662", None)],
)  # fmt: skip
def test_a_whole_number_is_read_in_each_form(value: Any, number: int | None) -> None:
    assert read_whole_number(value) == number


def token(text: str, alternatives: dict[str, float] | None = None, **more: Any) -> dict[str, Any]:
    listed = [{"token": each, "logprob": logprob} for each, logprob in (alternatives or {text: 0.0}).items()]
    return {"token": text, "top_logprobs": listed, **more}


LIKELY = {"3": math.log(0.4), "2": math.log(0.6)}
GRADE = [token('{"'), token("grade"), token('": '), token("2", LIKELY), token("}")]
THOUGHT = [token("<think>"), token('"grade": 2'), token("</think>"), token("\n\n")]


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        pytest.param(GRADE, 2.4, id="the text alone"),
        pytest.param([*THOUGHT, *GRADE], 2.4, id="after thoughts"),
        pytest.param([*GRADE, token("<|im_end|>")], 2.4, id="before a mark"),
        pytest.param([*GRADE[:3], token("2", {"2": -3.0, "3": -0.1}), token("}")], None, id="not the likeliest"),
        pytest.param([*GRADE[:3], token("2}\n", {"2}\n": -0.1, "1}\n": -0.1})], 1.5, id="an end that was cut"),
        pytest.param([token("\u2026", bytes=[0xE2]), token("\u2026", bytes=[0x80, 0xA6]), *GRADE], 2.4, id="in bytes"),
        pytest.param([token(' {"'), token("gr"), token("ade"), *GRADE[2:]], 2.4, id="a beginning that was cut"),
    ],
)
def test_an_expected_grade_is_found_by_the_texts_of_tokens(
    tokens: list[dict[str, Any]], expected: float | None
) -> None:
    found = read({"content": '{"grade": 2}'}, bound=ReplyBound(None, 4), logprobs={"content": tokens})
    assert isinstance(found.outcome, Reply)
    assert found.note == ""
    wanted = expected or (2 * math.exp(-3) + 3 * math.exp(-0.1)) / (math.exp(-3) + math.exp(-0.1))
    assert read_grades(found.outcome, ["grade"], expected=True) == pytest.approx([wanted])
    assert decode_reply(encode_reply(found)).outcome == found.outcome


@pytest.mark.parametrize("value", [None, -math.inf, math.nan])
def test_an_impossible_alternative_is_left_out(value: Any) -> None:
    tokens = [*GRADE[:3], token("2", {"2": -0.1, "3": value}), GRADE[4]]
    found = read({"content": '{"grade": 2}'}, bound=ReplyBound(None, 4), logprobs={"content": tokens}).outcome
    assert isinstance(found, Reply)
    assert found.logprobs[3] == {"2": -0.1}


def test_places_count_characters() -> None:
    tokens = [token("\u00e9\u2026"), token("a")]
    found = read({"content": "\u00e9\u2026a"}, bound=ReplyBound(None, 4), logprobs={"content": tokens}).outcome
    assert isinstance(found, Reply)
    assert found.starts == (0, 2)


@pytest.mark.parametrize(
    ("logprobs", "note"),
    [
        (None, "gives no log-probabilities"),
        ({"content": None}, "gives no log-probabilities"),
        ({"content": [token("other")]}, "of another text"),
        ({"tokens": ["2"], "top_logprobs": [{"2": -0.1}]}, "of another form, but tokens, top_logprobs"),
        ({"content": [{"token": "2", "logprob": -0.1}]}, "of another form"),
        ([5], "of another form"),
    ],
)
def test_log_probabilities_that_cannot_be_used_are_named(logprobs: Any, note: str) -> None:
    found = read({"content": '{"grade": 2}'}, bound=ReplyBound(None, 4), logprobs=logprobs)
    assert isinstance(found.outcome, Reply)
    assert read_grades(found.outcome, ["grade"], expected=True) == [2.0]
    assert note in found.note
