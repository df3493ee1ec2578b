"""Discourse trees, and the seven tools of an agent on one (DiscoRAG, Table 1): from a state to the next one.

A tool raises `Unusable` for an argument that it cannot use, with a reason that the model can act on. The module also
reads the calls in a model's replies, and disarms words of documents that look like calls: in linear time, for any text.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from keystone.generation.context.texts import clip, count_tokens, delimit
from keystone.generation.context.topic import Sources, embed_spans
from keystone.generation.readers.structure_reader import Question
from keystone.generation.replies import strip_thought
from keystone.generation.types import Reply
from keystone.indexing.embedder import Vectors
from keystone.indexing.errors import Unusable
from keystone.indexing.structures.cached import read_discourse_trees
from keystone.indexing.structures.discourse import relations_from
from keystone.indexing.structures.tree import Node, Tree, ancestors, children, leaves
from keystone.indexing.types import Document, Span

Vector = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Discourse:
    """The discourse tree of a document; `vectors` is float32[leaves, d]."""

    document: Document
    tree: Tree
    leaves: tuple[Node, ...]
    vectors: Vectors

    def find_span(self, id: int) -> Span:
        """Find the stretch of a node in the document's text. `KeyError` for an unknown id."""
        node = self.tree[id]
        return Span(self.document.id, node.start, node.end)

    def find_text(self, id: int) -> str:
        """Find the text of a node. `KeyError` for an unknown id."""
        return self.document.text[slice(self.tree[id].start, self.tree[id].end)]


Leaf = tuple[int, int]
"""A leaf of a forest: the place of its tree, and its id there."""


def read_forest(sources: Sources, question: Question) -> list[Discourse]:
    """Read the trees of the question's documents, in their order; a document without text has none."""
    trees = read_discourse_trees(sources.index, question.documents)
    found = [
        (document, tree, own)
        for document, tree in zip(question.documents, trees, strict=True)
        if (own := tuple(leaf for leaf in leaves(tree) if leaf.end > leaf.start))
    ]
    spans = [Span(document.id, leaf.start, leaf.end) for document, _, own in found for leaf in own]
    vectors = embed_spans(sources, question.context, spans)
    ends = np.cumsum([len(own) for _, _, own in found])
    parts = np.split(vectors, ends[:-1]) if found else []
    return [Discourse(*one, part) for one, part in zip(found, parts, strict=True)]


def rank_leaves(forest: Sequence[Discourse], vector: Vector) -> list[Leaf]:
    """Rank the leaves of all trees by their closeness to a vector; ties go to the earlier document, then text."""
    every = [(place, leaf.id) for place, discourse in enumerate(forest) for leaf in discourse.leaves]
    if not every:
        return []
    cosines = np.concatenate([discourse.vectors @ vector for discourse in forest])
    return [every[at] for at in np.argsort(-cosines, kind="stable").tolist()]


NAMES = ("Move", "RelationsFrom", "RelationsTo", "Ancestors", "Retrieve", "Text", "Write", "Finish")
"""The seven tools of the paper's Table 1, and the end."""

_BY_FOLDED = {name.casefold(): name for name in NAMES}
_OBSERVATION = re.compile(r"(?im)^[^\w\n]{0,9}observation\b|\bobservation\s{0,3}\d{0,6}\s{0,3}:")
_MARKED = re.compile(
    r"(?im)^[^\w\n]{0,9}action[^\w\n:]{0,9}\d{0,6}[^\w\n:]{0,9}:[^\w\[]{0,9}"
    r"([a-z][a-z_ ]{0,39})(?:[^\w\n\[(]{0,3}([\[(]))?"
)
_UNMARKED = re.compile(rf"(?i)\b({'|'.join(NAMES)})[^\w\n\[(]{{0,3}}([\[(])")
_TURN = re.compile(r"(?im)^([^\w\n]{0,9}(?:thought|action|observation)\s{0,3}\d{0,6}\s{0,3}):")
_CALL = re.compile(rf"(?i)\b({'|'.join(NAMES)})([ ]?)\[")
_CLOSING = {"[": "]", "(": ")"}


@dataclass(frozen=True, slots=True)
class Action:
    """A call of a tool. An unknown tool stays as the model wrote it."""

    tool: str
    argument: str

    def __str__(self) -> str:
        return f"{self.tool}[{self.argument}]"


def read_action(reply: Reply) -> Action:
    """Read the first action of a reply; words after an `Observation` are the model's invention and do not count.

    `Unusable` if there is none, or if the reply was cut within it.
    """
    text = cut_reply(reply.text)
    found = _MARKED.search(text) or _UNMARKED.search(text)
    if found is None:
        raise Unusable('it holds no line "Action: Tool[argument]" of its own')
    name, opening = found[1], found[2]
    if not opening:
        name, _, rest = name.strip().partition(" ")
        argument = rest + text[found.end() :].partition("\n")[0]
    else:
        end = _find_closing(text, found.end() - 1)
        if end is None and reply.finish == "length":
            raise Unusable("it was cut before its end")
        argument = text[found.end() : end] if end else text[found.end() :].partition("\n")[0].rstrip(" ])")
    folded = re.sub(r"[_\s]", "", name).casefold()
    return Action(_BY_FOLDED.get(folded, name.strip()), argument.strip().strip("\"'`\u201c\u201d").strip())


