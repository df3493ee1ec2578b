"""The actions in a router's reply: lines such as `[ANSWER] 41, 44`, or a JSON list of objects with `id` and `tag`."""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import islice
from typing import NamedTuple

from keystone.generation.readers.rdr2.view import View
from keystone.generation.structured import find_objects, strip_thought
from keystone.generation.types import Reply
from keystone.indexing.errors import Unusable
from keystone.indexing.io.json_values import read_whole_number

LEAST_RATIO = 0.6
"""How much of the words that a reply gives for a line must agree with the line, from 0 to 1."""
COMPARED_CHARACTERS = 80
"""The most characters of these words that are compared."""
FEWEST_CHARACTERS = 8
"""From how many characters on they are compared."""
MOST_ACTIONS = 1000
"""The most actions of a reply that are read."""
MOST_REASONS = 5
"""The most reasons that a repair gives."""

_ACTION = re.compile(
    r"[^\w\[［【]{0,12}(?:\d{1,3}[.)]\s?)?[*_`]{0,3}[\[［【]\s?(answer|expand|refuse)\s?[\]］】]", re.IGNORECASE
)
_ID = re.compile(
    r"[\s:*_`#(\[]{0,8}(?:-\s+)?(?:(?:nodes?|ids?)[\s:#]{1,3})?(-?\d{1,9})(?:-(\d{1,9}))?(?![\w-])", re.IGNORECASE
)
_SEPARATOR = re.compile(r"[\s*_`)\]]{0,4}(?:,|;|&|and\b)(?:\s?and\b)?", re.IGNORECASE)
_CANNOT = re.compile(r"\bcan(?:not|'t|’t| not) answer\b", re.IGNORECASE)
_DASHES = str.maketrans(dict.fromkeys("‐‑‒–—―−﹣－", "-"))
_AROUND = " \t:*_`\"'“”‘’=.…-)]"


class Action(NamedTuple):
    """One action on the node `id`; `words` are those that the reply gives for it."""

    tag: str
    id: int = 0
    words: str = ""


@dataclass(frozen=True, slots=True)
class Choice:
    """The nodes that a router chose, each once. A choice of nothing is a refusal.

    `expelled` holds the reasons why other actions of the reply do not count.
    """

    answers: tuple[int, ...] = ()
    expands: tuple[int, ...] = ()
    expelled: tuple[str, ...] = ()


def read_choice(reply: Reply, view: View, expand: bool = True, refuse: bool = True) -> Choice:
    """Read the choice of a router that has seen a view. `Unusable` if the reply holds no action that is possible.

    A refusal counts only if there is no other action. If the reply was cut, its last line does not count.
    """
    lines = strip_thought(reply.text).splitlines()
    if reply.finish == "length":
        lines = lines[:-1]
    actions = list(islice((action for line in lines for action in _read_line(line, view)), MOST_ACTIONS))
    refused = any(_CANNOT.search(line) for line in lines)
    if not actions:
        with suppress(Unusable):
            actions = list(islice(_read_objects(reply), MOST_ACTIONS))
    faults = {action: _find_fault(action, view, expand) for action in actions if action.tag != "refuse"}
    chosen = [action for action, fault in faults.items() if not fault]
    expelled = tuple(dict.fromkeys(fault for fault in faults.values() if fault))
    if chosen or (refuse and (refused or any(action.tag == "refuse" for action in actions))):
        return Choice(_list_ids(chosen, "answer"), _list_ids(chosen, "expand"), expelled)
    if reply.finish == "length":
        raise Unusable("it was cut before its end")
    reasons = expelled[:MOST_REASONS] or (
        ('it has no line such as "[ANSWER] 12"',) if refuse else ("it chooses no line",)
    )
    raise Unusable("; ".join(reasons))


def _read_line(line: str, view: View) -> Iterator[Action]:
    """Read the actions of a line. Of a range such as `41-44`, all nodes of the view count."""
    if not (opening := _ACTION.match(line)):
        return
    tag, rest = opening[1].lower(), line[opening.end() :].translate(_DASHES)
    if tag == "refuse":
        yield Action(tag)
        return
    found: list[int] = []
    number = _ID.match(rest)
    while number and len(found) < MOST_ACTIONS:
        found += _list_range(
            int(number[1]), int(number[2] or number[1]), view.headings if tag == "expand" else view.content
        )
        rest = rest[number.end() :]
        separator = _SEPARATOR.match(rest)
        number = _ID.match(rest, separator.end()) if separator else None
    words = rest.strip(_AROUND) if len(found) == 1 else ""
    yield from (Action(tag, id, words[:COMPARED_CHARACTERS]) for id in found)


def _list_range(first: int, last: int, shown: dict[int, str]) -> list[int]:
    within = [id for id in shown if first <= id <= last]
    return within if first in shown and last in shown else [first]


def _read_objects(reply: Reply) -> Iterator[Action]:
    """Read JSON objects such as `{"id": 41, "tag": "[ANSWER]"}`."""
    for found in find_objects(reply):
        tag, id = found.get("tag"), found.get("id")
        name = tag.strip("[] ").lower() if isinstance(tag, str) else ""
        written = _ID.fullmatch(id.translate(_DASHES)) if isinstance(id, str) else None
        number = int(written[1]) if written else read_whole_number(id)
        if name == "refuse":
            yield Action(name)
        elif name in ("answer", "expand") and number is not None:
            yield Action(name, number)


def _find_fault(action: Action, view: View, expand: bool) -> str:
    """Find the reason why an action is not possible; empty if it is."""
    wanted, other = (view.headings, view.content) if action.tag == "expand" else (view.content, view.headings)
    if action.tag == "expand" and not expand:
        return "headings cannot be expanded"
    if action.id in other:
        return f"{action.id} is {'no' if action.tag == 'expand' else 'a'} heading"
    if action.id not in wanted:
        return f"{action.id} is not shown"
    return "" if _agree(action.words.casefold(), wanted[action.id].casefold()) else f"{action.id} has other words"


def _agree(words: str, shown: str) -> bool:
    """Whether words that a reply gives for a line are those of the line, about."""
    if len(words) < FEWEST_CHARACTERS or words in shown:
        return True
    beginning = shown.strip(_AROUND)[: len(words)]
    return SequenceMatcher(None, words, beginning, autojunk=False).ratio() >= LEAST_RATIO


def _list_ids(actions: list[Action], tag: str) -> tuple[int, ...]:
    return tuple(dict.fromkeys(action.id for action in actions if action.tag == tag))
