"""The structures over all chunks, as the plan's prompt and the writer are shown them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from keystone.generation.prompts.readers import rhetorical_plan
from keystone.generation.readers.disco_rag.chunks import Chunk
from keystone.generation.readers.disco_rag.graph import Graph, show_graph, shuffle_graph
from keystone.generation.readers.disco_rag.tree_reply import show_tree, shuffle_trees
from keystone.generation.types import Note
from keystone.indexing.structures.tree import Tree

FIRST_WORDS = 8
"""How many words name a chunk in the writer's note."""


@dataclass(frozen=True, slots=True)
class Blueprint:
    """Chunks, the tree of each (none: without trees), and the graph between them (None: without one)."""

    chunks: Sequence[Chunk]
    trees: Sequence[Tree] = ()
    graph: Graph | None = None


def show_structures(blueprint: Blueprint) -> str:
    """Show trees and graph as the plan's prompt holds them; empty if there are none."""
    pairs = zip(blueprint.chunks, blueprint.trees, strict=False)
    trees = "\n".join(f"CHUNK[{chunk.number}]: {show_tree(tree)}" for chunk, tree in pairs)
    graph = "" if blueprint.graph is None else show_graph(blueprint.graph) or "none"
    return (rhetorical_plan.TREES.format(trees=trees) if trees else "") + (
        rhetorical_plan.GRAPH.format(graph=graph) if graph else ""
    )


def shuffle_labels(blueprint: Blueprint, seed: int) -> Blueprint:
    """Shuffle the labels of the trees, and those of the graph (Disco-RAG, figure 4)."""
    graph = blueprint.graph and shuffle_graph(blueprint.graph, seed)
    return replace(blueprint, trees=shuffle_trees(blueprint.trees, seed), graph=graph)


def list_notes(blueprint: Blueprint, plan: str, query_id: str, last: int) -> tuple[Note, ...]:
    """List a note for each tree, which the writer is not shown, and one for the writer.

    The writer's note tells where each chunk is in the documents of the prompt, the relations, and the plan. There is
    none without graph and plan. `last` is the number of the reader's last step.
    """
    chunks = blueprint.chunks
    notes = [
        Note(show_tree(tree), (chunk.span,), "tree", chunk.number, query_id)
        for chunk, tree in zip(chunks, blueprint.trees, strict=False)
    ]
    if blueprint.graph or plan:
        text = "\n".join(
            [*map(_locate, chunks), *_show_relations(blueprint.graph), *([f"Plan: {plan}"] if plan else [])]
        )
        kind = "plan" if plan else "graph"
        notes.append(Note(text, tuple(chunk.span for chunk in chunks), kind, last, query_id))
    return tuple(notes)


def _locate(chunk: Chunk) -> str:
    words = " ".join(chunk.text.split()[:FIRST_WORDS])
    return f'CHUNK[{chunk.number}] is the part of document {chunk.document} that begins "{words}".'


def _show_relations(graph: Graph | None) -> list[str]:
    shown = show_graph(graph) if graph else ""
    return ["Relations, where the first chunk serves the second:", shown] if shown else []
