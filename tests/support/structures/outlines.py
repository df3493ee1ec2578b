"""Section trees from outlines in the form in which a router sees them, and walks over them with scripted routers."""

import re

import numpy as np

from keystone.generation.context.topic import TopicContext
from keystone.generation.readers.rdr2.read import Site
from keystone.generation.readers.rdr2.view import flatten
from keystone.generation.readers.settings import Rdr2Settings
from keystone.generation.readers.structure_reader import Question
from keystone.indexing.structures.tree import Node, Tree
from keystone.indexing.types import Document, Span

LINE = re.compile(r"(\t*)(-?\d+): (.*)")


def read_outline(outline: str, doc_id: str = "d") -> tuple[Tree, str]:
    """The tree of an outline and its text. Headings stand between equals signs, and the first line is the title."""
    nodes: list[Node] = []
    path: list[int] = []
    text = ""
    for line in outline.strip("\n").split("\n"):
        tabs, number, said = LINE.fullmatch(line).groups()  # type: ignore[union-attr]
        depth, id = len(tabs), int(number)
        parent = path[depth - 1] if depth else None
        path[depth:] = [id]
        if depth and not said.startswith("="):
            nodes.append(Node(id, parent, "content", len(text), len(text) + len(said)))
            text += f"{said}\n"
        else:
            nodes.append(Node(id, parent, "heading", len(text), len(text), depth, said.strip("=")))
    return Tree(doc_id, tuple(nodes)), text


def ask(text: str) -> Question:
    """A question without documents and vectors."""
    return Question(
        "1", "1#0", text, np.zeros(1, np.float32), TopicContext({}, {}, [], np.zeros((0, 1), np.float32)), ()
    )


def make_site(outline: str, hits: tuple[int, ...], doc_id: str = "d", **settings: object) -> Site:
    """The site of an outline whose hits are the stretches of these nodes."""
    tree, text = read_outline(outline, doc_id)
    spans = tuple(Span(doc_id, tree[id].start, tree[id].end) for id in hits)
    chosen = Rdr2Settings.model_validate({"name": "rdr2", **settings})
    shown = tree if chosen.structure else flatten(tree)
    return Site(ask("How high is it?"), chosen, 0, Document(doc_id, text), shown, spans)
