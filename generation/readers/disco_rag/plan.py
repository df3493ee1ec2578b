"""The plan of an answer, read from a reply or made from a template."""

import re
from collections.abc import Sequence
from itertools import takewhile

from keystone.generation.answers.sentences import tidy
from keystone.generation.context.tokens import clip
from keystone.generation.readers.disco_rag.chunks import Chunk, rank_chunks
from keystone.generation.readers.disco_rag.graph import Graph
from keystone.generation.readers.disco_rag.relations import UNRELATED
from keystone.generation.readers.disco_rag.replies import tidy_lines
from keystone.generation.types import Reply
from keystone.indexing.errors import Unusable

PLAN_TOKENS = 400
"""The most tokens of a plan that the writer is shown."""

_PLAN = re.compile(r"(?:rhetorical )?plan ?[:-] ?|plan\Z", re.IGNORECASE)
_ANSWER = re.compile(r"answer ?:", re.IGNORECASE)


def read_plan(reply: Reply) -> str:
    """Read the paragraph after `PLAN:`, up to a line `ANSWER:`. `Unusable` if there is none, or it was cut."""
    if reply.finish == "length":
        raise Unusable("it was cut before its end")
    lines = list(tidy_lines(reply))
    for place, line in enumerate(lines):
        if mark := _PLAN.match(line):
            rest = takewhile(lambda one: not _ANSWER.match(one), [line[mark.end() :], *lines[place + 1 :]])
            if plan := clip(tidy(" ".join(rest)), PLAN_TOKENS).rstrip():
                return plan
            break
    raise Unusable("it has no paragraph after PLAN:")


def make_plan(chunks: Sequence[Chunk], graph: Graph) -> str:
    """Make a plan by rules: the chunk closest to the question first, each other one with its tie to one before it."""
    first, *others = rank_chunks(chunks)
    sentences, named = [f"Begin with CHUNK[{first.number}], the closest to the question."], [first.number]
    for chunk in others:
        ties = (
            f"CHUNK[{i}] -> CHUNK[{j}]: {graph[i, j]}"
            for known in named
            for i, j in ((chunk.number, known), (known, chunk.number))
            if graph.get((i, j), UNRELATED) != UNRELATED
        )
        tie = next(ties, "")
        sentences.append(f"Go on with CHUNK[{chunk.number}]" + (f" ({tie})." if tie else ", which stands by itself."))
        named.append(chunk.number)
    return " ".join(sentences)
