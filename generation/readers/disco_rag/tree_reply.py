"""The rhetorical tree of a chunk: strictly binary, grown by rules or read from a model's reply.

A reply has units, copied from the chunk, and relations; the units are found again in the chunk. The spans of a tree are
offsets into the text of its chunk. Its leaves are the elementary units, and hold all its words.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random
from typing import NamedTuple

from keystone.generation.context.texts import FIRST_WIDE_CHARACTER
from keystone.generation.readers.disco_rag.relations import INTRA, Found, name_relation, report_unknown, tidy_lines
from keystone.generation.types import Reply
from keystone.indexing.errors import Unusable
from keystone.indexing.structures.blocks import sentence_spans, trim
from keystone.indexing.structures.discourse import BETWEEN_PARAGRAPHS, BETWEEN_SENTENCES, Leaf, binary_tree
from keystone.indexing.structures.tree import Node, Nuclearity, Tree, children, leaves

LEAST_COVERAGE_PERCENT = 70
"""The least words in common of a chunk and the units that a model copied from it."""

_BRACKETED = re.compile(r"(?:EDU ?)?\[([0-9]{1,4})\] ?[:.)]? ?", re.IGNORECASE)
_COUNTED = re.compile(r"(?:EDU ?)?([0-9]{1,4}) ?[:.)] ?", re.IGNORECASE)
_UNITS_HEAD = re.compile(r"EDUs? ?: ?", re.IGNORECASE)
_OTHER_HEAD = re.compile(r"(?:RST ANALYSIS|RELATIONS?|TREE STRUCTURE) ?:?\Z", re.IGNORECASE)
_FRAME = re.compile(r"[\[\]]|\bEDUs? ?(?=\[? ?[0-9])", re.IGNORECASE)
_SIDE = r" ?([0-9]{1,4})(?: ?(?:-|to) ?([0-9]{1,4}))? ?"
_LINK = re.compile(
    rf"(?:[0-9]{{1,3}}[.)] ?)?([a-z][a-z _/-]{{0,39}})\({_SIDE}[,;]{_SIDE}\)(?: ?:)? ?(.{{0,80}})", re.IGNORECASE
)
_NUCLEI = re.compile(r"\b(?:NS|SN|NN)\b")
_FLIPPED: dict[Nuclearity, Nuclearity] = {"NS": "SN", "SN": "NS", "NN": "NN"}


class Link(NamedTuple):
    """A relation as a model wrote it: between units or ranges of units, by the model's numbers, first and last."""

    left: tuple[int, int]
    right: tuple[int, int]
    words: str
    nuclei: Nuclearity


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Unit:
    """One leaf of the text, or two neighbouring units under a relation. `first` and `last` count leaves from 0."""

    first: int
    last: int
    halves: "tuple[Unit, Unit] | None" = None
    relation: str = ""
    nuclearity: Nuclearity = ""


def read_tree(reply: Reply, text: str) -> Found[Tree]:
    """Read the tree of a chunk. `Unusable` if the reply was cut, or its units do not hold the words of the chunk.

    Relations are joined in the order of the reply, if their sides are neighbours. What is left then is joined from the
    right as elaborations.
    """
    if reply.finish == "length":
        raise Unusable("it was cut before its end")
    units, links = _read_lines(reply)
    numbers = sorted(units)
    starts, percent = align_units(text, [" ".join(units[number]) for number in numbers])
    if percent < LEAST_COVERAGE_PERCENT:
        raise Unusable(
            f"its units share {percent:.0f} % of their words with the text. Under a line EDUs: copy all of the text, "
            "unchanged and in order, each unit on a line of its own that begins with its number, as in [1]"
        )
    if len(numbers) > 1 and not links:
        raise Unusable("it has no line such as RELATION([1], [2]): ELABORATION NS")
    spans, leaf_of = _cut_at(text, dict(zip(numbers, starts, strict=True)))
    whole, joined = _join_links(len(spans), [_renumber(link, leaf_of) for link in links])
    remarks = [f"{percent:.0f} % of the words found, {len(joined)} of {len(links)} relations joined"]
    return Found(tree_over("", whole, spans), remarks + report_unknown(joined, INTRA))


def _read_lines(reply: Reply) -> tuple[dict[int, list[str]], list[Link]]:
    """Read the lines of each unit by its number, of which the first counts, and the relations in their order."""
    units: dict[int, list[str]] = {}
    links: list[Link] = []
    own: list[str] = []
    in_units = True
    for full in tidy_lines(reply):
        line = _UNITS_HEAD.sub("", full, count=1) if in_units and _UNITS_HEAD.match(full) else full
        bracketed = _BRACKETED.match(line)
        number = bracketed or _COUNTED.match(line)
        if in_units and number and (bracketed or int(number[1]) == len(units) + 1):
            own = [line[number.end() :]]
            units.setdefault(int(number[1]), own)
        elif link := _LINK.match(_FRAME.sub("", line)):
            links.append(_make_link(link))
            in_units = False
        elif _OTHER_HEAD.match(line):
            in_units = False
        elif in_units:
            own.append(line)
    return units, links