def cut_reply(text: str) -> str:
    """Cut a reply before its first `Observation`, and take away its hidden thoughts."""
    text = strip_thought(text).encode("utf-8", "replace").decode()
    found = _OBSERVATION.search(text)
    return (text[: found.start()] if found else text).strip()


def disarm(text: str) -> str:
    """Change the colons and brackets by which a document's text looks like an agent's turn, and nothing else."""
    return _CALL.sub("\\1\\2\u27e6", _TURN.sub("\\1\u2236", text))


def _find_closing(text: str, at: int) -> int | None:
    """Find the bracket that closes the one at `at`; None if there is none."""
    opening, depth = text[at], 0
    for found in re.finditer(rf"[{re.escape(opening + _CLOSING[opening])}]", text[at:]):
        depth += 1 if found[0] == opening else -1
        if not depth:
            return at + found.start()
    return None


TEXT_WORDS = 300
"""The words after which the tool `Text` cuts."""
MATCHING_SHARE = 0.85
"""A written text and a leaf match if they share this part of the pairs of words of the shorter one."""
FEWEST_PAIRS = 3
"""The fewest pairs of words in common, unless the leaf has fewer."""

_NO_LIST = re.compile(r"(?i)(?<![^\W\d_])(?!(?:nodes?|ids?|and|leaf|leaves)(?![^\W\d_]))[^\W\d_]{2}")
"""The beginning of a word that no list of nodes contains."""
_NUMBER = re.compile(r"(?a)(?<!\d)\d{1,9}(?!\d)")


@dataclass(frozen=True, slots=True)
class World:
    """The surroundings of an agent: the tree of one document, and the sizes of observations.

    `Retrieve` finds `retrieved` leaves. The text of an observation has about `room` tokens at most. `embed` returns
    the vector of a query.
    """

    discourse: Discourse
    retrieved: int
    room: int
    embed: Callable[[str], Vector]


@dataclass(frozen=True, slots=True)
class State:
    """The state of an agent: its node, and the nodes that were named, shown and written, by id.

    `shown` are leaves whose text the agent has seen. `written` are leaves in the order of writing.
    """

    focus: int
    named: frozenset[int] = frozenset()
    shown: frozenset[int] = frozenset()
    written: tuple[int, ...] = ()

    def see(self, named: Iterable[int], shown: Iterable[int] = ()) -> "State":
        """Add nodes that an observation names, and leaves whose text it shows."""
        shown = tuple(shown)
        return replace(self, named=self.named.union(named, shown), shown=self.shown.union(shown))


def show_leaf(world: World, id: int, tokens: int) -> str:
    """Show a leaf's text as data, cut at `tokens` tokens; it can neither end its delimiters nor call a tool."""
    text = world.discourse.find_text(id)
    part = clip(text, tokens)
    return delimit(id, disarm(part if part == text else f"{part} [...]"))


def move(world: World, state: State, argument: str) -> tuple[State, str]:
    """Go to a node. A leaf shows its text; an inner node hides its own, and names its parts."""
    tree = world.discourse.tree
    node = _read_node(tree, state, argument)
    state = replace(state, focus=node.id)
    parts = [part.id for part in children(tree, node.id)]
    if not parts:
        return state.see((), [node.id]), f"You are at node {node.id}:\n{show_leaf(world, node.id, world.room)}"
    names = " and ".join(str(part) for part in parts)
    seen = f"You are at node {node.id}, an inner node (its text is hidden): {node.relation} of the nodes {names}."
    return state.see([node.id, *parts]), seen


def find_relations(world: World, state: State, argument: str, satellites: bool = False) -> tuple[State, str]:
    """Name the sibling of a node, that of its parent and so on, with relation and depth, nearest first.

    If `satellites` is true, only those whose relations point towards the node.
    """
    tree = world.discourse.tree
    node = _read_node(tree, state, argument)
    related = [one for one in relations_from(tree, node.id) if not satellites or _is_satellite(tree, one.id)]
    state = state.see([node.id, *(one.id for one in related)])
    lines = [f"{one.relation}: node {one.id}; depth {one.depth}" for one in related]
    return state, "\n".join([f"Relations of node {node.id}:" if lines else f"Node {node.id} has none.", *lines])


def find_ancestors(world: World, state: State, argument: str) -> tuple[State, str]:
    """Name the path of a node to the root: its nuclearity, the relation and the parent's id at each step."""
    tree = world.discourse.tree
    node = _read_node(tree, state, argument)
    lines, named, below = list[str](), list[int](), node.id
    for above in ancestors(tree, node.id):
        lines.append(f"{'satellite' if _is_satellite(tree, below) else 'nucleus'}, {above.relation}, node {above.id}")
        named.append(above.id)
        below = above.id
        if count_tokens("\n".join(lines)) > world.room:
            break
    return state.see([node.id, *named]), "\n".join([f"From node {node.id} to the root:", *lines])


