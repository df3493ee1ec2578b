"""A question over documents of two clear parts, and good replies to each request of the reader Disco-RAG."""

import re
from collections.abc import Mapping
from itertools import permutations

import numpy as np

from keystone.generation.context.topic import TopicContext
from keystone.generation.readers.structure_reader import Question
from keystone.generation.types import Request
from keystone.indexing.structures.blocks import sentence_spans
from keystone.indexing.types import Document, Segment, Span

TEXTS = {
    "show": "The musical began with previews in 1997. Critics praised it. However, tickets were dear.",
    "move": "In 2006 the musical moved to another theatre. Tickets were cheaper there.",
    "other": "Bees dance for one another. They point at flowers.",
}
"""Three documents by id, the closest to the question first."""


def make_question(texts: Mapping[str, str] = TEXTS) -> Question:
    """Make a question over documents of one segment each, whose cosines to it fall from 0.9 on."""
    spans = {id: [(0, len(text))] for id, text in texts.items()}
    return make_question_over(texts, spans, {id: [0.9 - 0.1 * place] for place, id in enumerate(texts)})


def make_question_over(
    texts: Mapping[str, str], spans: Mapping[str, list[tuple[int, int]]], cosines: Mapping[str, list[float]]
) -> Question:
    """Make a question over documents with these segments, which have these cosines to it."""
    documents = {
        row: Document(
            id,
            text,
            segments=tuple(Segment(f"{id}#{n}", Span(id, *span)) for n, span in enumerate(spans[id])),
        )
        for row, (id, text) in enumerate(texts.items())
    }
    vectors = {row: np.array([[cosine, 0] for cosine in cosines[document.id]]) for row, document in documents.items()}
    context = TopicContext(
        documents, {r: v.astype(np.float32) for r, v in vectors.items()}, [], np.zeros((0, 2), np.float32)
    )
    return Question("1", "", "When did it open?", np.array([1, 0], np.float32), context, tuple(documents))


def reply_well(request: Request) -> str:
    """Reply to a request of the reader as its prompt asks: units by sentences, all pairs, and a plan."""
    shown = dict(re.findall(r"^CHUNK\[(\d+)\]: (.*)$", request.messages[1][1], re.MULTILINE))
    if request.purpose == "rst_tree":
        return write_tree(*shown.values())
    if request.purpose == "rhetorical_graph":
        return write_graph(len(shown))
    return "PLAN: First tell of CHUNK[1], then of the others."


def write_tree(text: str) -> str:
    """Write the reply with a chunk's tree: its sentences, joined from the left as a sequence."""
    units = [text[start:end] for start, end in sentence_spans(text, 0, len(text))]
    lines = ["EDUs:", *(f"[{number}] {unit}" for number, unit in enumerate(units, 1)), "RST ANALYSIS:"]
    for number in range(2, len(units) + 1):
        left = "[1]" if number == 2 else f"[1-{number - 1}]"
        lines.append(f"RELATION({left}, [{number}]): SEQUENCE NN")
    return "\n".join(lines)


def write_graph(count: int) -> str:
    """Write the reply with the labels of all pairs: each chunk supports the one after it."""
    return "\n".join(
        f"CHUNK[{i}] -> CHUNK[{j}]: {'SUPPORT' if j == i + 1 else 'UNRELATED'}"
        for i, j in permutations(range(1, count + 1), 2)
    )
