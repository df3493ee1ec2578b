"""Actions in replies: the forms that count, the inventions that do not, and documents that look like actions."""

import time
from contextlib import suppress
from random import Random

import pytest

from keystone.generation.context.delimit import delimit
from keystone.generation.readers.discorag.parse import NAMES, Action, disarm, read_action
from keystone.generation.types import Reply
from keystone.indexing.errors import Unusable
from tests.support.mutation import mutate

REPLIES = {
    "the form of the prompt": ("Thought: I look.\nAction: Move[40]", "Move[40]"),
    "a numbered turn": ("Thought 1: I look.\nAction 1: Retrieve[Role of Gurn]", "Retrieve[Role of Gurn]"),
    "a list of nodes": ("Action 2: Write[39, 35, 94]", "Write[39, 35, 94]"),
    "no thought": ("Ancestors[3]", "Ancestors[3]"),
    "no argument": ("Action: RelationsFrom[]", "RelationsFrom[]"),
    "other case": ("ACTION 3: relationsfrom[39]", "RelationsFrom[39]"),
    "a name in words": ("Action: relations_to [7]", "RelationsTo[7]"),
    "a name with a space": ("Action: Relations From[7]", "RelationsFrom[7]"),
    "round brackets": ('Action: Retrieve("sugar (white)")', "Retrieve[sugar (white)]"),
    "brackets in the argument": ("Action: Write[He said [sic] so] and more", "Write[He said [sic] so]"),
    "a bracket too many": ("Action: Retrieve[a [b] and go\nmore", "Retrieve[a [b] and go]"),
    "no brackets": ("Action: Move 40", "Move[40]"),
    "an end without brackets": ("Thought: enough.\nAction: Finish", "Finish[]"),
    "bold": ("**Thought:** I go.\n**Action:** `Text[9]`", "Text[9]"),
    "a fence": ("```\nAction: Text[9]\n```", "Text[9]"),
    "a call on the next line": ("Action 4:\nMove[8]", "Move[8]"),
    "a call in the line of the thought": ("Thought: the next action: search. Action: Retrieve[bees]", "Retrieve[bees]"),
    "hidden thoughts": ("<think>Action: Finish[Done]</think>Action: Move[1]", "Move[1]"),
    "two actions": ("Action: Move[1]\nAction: Finish[Done]", "Move[1]"),
    "an invented observation": ("Action: Move[1]\nObservation: done.\nAction: Write[1, 2, 3]", "Move[1]"),
    "one in the argument": ("Action: Retrieve[bees Observation 1: ten\nnodes]", "Retrieve[bees]"),
    "a thought on an observation": ("Thought: this observation helps.\nAction: Move[2]", "Move[2]"),
    "an unknown tool": ("Action: Search[bees]", "Search[bees]"),
}


@pytest.mark.parametrize("name", REPLIES)
def test_a_reply_gives_its_first_own_action(name: str) -> None:
    text, action = REPLIES[name]
    assert str(read_action(Reply(text))) == action


@pytest.mark.parametrize(
    "text",
    ["", "I would rather not.", "Observation: done.\nAction: Finish[Done]", "Thought: Finish.", "<think>Move[1]"],
)
def test_a_reply_without_an_action_of_its_own_is_refused(text: str) -> None:
    with pytest.raises(Unusable, match="no line"):
        read_action(Reply(text))


def test_a_reply_cut_within_its_action_is_refused() -> None:
    with pytest.raises(Unusable, match="cut"):
        read_action(Reply("Action: Write[The bees of", "length"))
    assert read_action(Reply("Action: Move[4]\nThought: and th", "length")) == Action("Move", "4")


@pytest.mark.parametrize(
    "text", [*(f"{name}[4]" for name in NAMES), "Action 2: Finish[Done]", "thought: go", "* Action:"]
)
def test_tool_syntax_in_a_document_is_no_action(text: str) -> None:
    shown = disarm(f"Once.\n{text}\nOnce more.")
    assert shown != f"Once.\n{text}\nOnce more."
    assert disarm(shown) == shown
    with pytest.raises(Unusable):
        read_action(Reply(delimit(1, shown)))


def test_other_words_of_a_document_stay() -> None:
    text = "He took action: none. Moves [4] were made; the text (page 3) was finished.\nObservations matter."
    assert disarm(text) == text


@pytest.mark.slow
def test_ten_thousand_damaged_replies_give_an_action_or_a_reason() -> None:
    seeds = [text.encode() for text, _ in REPLIES.values()]
    refused = 0
    for number in range(10_000):
        chance = Random(number)
        text = mutate(chance.choice(seeds), chance).decode("utf-8", chance.choice(["replace", "surrogateescape"]))
        try:
            found = read_action(Reply(text, chance.choice(["stop", "length"])))
        except Unusable:
            refused += 1
        else:
            assert found.tool
            found.argument.encode()
    assert 500 < refused < 9_500


@pytest.mark.slow
@pytest.mark.parametrize("part", ["\n", "Action", "Action:", "Move[", "[(", "*" * 9, "Observation ", "a_ ", "<think>"])
def test_reading_takes_linear_time(part: str) -> None:
    text = part * 200_000
    begun = time.process_time()
    disarm(text)
    with suppress(Unusable):
        read_action(Reply(text))
    assert time.process_time() - begun < 5
