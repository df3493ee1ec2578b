"""The rhetorical graph between chunks: a label for each ordered pair, read from a reply or inferred by rules."""

import re
from collections.abc import Mapping, Sequence
from itertools import combinations, permutations
from random import Random

from keystone.generation.readers.disco_rag.chunks import Chunk
from keystone.generation.readers.disco_rag.relations import (
    INTER,
    UNRELATED,
    Found,
    name_relation,
    report_unknown,
    tidy_lines,
)
from keystone.generation.types import Reply
from keystone.indexing.errors import Unusable
from keystone.indexing.structures.discourse import signal_across
from keystone.indexing.words import STEM_LETTERS, find_content_words

LEAST_OVERLAP = 0.2
"""The least share of the smaller chunk's content words that two related chunks have in common."""

Pair = tuple[int, int]
"""The numbers of two different chunks: the first serves a function for the second."""

Graph = Mapping[Pair, str]
"""The label of each ordered pair: K(K-1) pairs for K chunks."""

_EDGE = re.compile(r"([0-9]{1,4}) ?[-=]{1,3}> ?([0-9]{1,4}) ?[:=]? ?(.{0,80})")
_FRAME = re.compile(r"[\[\]]|\bchunks? ?(?=\[? ?[0-9])", re.IGNORECASE)
_YEAR = re.compile(r"\b(?:1[0-9]|20)[0-9]{2}\b")


def read_graph(reply: Reply, count: int) -> Found[Graph]:
    """Read the labels of pairs of `count` chunks; `Unusable` if the reply has none.

    The first label of a pair counts. A pair without a label is UNRELATED, and the remarks tell how many have one.
    """
    words: dict[Pair, str] = {}
    pairs = list(permutations(range(1, count + 1), 2))
    known = set(pairs)
    for line in tidy_lines(reply):
        if match := _EDGE.search(_FRAME.sub("", line)):
            pair = int(match[1]), int(match[2])
            if pair in known:
                words.setdefault(pair, match[3].strip(" .:;,()"))
    if not words:
        raise Unusable(f"it has no line such as CHUNK[1] -> CHUNK[2]: {UNRELATED}, with numbers from 1 to {count}")
    remarks = [f"{len(words)} of {len(pairs)} pairs labelled", *report_unknown(words.values(), INTER)]
    return Found({pair: name_relation(words.get(pair, UNRELATED), INTER).label for pair in pairs}, remarks)


def infer_graph(chunks: Sequence[Chunk]) -> Found[Graph]:
    """Infer the labels by rules.

    A connective at the beginning of a chunk relates it to the chunk before it in the same document. Chunks with words
    in common form a SEQUENCE if all years of one are before those of the other. Otherwise the chunk that is further
    from the question is an ELABORATION of the closer one.
    """
    edges = dict.fromkeys(permutations([chunk.number for chunk in chunks], 2), UNRELATED)
    stems = {chunk.number: {word[:STEM_LETTERS] for word in find_content_words(chunk.text)} for chunk in chunks}
    years = {chunk.number: sorted(_YEAR.findall(chunk.text)) for chunk in chunks}
    for one, other in combinations(chunks, 2):
        follows = other.number == one.number + 1 and other.span.doc_id == one.span.doc_id
        signal = signal_across(other.text) if follows else None
        a, b = one.number, other.number
        shared = len(stems[a] & stems[b]) / (min(len(stems[a]), len(stems[b])) or 1)
        if signal:
            label = name_relation(signal.relation, INTER).label
            edges[(a, b) if label == "SEQUENCE" else (b, a)] = label
        elif shared >= LEAST_OVERLAP:
            if years[a] and years[b] and (years[a][-1] < years[b][0] or years[b][-1] < years[a][0]):
                edges[(a, b) if years[a][-1] < years[b][0] else (b, a)] = "SEQUENCE"
            else:
                edges[(b, a) if one.cosine >= other.cosine else (a, b)] = "ELABORATION"
    return Found(edges, ["by rules"])


def show_graph(graph: Graph) -> str:
    """Show the labels of related pairs, one a line."""
    return "\n".join(f"CHUNK[{i}] -> CHUNK[{j}]: {label}" for (i, j), label in graph.items() if label != UNRELATED)


def shuffle_graph(graph: Graph, seed: int) -> Graph:
    """Shuffle the labels among all pairs (Disco-RAG, figure 4b)."""
    labels = list(graph.values())
    Random(seed).shuffle(labels)
    return dict(zip(graph, labels, strict=True))
