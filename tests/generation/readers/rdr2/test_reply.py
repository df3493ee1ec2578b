"""A router's reply: the actions that count, the reasons of those that do not, and no other error for any text."""

import json
from random import Random

import pytest

from keystone.generation.readers.rdr2.view import Choice, View, read_choice
from keystone.generation.types import Reply
from keystone.indexing.errors import Unusable
from tests.support.mutation import FUZZ_CASES, mutate

DAMAGED = FUZZ_CASES or 1_000

CONTENT = {
    19: "Ring of Fire opened in 2006.",
    41: "It is 139 metres high.",
    43: "A record.",
    44: "The fastest of all coasters",
}
VIEW = View("", CONTENT, {-1: "Six Flags", 3: "==History==", 40: "===Records==="})


@pytest.mark.parametrize(
    ("text", "answers", "expands"),
    [
        pytest.param("[ANSWER] 41", [41], [], id="alone"),
        pytest.param("[ANSWER] 41, 44", [41, 44], [], id="several"),
        pytest.param("[ANSWER] 41 and 44; 19", [41, 44, 19], [], id="several in prose"),
        pytest.param("[ANSWER] [41, 44]", [41, 44], [], id="a list"),
        pytest.param("[ANSWER] 41: It is 139 metres high\n[EXPAND] 40: ===Records===", [41], [40], id="with words"),
        pytest.param("[ANSWER] 41: it is 139 meters hi...", [41], [], id="words with slips"),
        pytest.param("[ANSWER] 44 – fastest of all coasters", [44], [], id="words from within, after a smart dash"),
        pytest.param("[EXPAND] –1", [], [-1], id="smart dash as minus"),
        pytest.param("[EXPAND] −1: Six Flags", [], [-1], id="minus sign"),
        pytest.param("[ANSWER] 41–44", [41, 43, 44], [], id="a range with a smart dash"),
        pytest.param("[ANSWER] 41 - 1998", [41], [], id="a number as words"),
        pytest.param("- **[ANSWER]** 41\n2. [answer] node 44", [41, 44], [], id="bullets, bold, small letters"),
        pytest.param("> `[Expand] id: 40`", [], [40], id="quoted code"),
        pytest.param("【ANSWER】41", [41], [], id="wide brackets"),
        pytest.param("```\n[ANSWER] 41\n```", [41], [], id="fenced"),
        pytest.param("<think>[ANSWER] 19</think>\n[ANSWER] 41", [41], [], id="after thoughts"),
        pytest.param("[ANSWER] 41\n[ANSWER] 41\n[EXPAND] 3\n[EXPAND] 3", [41], [3], id="repeated"),
        pytest.param("[REFUSE]\n[ANSWER] 41", [41], [], id="a refusal beside a choice"),
        pytest.param("I cannot answer all of it.\n[EXPAND] 40", [], [40], id="a refusal in prose beside a choice"),
        pytest.param("[REFUSE]", [], [], id="refusal"),
        pytest.param("The outline cannot answer this.", [], [], id="refusal in prose"),
        pytest.param("It can't answer that", [], [], id="short refusal"),
        pytest.param('[{"id": 41, "tag": "[ANSWER]"}, {"id": "40", "tag": "EXPAND"}]', [41], [40], id="JSON"),
        pytest.param('```json\n[{"id": 41, "tag": "answer", "explanation": "x"}]\n```', [41], [], id="fenced JSON"),
        pytest.param(
            '[{"id": 41, "tag": "ANSWER", "explanation": "44 cannot answer it"}]', [41], [], id="JSON that says so"
        ),
        pytest.param('{"tag": "REFUSE"}', [], [], id="JSON refusal"),
        pytest.param('{"id": "–1", "tag": "EXPAND"}', [], [-1], id="JSON with a smart dash"),
    ],
)
def test_a_choice_is_read(text: str, answers: list[int], expands: list[int]) -> None:
    assert read_choice(Reply(text), VIEW) == Choice(tuple(answers), tuple(expands))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("[ANSWER] 42", "42 is not shown"),
        ("[EXPAND] 4000", "4000 is not shown"),
        ("[ANSWER] 40: ===Records===", "40 is a heading"),
        ("[EXPAND] 41", "41 is no heading"),
        ("[ANSWER] 41: Ring of Fire opened in 2006.", "41 has other words"),
        ('{"id": 42, "tag": "ANSWER"}', "42 is not shown"),
    ],
)
def test_an_impossible_action_does_not_count_and_is_explained(line: str, reason: str) -> None:
    with pytest.raises(Unusable, match=f"^{reason}$"):
        read_choice(Reply(line), VIEW)
    if line.startswith("["):
        assert read_choice(Reply(f"{line}\n[ANSWER] 19"), VIEW) == Choice((19,), (), (reason,))


@pytest.mark.parametrize(
    "text", ["", "41", "The answer is 41.", "[ANSWER]", "[ANSWER] 19th century", "⟦ANSWER] 41", "{", "[]"]
)
def test_a_reply_without_an_action_is_unusable(text: str) -> None:
    with pytest.raises(Unusable):
        read_choice(Reply(text), VIEW)


def test_without_expansion_or_refusal_these_are_unusable() -> None:
    assert read_choice(Reply("[EXPAND] 40\n[ANSWER] 41"), VIEW, expand=False).expands == ()
    with pytest.raises(Unusable, match="headings cannot be expanded"):
        read_choice(Reply("[EXPAND] 40"), VIEW, expand=False)
    with pytest.raises(Unusable, match="it chooses no line"):
        read_choice(Reply("[REFUSE]"), VIEW, refuse=False)


def test_the_last_line_of_a_cut_reply_does_not_count() -> None:
    assert read_choice(Reply("[ANSWER] 41\n[ANSWER] 19", "length"), VIEW).answers == (41,)
    with pytest.raises(Unusable, match="cut before its end"):
        read_choice(Reply("[ANSWER] 41", "length"), VIEW)


VALID = [
    "[ANSWER] 41: It is 139 metres high.\n[EXPAND] 40: ===Records===",
    "[ANSWER] 41, 44\n[EXPAND] –1",
    "[REFUSE]",
    json.dumps([{"id": 41, "tag": "[ANSWER]", "explanation": "high"}, {"id": "40", "tag": "EXPAND"}]),
    "<think>maybe</think>\n- **[ANSWER]** 19–44",
]


@pytest.mark.slow
def test_many_damaged_replies_are_read_or_unusable() -> None:
    chance = Random(13)
    usable = 0
    for number in range(DAMAGED):
        text = mutate(VALID[number % len(VALID)].encode(), chance).decode("utf-8", "replace")
        reply = Reply(text, chance.choice(["stop", "stop", "length"]))
        try:
            choice = read_choice(reply, VIEW, chance.random() < 0.8, chance.random() < 0.8)
        except Unusable:
            continue
        usable += 1
        assert set(choice.answers) <= set(VIEW.content)
        assert set(choice.expands) <= set(VIEW.headings)
    assert DAMAGED / 10 < usable < DAMAGED * 99 / 100


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "[ANSWER] " + "1, " * 300_000,
        "[ANSWER] 41-44, " * 60_000,
        "[ANSWER] 41: " + "a" * 10**6,
        "[" * 10**6,
        "can" * 10**6,
    ],
    ids=["ids", "ranges", "words", "brackets", "prose"],
)
@pytest.mark.timeout(20)
def test_a_huge_reply_is_read_in_linear_time(text: str) -> None:
    for whole in (text, text.replace(", [", "\n[")):
        try:
            read_choice(Reply(whole), VIEW)
        except Unusable:
            continue