def _make_link(match: re.Match[str]) -> Link:
    name, first, last, other_first, other_last, after = match.groups()
    nuclei = _NUCLEI.search(after)
    words = _NUCLEI.sub("", after).strip(" .:;,()-")
    sides = [(int(low), int(high or low)) for low, high in ((first, last), (other_first, other_last))]
    return Link(sides[0], sides[1], words or name.strip(), nuclei[0] if nuclei else "")  # type: ignore[arg-type]


def _cut_at(text: str, starts: dict[int, int | None]) -> tuple[list[tuple[int, int]], dict[int, int]]:
    """Cut a text at the starts of its units; returns the spans of the leaves, and each unit's leaf by its number.

    A unit that was not found belongs to the leaf before it.
    """
    cuts: list[int] = []
    leaf_of = {}
    for number, start in starts.items():
        if start is not None:
            cuts.append(start)
        leaf_of[number] = max(0, len(cuts) - 1)
    return [trim(text, start, end) for start, end in pairwise([*cuts, len(text)])], leaf_of


def _renumber(link: Link, leaf_of: dict[int, int]) -> Link:
    """Number the sides of a relation by leaves from 0; -1 stands for a number that no unit has."""

    def convert(side: tuple[int, int]) -> tuple[int, int]:
        return leaf_of.get(side[0], -1), leaf_of.get(side[1], -1)

    return link._replace(left=convert(link.left), right=convert(link.right))


def join(left: Unit, right: Unit, relation: str, nuclearity: Nuclearity) -> Unit:
    """Join two units into one. `ValueError` if they are not neighbours."""
    if right.first != left.last + 1:
        raise ValueError(
            f"{relation}: text units {left.first + 1} to {left.last + 1} and {right.first + 1} to {right.last + 1} "
            "are not neighbours"
        )
    return Unit(left.first, right.last, (left, right), relation, nuclearity)


def tree_over(doc_id: str, whole: Unit, spans: Sequence[tuple[int, int]]) -> Tree:
    """Make the tree over leaves with these spans, (start, end), one for each leaf of the unit."""
    nodes: list[Node] = []
    waiting: list[tuple[Unit, int | None]] = [(whole, None)]
    while waiting:
        unit, parent = waiting.pop()
        start, end, id = spans[unit.first][0], spans[unit.last][1], len(nodes)
        if unit.halves is None:
            nodes.append(Node(id, parent, "content", start, end))
        else:
            nodes.append(Node(id, parent, "relation", start, end, 0, "", unit.relation, unit.nuclearity))
            waiting += [(unit.halves[1], id), (unit.halves[0], id)]
    return Tree(doc_id, tuple(nodes))


def _join_links(count: int, links: Sequence[Link]) -> tuple[Unit, list[str]]:
    """Join `count` leaves into one unit; returns it, and the words of each relation that it holds.

    If the sides of a relation are not neighbours, or not whole units, the relation waits. The next pass goes from the
    last relation to the first, because some models begin with the outermost. In the pass after that, a range may be a
    part of a unit.
    """
    parts = [Unit(leaf, leaf) for leaf in range(count)]
    heads = list(range(count))

    def find_part(leaf: int) -> Unit:
        while heads[leaf] != leaf:
            heads[leaf] = heads[heads[leaf]]
            leaf = heads[leaf]
        return parts[leaf]

    waiting = [link for link in links if min(*link.left, *link.right) >= 0]
    joined: list[str] = []
    for strict in (True, True, False):
        later = []
        for link in waiting:
            left, right = find_part(link.left[0]), find_part(link.right[0])
            whole = _is_part(link.left, left) and _is_part(link.right, right)
            flipped = right.last + 1 == left.first
            if flipped:
                left, right = right, left
            if left.last + 1 != right.first or (strict and not whole):
                later.append(link)
                continue
            label = name_relation(link.words, INTRA).label
            nuclei = link.nuclei or INTRA.relations[label].nuclei
            parts[left.first] = join(left, right, label, _FLIPPED[nuclei] if flipped else nuclei)
            heads[right.first] = left.first
            joined.append(link.words)
        waiting = later[::-1]
    return join_in_row([part for leaf, part in enumerate(parts) if heads[leaf] == leaf], "ELABORATION", "NS"), joined


def _is_part(side: tuple[int, int], part: Unit) -> bool:
    """Whether one side of a relation is a part; a single leaf stands for the part that holds it."""
    return side[0] == side[1] or side == (part.first, part.last)