def retrieve(world: World, state: State, argument: str) -> tuple[State, str]:
    """Show the leaves below the focus that are closest to a query.

    At a leaf, or where all leaves would be found, the whole document is searched.
    """
    if not argument:
        raise Unusable("Retrieve needs words to search for")
    discourse = world.discourse
    below = {leaf.id for leaf in leaves(discourse.tree, state.focus)}
    if len(below) <= world.retrieved:
        below = {leaf.id for leaf in discourse.leaves}
    cosines = discourse.vectors @ world.embed(argument)
    order = [discourse.leaves[at].id for at in np.argsort(-cosines, kind="stable").tolist()]
    found = [id for id in order if id in below][: world.retrieved]
    texts = [show_leaf(world, id, world.room // max(len(found), 1)) for id in found]
    return state.see((), found), "\n".join([f"{len(found)} nodes found:", *texts])


def read_text(world: World, state: State, argument: str) -> tuple[State, str]:
    """Show the leaves below a node in text order, cut after `TEXT_WORDS` words with a notice."""
    node = _read_node(world.discourse.tree, state, argument)
    below = [leaf.id for leaf in leaves(world.discourse.tree, node.id)]
    found, texts, words, room = list[int](), list[str](), 0, world.room
    for id in below:
        words += len(world.discourse.find_text(id).split())
        if found and (words > TEXT_WORDS or room <= 0):
            break
        found.append(id)
        texts.append(show_leaf(world, id, room))
        room -= count_tokens(texts[-1])
    if len(found) < len(below):
        texts.append(f"Cut here: {len(below) - len(found)} more leaves, from node {below[len(found)]} to {below[-1]}.")
    return state.see([node.id], found), "\n".join(texts)


def write(world: World, state: State, argument: str) -> tuple[State, str]:
    """Keep leaves as evidence, by id or by their text. A leaf counts only if the agent has seen its text.

    An inner node stands for those leaves below it whose text was shown.
    """
    discourse = world.discourse
    if _NO_LIST.search(argument) or not _NUMBER.search(argument):
        wanted = _find_leaves_of_text(discourse, state.shown, argument)
        refused = [] if wanted else ["a text that stands in no node you have seen"]
    else:
        wanted, refused = [], []
        for id in dict.fromkeys(int(number) for number in _NUMBER.findall(argument)):
            known = id in discourse.tree.ids
            seen = [leaf.id for leaf in leaves(discourse.tree, id) if leaf.id in state.shown] if known else []
            wanted += seen
            refused += [] if seen else [f"node {id}"]
    new = [id for id in dict.fromkeys(wanted) if id not in state.written]
    why = f"Not written: {', '.join(refused[:10])}. You may write {_list_ids(state.shown)}; see others first."
    if not wanted:
        raise Unusable(why)
    said = f"Written: {_list_ids(new)}." if new else "These were written before."
    return replace(state, written=(*state.written, *new)), f"{said} {why}" if refused else said


Tool = Callable[[World, State, str], tuple[State, str]]
TOOLS: Mapping[str, Tool] = {
    "Move": move,
    "RelationsFrom": find_relations,
    "RelationsTo": partial(find_relations, satellites=True),
    "Ancestors": find_ancestors,
    "Retrieve": retrieve,
    "Text": read_text,
    "Write": write,
}
"""Each tool by its name."""


def _read_node(tree: Tree, state: State, argument: str) -> Node:
    """Read the node of an argument; an empty one means the node where the agent is."""
    found = _NUMBER.search(argument)
    id = int(found[0]) if found else state.focus
    if argument and (not found or id not in tree.ids):
        met = _list_ids(state.named)
        raise Unusable(f"there is no such node: they are numbered {tree.ids[0]} to {tree.ids[-1]}; you have met {met}")
    return tree[id]


def _is_satellite(tree: Tree, id: int) -> bool:
    parent = tree[id].parent
    if parent is None:
        return False
    first = children(tree, parent)[0].id == id
    return tree[parent].nuclearity == ("SN" if first else "NS")


def _find_leaves_of_text(discourse: Discourse, shown: Iterable[int], text: str) -> list[int]:
    """Find the shown leaves that hold most of a text, or that are mostly in it, in text order."""
    wanted = _pair_words(text)
    found = []
    for id in sorted(shown):
        own = _pair_words(discourse.find_text(id))
        least = max(MATCHING_SHARE * min(len(wanted), len(own)), min(FEWEST_PAIRS, len(own)))
        if own and len(wanted & own) >= least:
            found.append(id)
    return found


def _pair_words(text: str) -> set[tuple[str, str]]:
    words = re.findall(r"\w+", text.casefold())
    return set(pairwise(words))


def _list_ids(ids: Iterable[int], most: int = 20) -> str:
    found = sorted(ids)
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return f"{', '.join(str(id) for id in found[:most])}{more}" if found else "none"
