"""Discourse trees without a model against the gold trees of GUM: F1 of spans, nuclearity, relations, in percent.

The measure is that of the original Parseval: joints of the binary tree, without the root, over all documents at once.
The four measures count joints with the right span: all of them, and those whose nuclearity, relation (in GUM's 15
classes), or both are right too. Leaves are the gold units, so that the measure compares trees and not how sentences are
cut. Sentences, paragraphs and headings are the gold ones as well. The documents are those of the eleven written genres.
The peers are a right-branching and a balanced tree, both with elaborations alone.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.gold_trees import MULTINUC, Part, TreeText, tree_of_parts
from benchmarks.table import Row
from keystone.indexing.io.reading import read_json_lines
from keystone.indexing.structures.discourse import (
    AFTER_HEADING,
    BEFORE_HEADING,
    BETWEEN_PARAGRAPHS,
    BETWEEN_SENTENCES,
    IN_SENTENCE,
    Leaf,
    binary_tree,
)
from keystone.indexing.structures.tree import Tree

SHARED = Path(__file__).parents[2] / "shared" / "data"
GUM = SHARED / "gum-rst"
SPOKEN = frozenset(("conversation", "podcast", "speech", "vlog"))
TARGETS = {"dev": 54.0, "test": 57.0}
"""Span F1 by partition."""

CLASSES = {
    **dict.fromkeys(("contrast", "antithesis", "concession"), "adversative"),
    **dict.fromkeys(("cause", "result"), "causal"),
    **dict.fromkeys(("means", "manner"), "mode"),
    **dict.fromkeys(("joint", "sequence", "disjunction"), "joint"),
    "condition": "contingency",
    "circumstance": "context",
}
"""The GUM class of each relation of ours that has another name there."""

Joints = dict[tuple[int, int], tuple[str, str]]
"""The nuclearity and the class of relation for each joint but the root, by its first and last leaf."""


@dataclass(frozen=True, slots=True)
class Gold:
    """A document of GUM: its gold units as leaves with the gaps between them, and its gold joints."""

    text: str
    leaves: tuple[Leaf, ...]
    joints: Joints


class Scores(NamedTuple):
    """Micro F1 in percent."""

    span: float
    nuclearity: float
    relation: float
    full: float


def read_gum(partition: str, folder: Path = GUM) -> list[Gold]:
    """The written documents of a partition: train, dev or test."""
    documents = {record["docid"]: record for _, record in read_json_lines(folder / "documents.jsonl")}
    trees = {record["docid"]: record for _, record in read_json_lines(folder / "rst.jsonl.gz")}
    return [
        Gold(
            document["text"],
            tuple(_leaves(document, trees[name]["edus"])),
            joints_of(gold_tree(name, trees[name]).tree),
        )
        for name, document in documents.items()
        if document["partition"] == partition and document["genre"] not in SPOKEN
    ]


def gold_tree(name: str, record: dict[str, Any]) -> TreeText:
    """The gold tree of a record of `rst.jsonl.gz`."""
    parts = [
        Part(
            str(part["id"]),
            None if part["parent"] is None else str(part["parent"]),
            part["rel"] or "",
            part.get("text"),
            part.get("type") == MULTINUC,
        )
        for part in [*record["edus"], *record["groups"]]
    ]
    equal = {relation for relation, type in record["relation_types"].items() if type == MULTINUC}
    return tree_of_parts(name, parts, equal)


def our_joints(gold: Gold) -> Joints:
    """The joints of Keystone's tree over the gold units."""
    return joints_of(binary_tree("", gold.leaves, gold.text))


def right_branching(gold: Gold) -> Joints:
    """Each unit is joined with all after it."""
    last = len(gold.leaves) - 1
    return {(first, last): ("NS", "elaboration") for first in range(1, last)}


def balanced(gold: Gold) -> Joints:
    """Each half is cut in halves."""
    found: Joints = {}
    waiting = [(0, len(gold.leaves))]
    while waiting:
        start, end = waiting.pop()
        if end - start > 1:
            found[start, end - 1] = ("NS", "elaboration")
            middle = (start + end) // 2
            waiting += [(start, middle), (middle, end)]
    found.pop((0, len(gold.leaves) - 1), None)
    return found


def joints_of(tree: Tree) -> Joints:
    """The joints of a binary tree, without its root."""
    counts = [0]
    for node in tree.nodes:
        counts.append(counts[-1] + (node.kind == "content"))
    return {
        (counts[at], counts[tree.ends[at]] - 1): (
            node.nuclearity,
            CLASSES.get(node.relation, node.relation.partition("-")[0]),
        )
        for at, node in enumerate(tree.nodes)
        if node.kind == "relation" and at
    }


def score(golds: Sequence[Gold], make: Callable[[Gold], Joints]) -> Scores:
    """The F1 of trees against gold trees. Both have the same number of joints, so precision and recall are equal."""
    joints = spans = nuclearities = relations = both = 0
    for gold in golds:
        joints += len(gold.joints)
        for span, (nuclearity, relation) in make(gold).items():
            if span in gold.joints:
                right = (nuclearity == gold.joints[span][0], relation == gold.joints[span][1])
                spans, nuclearities, relations = spans + 1, nuclearities + right[0], relations + right[1]
                both += all(right)
    return Scores(*(100 * count / joints for count in (spans, nuclearities, relations, both)))


def rows() -> list[Row]:
    """Rows for both partitions, four measures and two peers; there are none without the corpus."""
    if not GUM.exists():
        return []
    found = []
    for partition, target in TARGETS.items():
        golds = read_gum(partition)
        ours = score(golds, our_joints)
        for name, peer in (("right-branching", score(golds, right_branching)), ("balanced", score(golds, balanced))):
            for measure in Scores._fields:
                mine, other = getattr(ours, measure), getattr(peer, measure)
                title = f"discourse trees, GUM {partition}: {measure} F1, against {name}"
                found.append(Row(title, mine, other, "%", mine / other, None, "no model"))
        row = Row(
            f"discourse trees, GUM {partition}: span F1, against the aim",
            ours.span,
            target,
            "%",
            ours.span / target,
            1,
            "no model",
        )
        found.append(row)
    return found


def _leaves(document: dict[str, Any], units: Sequence[dict[str, Any]]) -> Iterator[Leaf]:
    sentences = [start for start, _ in document["sentences"]]
    blocks = [block["start"] for block in document["blocks"]]
    last_sentence = last_block = -1
    after_heading = False
    for unit in units:
        sentence, block = bisect_right(sentences, unit["start"]), bisect_right(blocks, unit["start"]) - 1
        heading = document["blocks"][block]["type"] == "head"
        if block != last_block:
            gap = AFTER_HEADING if after_heading else BEFORE_HEADING if heading else BETWEEN_PARAGRAPHS
        else:
            gap = IN_SENTENCE if sentence == last_sentence else BETWEEN_SENTENCES
        yield Leaf(unit["start"], unit["end"], gap, heading)
        last_sentence, last_block, after_heading = sentence, block, heading