def join_in_row(units: Sequence[Unit], relation: str, nuclearity: Nuclearity) -> Unit:
    """Join several units by one relation, the last two first."""
    whole = units[-1]
    for unit in reversed(units[:-1]):
        whole = join(unit, whole, relation, nuclearity)
    return whole


LOOKAHEAD_WORDS = 40
"""How many words of the chunk a copy may leave out in one place."""

_WORD = re.compile(rf"[{FIRST_WIDE_CHARACTER}-\U0010ffff]|[^\W{FIRST_WIDE_CHARACTER}-\U0010ffff]+")


class Word(NamedTuple):
    """A word in small letters, and its place in the text."""

    text: str
    start: int
    end: int


def align_units(text: str, units: Sequence[str]) -> tuple[list[int | None], float]:
    """Find the start of each unit in a text, and the percentage of words in common.

    A start is None if the text has no word of its unit. The others rise strictly, and the first one is 0. Words are
    compared without case and punctuation. The time is linear in the length of both.
    """
    words = _find_words(text)
    own = [(place, word.text) for place, unit in enumerate(units) for word in _find_words(unit)]
    starts: list[int | None] = [None] * len(units)
    at = matched = 0
    for number, (place, word) in enumerate(own):
        if at == len(words):
            break
        following = own[number + 1][1] if number + 1 < len(own) else ""
        if (found := _find_place(words, at, word, following)) is None:
            continue
        if starts[place] is None:
            starts[place] = _skip_punctuation(text, words[found - 1].end, words[found].start) if matched else 0
        at, matched = found + 1, matched + 1
    return starts, 200 * matched / (len(words) + len(own) or 1)


def _find_words(text: str) -> list[Word]:
    return [Word(match[0].casefold(), match.start(), match.end()) for match in _WORD.finditer(text)]


def _find_place(words: Sequence[Word], at: int, word: str, following: str) -> int | None:
    """Find a word of a copy from the place `at` on: there, or later if the copy's next word follows it there too."""
    if words[at].text == word:
        return at
    for place in range(at + 1, min(at + LOOKAHEAD_WORDS, len(words) - 1)):
        if words[place].text == word and words[place + 1].text == following:
            return place
    return None


def _skip_punctuation(text: str, least: int, start: int) -> int:
    """Move a word's start to the left over the punctuation before it, but not beyond `least`."""
    while start > least and not text[start - 1].isspace():
        start -= 1
    return start


def grow_tree(text: str) -> Found[Tree]:
    """Grow the tree of a chunk by rules: its units are sentences, and connectives give relations."""
    found: list[Leaf] = []
    for start, end in sentence_spans(text, 0, len(text)):
        new_line = bool(found) and "\n" in text[found[-1].end : start]
        found.append(Leaf(start, end, BETWEEN_PARAGRAPHS if new_line else BETWEEN_SENTENCES))
    tree = binary_tree("", found, text)
    nodes = [
        replace(node, relation=name_relation(node.relation, INTRA).label) if node.relation else node
        for node in tree.nodes
    ]
    return Found(Tree("", tuple(nodes)), ["by rules"])


def show_tree(tree: Tree) -> str:
    """Show a tree by the numbers of its units, such as `SEQUENCE(N:1, N:CAUSE(N:2, S:3))`."""
    numbers = {leaf.id: number for number, leaf in enumerate(leaves(tree), 1)}
    parts: list[str] = []
    waiting: list[Node | str] = [tree.nodes[0]]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            parts.append(item)
        elif item.id in numbers:
            parts.append(str(numbers[item.id]))
        else:
            left, right = children(tree, item.id)
            waiting += [")", right, f", {item.nuclearity[1]}:", left, f"{item.relation}({item.nuclearity[0]}:"]
    return "".join(parts)


def show_units(tree: Tree, text: str) -> str:
    """Show a chunk on one line, each unit of its tree after the unit's number."""
    return " ".join(
        f"[{number}] {' '.join(text[leaf.start : leaf.end].split())}" for number, leaf in enumerate(leaves(tree), 1)
    )


def shuffle_trees(trees: Sequence[Tree], seed: int) -> list[Tree]:
    """Shuffle the relations and nuclei among all joints of the trees (Disco-RAG, figure 4a)."""
    labels = [(node.relation, node.nuclearity) for tree in trees for node in tree.nodes if node.kind == "relation"]
    Random(seed).shuffle(labels)
    left = iter(labels)
    shuffled = []
    for tree in trees:
        nodes = []
        for node in tree.nodes:
            relation, nuclearity = next(left) if node.kind == "relation" else ("", "")
            nodes.append(replace(node, relation=relation, nuclearity=nuclearity))
        shuffled.append(Tree(tree.doc_id, tuple(nodes)))
    return shuffled
