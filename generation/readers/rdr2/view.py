"""The part of a section tree that a router is shown (RDR2, section 3.2 and Algorithm 1), and the actions in its reply.

Actions are lines such as `[ANSWER] 41, 44`, or a JSON list of objects with `id` and `tag`. All functions are pure.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from itertools import islice
from typing import NamedTuple

from keystone.generation.context.texts import clip, count_tokens
from keystone.generation.replies import find_objects, strip_thought
from keystone.generation.types import Reply
from keystone.indexing.errors import Unusable
from keystone.indexing.io.json_values import read_whole_number
from keystone.indexing.structures.tree import (
    DEEPEST_INDENT,
    INDENT,
    Tree,
    ancestors,
    children,
    depths,
    position,
    render,
    siblings,
    subtree,
)
from keystone.indexing.types import Span

HEADING_TOKENS = 40
"""The most tokens of the line of a heading."""


@dataclass(frozen=True, slots=True)
class View:
    """A rendered part of a tree, and the text of each line by the id of its node: content, and headings."""

    text: str
    content: dict[int, str]
    headings: dict[int, str]


def find_hit_nodes(tree: Tree, span: Span) -> list[int]:
    """Find the content that overlaps a stretch of the document, in order."""
    return [
        node.id for node in tree.nodes if node.kind == "content" and node.start < span.end and span.start < node.end
    ]


def light(tree: Tree, hits: Sequence[int]) -> set[int]:
    """Find the content that becomes visible around some content (Algorithm 1).

    This is the content beside it with all content below, and the content above it up to the first heading.
    """
    lit: set[int] = set()
    for hit in hits:
        for node in (tree[hit], *siblings(tree, hit)):
            if node.kind == "content":
                lit.update(_list_content(tree, node.id))
        for node in ancestors(tree, hit):
            if node.kind == "heading":
                break
            lit.add(node.id)
    return lit


def list_section(tree: Tree, heading: int) -> list[int]:
    """List the content directly below a heading, and the content below that, in order."""
    return [id for child in children(tree, heading) if child.kind == "content" for id in _list_content(tree, child.id)]


def order_by_nearness(visible: Collection[int], hits: Sequence[int]) -> list[int]:
    """Put visible content in the order of its distance from the hits: the hits first, ties in the order of the text."""
    distance = {id: min((abs(id - hit) for hit in hits), default=0) for id in visible}
    return sorted(sorted(visible), key=distance.__getitem__)


def flatten(tree: Tree) -> Tree:
    """Put all content directly below the title, without the other headings and without lists in lists."""
    root = tree.nodes[0]
    content = [replace(node, parent=root.id, level=0) for node in tree.nodes[1:] if node.kind == "content"]
    return Tree(tree.doc_id, (root, *content))


def show(tree: Tree, text: str, wanted: Sequence[int], limit: int) -> View:
    """Render the headings and the wanted content within `limit` tokens, one line for each node.

    The first of the content always has a line, which is cut to half of the limit. After it come the other content, in
    the order of `wanted`, and the headings above it; content leaves a quarter of the limit to headings. Then come the
    headings beside those, the headings of the first level, and the others. If children of a node are left out, a line
    such as `… (3 more)` stands for them. It names none of them.
    """
    content = set(wanted)
    order = [node.id for node in tree.nodes if node.kind == "heading" or node.id in content]
    rows = render(tree, text, set(order)).split("\n")
    lines = {
        id: clip(row, limit // 2 if id in content else HEADING_TOKENS) for id, row in zip(order, rows, strict=True)
    }
    below = Counter(tree[id].parent for id in order)
    depth = depths(tree)
    left = limit
    shown: set[int] = set()
    for id in _rank(tree, wanted):
        cost = count_tokens(f"{lines[id]}\n")
        if below[id]:
            cost += count_tokens(f"{_say_more(depth[id], below[id])}\n")
        if cost <= left - (limit // 4 if id in content else 0):
            shown.add(id)
            left -= cost
    found = [(position(tree, id), 0, lines[id]) for id in shown]
    below.subtract(tree[id].parent for id in shown)
    for id in shown:
        if below[id]:
            at = position(tree, id)
            found.append((tree.ends[at] - 1, len(tree) - at, _say_more(depth[id], below[id])))
    said = {id: lines[id].split(": ", 1)[1] for id in order if id in shown}
    return View(
        "\n".join(line for _, _, line in sorted(found)),
        {id: line for id, line in said.items() if id in content},
        {id: line for id, line in said.items() if id not in content},
    )


def _rank(tree: Tree, wanted: Sequence[int]) -> list[int]:
    """Rank the nodes of a view by their worth, each once: see `show`."""
    path = {id: [node.id for node in ancestors(tree, id) if node.kind == "heading"] for id in wanted}
    open_nodes = {above for own in path.values() for above in own}
    headings = sorted(
        (node for node in tree.nodes if node.kind == "heading"),
        key=lambda node: (node.parent not in open_nodes, node.parent != tree.ids[0]),
    )
    ranked = [*(id for own in wanted for id in (own, *path[own])), *(node.id for node in headings)]
    return list(dict.fromkeys(ranked))


def _list_content(tree: Tree, id: int) -> list[int]:
    return [node.id for node in subtree(tree, id) if node.kind == "content"]


def _say_more(depth: int, number: int) -> str:
    """Say how many children of a node at this depth are left out."""
    return f"{INDENT * min(depth + 1, DEEPEST_INDENT)}… ({number} more)"


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
    """The nodes that a router chose, each once; none if it refused. `expelled` says why other actions do not count."""

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
    """Read the actions of a line. A range such as `41-44` stands for those of its nodes that the view has."""
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
    """Whether words that a reply gives for a line are roughly those of the line."""
    if len(words) < FEWEST_CHARACTERS or words in shown:
        return True
    beginning = shown.strip(_AROUND)[: len(words)]
    return SequenceMatcher(None, words, beginning, autojunk=False).ratio() >= LEAST_RATIO


def _list_ids(actions: list[Action], tag: str) -> tuple[int, ...]:
    return tuple(dict.fromkeys(action.id for action in actions if action.tag == tag))
