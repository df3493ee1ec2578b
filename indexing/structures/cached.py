"""The structures of documents: section trees and discourse trees, each built once for a text."""

from collections.abc import Sequence

from indexing.index import Index
from indexing.structures.discourse import discourse_tree
from indexing.structures.sections import section_tree
from indexing.structures.tree import Tree
from indexing.types import Document


def read_section_trees(_index: Index, documents: Sequence[Document]) -> list[Tree]:
    """Read or build the section tree of each document."""
    return [section_tree(document) for document in documents]


def read_discourse_trees(index: Index, documents: Sequence[Document]) -> list[Tree]:
    """Read or build the discourse tree of each document."""
    trees = read_section_trees(index, documents)
    return [discourse_tree(tree, document.text) for tree, document in zip(trees, documents, strict=True)]
