"""The documents of a question as discourse trees, with a vector for each leaf."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from keystone.generation.context.topic import Sources, embed_spans
from keystone.generation.readers.structure_reader import Question
from keystone.indexing.structures.cached import read_discourse_trees
from keystone.indexing.structures.tree import Node, Tree, leaves
from keystone.indexing.types import Document, Span
from keystone.indexing.vectors.types import Vectors

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
