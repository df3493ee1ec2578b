"""Discourse trees without a model: strictly binary, right-branching within sentences, paragraphs, sections, document.

Measured against the gold trees of GUM, this shape is far better than its labels (`benchmarks/discourse_trees.py`). A
label comes from a connective, and `Node.cue` names it; without a connective it is a default.

The table of English connectives is our own, in the terms of Mann and Thompson (1988). A connective relates the unit
that it begins to the unit before it, or within a sentence to the one after it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from keystone.indexing.structures.blocks import sentence_spans
from keystone.indexing.structures.tree import Node, Nuclearity, Tree, depths, siblings


@dataclass(frozen=True, slots=True)
class Signal:
    """A relation, its nuclearity, and the connective that says so; `cue` is empty for a default."""

    relation: str
    nuclearity: Nuclearity
    cue: str = ""


MULTINUCLEAR = frozenset(("joint", "sequence", "disjunction", "contrast"))
"""Relations between equals."""

REPORTED = frozenset(("", "that", "if", "whether"))
"""What may begin a clause that a verb of speech or thought reports."""

FRONTED = frozenset(("concession", "cause", "condition", "circumstance", "purpose", "means", "manner"))
"""Relations of a satellite that may stand in front of its nucleus."""

_TABLE = {
    "contrast": "however; by contrast; in contrast; conversely; on the other hand; on the contrary; whereas",
    "antithesis": "but; yet; nevertheless; nonetheless",
    "concession": "although; though; even though; even if; despite; in spite of; regardless of; while",
    "cause": "because; because of; since; due to; owing to; given that; thanks to",
    "result": "so; therefore; thus; hence; consequently; as a result; accordingly; for this reason; thereby",
    "condition": "if; unless; provided that; as long as; in case; otherwise; only if; whether",
    "circumstance": "when; whenever; as; after; before; until; once; as soon as; during; following; in the course of",
    "purpose": "to; in order to; so that; so as to; in order that; for the purpose of",
    "means": "by; through; by means of; using; via",
    "manner": "as if; as though; like; without",
    "restatement": "in other words; that is; that is to say; namely; in short; in sum; i.e; or rather",
    "elaboration": "for example; for instance; such as; in particular; specifically; including; especially; e.g; "
    "which; who; whose; whom; where; that; of; indeed; in fact",
    "joint": "and; also; in addition; additionally; moreover; furthermore; besides; as well as; similarly; likewise; "
    "not only; nor; both",
    "disjunction": "or; either; alternatively",
    "sequence": "then; and then; next; finally; afterwards; later; subsequently; firstly; second; secondly; third; "
    "thirdly; lastly; meanwhile; eventually",
}

CONNECTIVES = {cue: relation for relation, cues in _TABLE.items() for cue in cues.split("; ")}

INSIDE_ONLY = frozenset(
    "to by as of that which who whose whom where while like using through via without during".split()
)
"""Connectives that join parts of a sentence; at the beginning of a sentence they say nothing of the sentence before."""

LONGEST_CUE_WORDS = max(len(cue.split()) for cue in CONNECTIVES)

_WORDS = re.compile(r"[a-z]+(?:[.'\u2019][a-z]+)*")
_SPEECH = re.compile(
    r"\b(?:says?|said|saying|tells?|told|thinks?|thought|believes?|believed|knows?|knew|reports?|reported|claims?|"
    r"claimed|argues?|argued|suggests?|suggested|shows?|showed|found|finds?|notes?|noted|adds?|added|explains?|explained|"
    r"asks?|asked|writes?|wrote|hopes?|hoped|feels?|felt|states?|stated|indicates?|indicated|announced|seems?|means?|"
    r"realized|discovered|concluded|confirmed|insisted|replied|admitted|agreed|wonder|wondered|guess|suppose|imagine)"
    r"[^\w.!?]{0,3}\Z",
    re.IGNORECASE,
)
HEAD_LENGTH = 80
"""How many characters at the beginning or the end of a unit are looked at."""


def find_connective(unit: str) -> str:
    """The longest connective that a unit of text begins with, in small letters; empty if it begins with none."""
    words: list[str] = []
    at = 0
    head = unit[:HEAD_LENGTH].lower().lstrip(" \n\t\"'([\u201c\u2018-\u2013\u2014")
    while len(words) < LONGEST_CUE_WORDS and (match := _WORDS.match(head, at)):
        words.append(match[0])
        at = match.end()
        if not head.startswith(" ", at):
            break
        at += 1
    for count in range(len(words), 0, -1):
        if (cue := " ".join(words[:count])) in CONNECTIVES:
            return cue
    return ""


def signal_across(right: str) -> Signal | None:
    """The relation of a sentence or more to the text before, by the connective it begins with; None if it has none."""
    cue = find_connective(right)
    return _signal(cue) if cue and cue not in INSIDE_ONLY else None


def signal_within(left: str, right: str) -> Signal | None:
    """The relation between two parts of one sentence, by a connective that one begins with; None if there is none.

    A left part that ends with a verb of speech or thought is an attribution. Otherwise the right part counts first.
    """
    cue, fronted = find_connective(right), find_connective(left)
    if cue in REPORTED and (verb := _SPEECH.search(left[-HEAD_LENGTH:])):
        return Signal("attribution", "SN", verb[0].strip(" ,:").lower())
    if cue and not (cue == "then" and fronted == "if"):
        return _signal(cue)
    return Signal(CONNECTIVES[fronted], "SN", fronted) if CONNECTIVES.get(fronted) in FRONTED else None


def _signal(cue: str) -> Signal:
    relation = CONNECTIVES[cue]
    return Signal(relation, "NN" if relation in MULTINUCLEAR else "SN" if relation == "antithesis" else "NS", cue)


IN_SENTENCE, BETWEEN_SENTENCES, BETWEEN_PARAGRAPHS, AFTER_HEADING, BEFORE_HEADING = range(5)
"""Strengths of the gap between two neighbouring leaves; sections of a higher level add 2 for each level."""

MOST_SENTENCES, FEWEST_SENTENCES = 5, 2
"""The most and the fewest sentences of a leaf (DiscoRAG, section 3.1); a section of one sentence is a leaf too."""

LONGEST_CHAIN = 12
"""The most units of one level in one chain; more get a balanced layer above them, so that no tree is a list."""

MOST_RELATIONS = 7
"""The most lines that `relations_from` gives to an agent (DiscoRAG, Listing 1)."""


class Leaf(NamedTuple):
    """A unit of text, (start, end), and the strength of the gap before it; `heading` says that it is one."""

    start: int
    end: int
    gap: int
    heading: bool = False


class Related(NamedTuple):
    """A node that a relation leads to, and its depth in the tree."""

    relation: str
    id: int
    depth: int


@dataclass(frozen=True, slots=True)
class _Group:
    """Neighbouring units with gaps of one strength between them, over the leaves `first` to `last`."""

    first: int
    last: int
    gap: int
    units: tuple["_Group", ...] = ()


def discourse_tree(sections: Tree, text: str) -> Tree:
    """The discourse tree over sections: leaves of 2 to 5 sentences, the first with the headings; or an empty leaf."""
    return binary_tree(sections.doc_id, _leaves(sections, text) or [Leaf(0, 0, 0)], text)


def relations_from(tree: Tree, id: int, most: int = MOST_RELATIONS) -> list[Related]:
    """Siblings of a node and its ancestors, nearest first: `RelationsFrom` of DiscoRAG, as in Listing 1.

    `KeyError` for an unknown id.
    """
    depth = depths(tree)
    found: list[Related] = []
    node = tree[id]
    while node.parent is not None and len(found) < most:
        parent = tree[node.parent]
        found += [Related(parent.relation, other.id, depth[other.id]) for other in siblings(tree, node.id)]
        node = parent
    return found[:most]


def binary_tree(doc_id: str, leaves: Sequence[Leaf], text: str) -> Tree:
    """The strictly binary tree over leaves: stronger gaps split first, equal ones from left to right."""
    nodes: list[Node] = []
    waiting: list[tuple[_Group, int | None]] = [(_grouped(leaves), None)]
    while waiting:
        group, parent = waiting.pop()
        start, end = leaves[group.first].start, leaves[group.last].end
        if not group.units:
            nodes.append(Node(len(nodes), parent, "content", start, end))
            continue
        left, right = _halves(group)
        waiting += [(right, len(nodes)), (left, len(nodes))]
        found = _find_signal(leaves, text, left, right)
        nodes.append(
            Node(len(nodes), parent, "relation", start, end, 0, "", found.relation, found.nuclearity, found.cue)
        )
    return Tree(doc_id, tuple(nodes))


def _grouped(leaves: Sequence[Leaf]) -> _Group:
    """The leaves grouped by the strengths of their gaps; runs in linear time."""
    open_groups: list[tuple[int, list[_Group]]] = []
    for at, _ in enumerate(leaves):
        unit = _Group(at, at, 0)
        gap = leaves[at + 1].gap if at + 1 < len(leaves) else None
        while open_groups and (gap is None or open_groups[-1][0] < gap):
            strength, units = open_groups.pop()
            unit = _Group(units[0].first, unit.last, strength, (*units, unit))
        if gap is None:
            return unit
        if open_groups and open_groups[-1][0] == gap:
            open_groups[-1][1].append(unit)
        else:
            open_groups.append((gap, [unit]))
    raise ValueError("a tree has at least one leaf")


def _halves(group: _Group) -> tuple[_Group, _Group]:
    """The first unit and the rest; too many units are first cut into chains of equal length."""
    units = group.units
    while len(units) > LONGEST_CHAIN:
        chains = -(-len(units) // LONGEST_CHAIN)
        cuts = [len(units) * number // chains for number in range(chains + 1)]
        units = tuple(_group(units[cuts[at] : cuts[at + 1]], group.gap) for at in range(chains))
    return units[0], _group(units[1:], group.gap)


def _group(units: tuple[_Group, ...], gap: int) -> _Group:
    return units[0] if len(units) == 1 else _Group(units[0].first, units[-1].last, gap, units)


def _find_signal(leaves: Sequence[Leaf], text: str, left: _Group, right: _Group) -> Signal:
    """The relation between two units: by a heading, by a connective, or else the default."""
    if leaves[left.first].heading and left.first == left.last:
        return Signal("organization", "SN")
    gap, start = leaves[right.first].gap, leaves[right.first].start
    head = text[start : start + HEAD_LENGTH]
    if gap == IN_SENTENCE:
        found = signal_within(text[leaves[left.first].start : leaves[left.last].end], head)
    else:
        found = signal_across(head)
    return found or (Signal("elaboration", "NS") if gap < BETWEEN_PARAGRAPHS else Signal("joint", "NN"))


def _leaves(sections: Tree, text: str) -> list[Leaf]:
    deepest = max(node.level for node in sections.nodes if node.kind == "heading")
    found: list[Leaf] = []
    paragraphs: list[list[tuple[int, int]]] = []
    headings: list[Node] = []
    for node in [*sections.nodes[1:], None]:
        if node is not None and node.kind == "content":
            paragraphs.append(sentence_spans(text, node.start, node.end))
        elif paragraphs:
            highest = min((heading.level for heading in headings), default=deepest)
            found += _section_leaves(paragraphs, headings, BEFORE_HEADING + 2 * (deepest - highest))
            paragraphs, headings = [], []
        if node is not None and node.kind == "heading":
            headings.append(node)
    return found


def _section_leaves(paragraphs: list[list[tuple[int, int]]], headings: Sequence[Node], gap: int) -> list[Leaf]:
    """The leaves of one section; paragraphs of one sentence join the next one, or at the end the one before."""
    chunks: list[list[tuple[int, int]]] = []
    for sentences in paragraphs:
        if chunks and len(chunks[-1]) < FEWEST_SENTENCES:
            chunks[-1] += sentences
        else:
            chunks.append(list(sentences))
    if len(chunks) > 1 and len(chunks[-1]) < FEWEST_SENTENCES:
        last = chunks.pop()
        chunks[-1] += last
    found = []
    for chunk in chunks:
        parts = -(-len(chunk) // MOST_SENTENCES)
        cuts = [len(chunk) * number // parts for number in range(parts + 1)]
        for at in range(parts):
            strength = BETWEEN_SENTENCES if at else BETWEEN_PARAGRAPHS
            found.append(Leaf(chunk[cuts[at]][0], chunk[cuts[at + 1] - 1][1], strength))
    first = found[0]
    start = min((heading.start for heading in headings if heading.end > heading.start), default=first.start)
    found[0] = Leaf(min(start, first.start), first.end, gap)
    return found
