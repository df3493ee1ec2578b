"""The requests of Disco-RAG: a tree for each chunk, one graph for all, and the plan."""

from collections.abc import Sequence

from keystone.generation.answers.sentences import make_messages
from keystone.generation.context.delimit import neutralise
from keystone.generation.context.tokens import count_tokens
from keystone.generation.prompts.readers import rhetorical_graph, rhetorical_plan, rst_tree
from keystone.generation.readers.disco_rag.blueprint import Blueprint, show_structures
from keystone.generation.readers.disco_rag.chunks import Chunk, show_chunks
from keystone.generation.readers.disco_rag.relations import INTER, INTRA
from keystone.generation.readers.disco_rag.tree import show_units
from keystone.generation.types import Request

SPARE_TOKENS = 1024
"""Tokens of each reply for thoughts and for words around what is asked for."""
EDGE_TOKENS = 16
"""Tokens of a reply's line on one pair of chunks."""
PLAN_REPLY_TOKENS = 512
"""Tokens of a reply's plan."""


def request_tree(chunk: Chunk) -> Request:
    """Make the request for the tree of a chunk. The reply repeats the chunk, and has about as many relations."""
    user = rst_tree.USER.format(chunk=show_chunks([chunk]), relations=INTRA)
    tokens = 2 * count_tokens(chunk.text) + SPARE_TOKENS
    return Request("rst_tree", make_messages(rst_tree.SYSTEM, user), tokens)


def request_graph(chunks: Sequence[Chunk]) -> Request:
    """Make the one request for the relations of all ordered pairs of chunks."""
    pairs = len(chunks) * (len(chunks) - 1)
    user = rhetorical_graph.USER.format(chunks=show_chunks(chunks), relations=INTER, pairs=pairs)
    tokens = EDGE_TOKENS * pairs + SPARE_TOKENS
    return Request("rhetorical_graph", make_messages(rhetorical_graph.SYSTEM, user), tokens)


def request_plan(question: str, blueprint: Blueprint) -> Request:
    """Make the request for the plan. If there are trees, each chunk is shown unit by unit, so it stands there once."""
    chunks = blueprint.chunks
    lines = [show_units(tree, chunk.text) for tree, chunk in zip(blueprint.trees, chunks, strict=False)]
    user = rhetorical_plan.USER.format(
        question=neutralise(question), chunks=show_chunks(chunks, lines), structures=show_structures(blueprint)
    )
    return Request("rhetorical_plan", make_messages(rhetorical_plan.SYSTEM, user), PLAN_REPLY_TOKENS + SPARE_TOKENS)
