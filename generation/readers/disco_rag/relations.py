"""Chunks of documents, and the rhetorical relations between them (Disco-RAG, section 3).

Chunks are the segments closest to a question, without overlap. The inventories of relations are data files. The graph
has a label for each ordered pair of chunks, read from a reply or inferred by rules.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from importlib.resources import files
from itertools import combinations, permutations
from random import Random
from typing import Generic, NamedTuple, TypeVar

import yaml

from keystone.generation.context.texts import delimit
from keystone.generation.readers.structure_reader import Question
from keystone.generation.readers.write import cut_to_tokens
from keystone.generation.replies import strip_thought
from keystone.generation.types import Evidence, Reply
from keystone.indexing.errors import Unusable, printable
from keystone.indexing.structures.blocks import trim
from keystone.indexing.structures.discourse import signal_across
from keystone.indexing.structures.tree import Nuclearity
from keystone.indexing.types import Span
from keystone.indexing.words import STEM_LETTERS, find_content_words

LEAST_LEFT = 0.25
"""The least share of a segment that makes a chunk after its overlap with others is cut off."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk. Its number counts from 1 in the order of documents and text, and `cosine` is that to the question.

    `document` is the number of its document in the prompt of the answer, from 0.
    """

    number: int
    document: int
    span: Span
    text: str
    cosine: float

    @property
    def line(self) -> str:
        """The text on one line. So no line of a document appears where a model writes its own lines."""
        return " ".join(self.text.split())


def choose_chunks(question: Question, most: int, tokens: int) -> list[Chunk]:
    """Choose the `most` segments that are closest to a question, within `tokens` tokens (0: no limit).

    Ties go to the better document, then to the earlier segment. If a segment overlaps with a chunk, the longest part
    that is left is the chunk. If that part is less than a quarter of the segment, the function leaves the segment out.
    """
    found: list[Evidence] = []
    for cosine, rank, span in _rank_segments(question):
        if len(found) == most:
            break
        text = question.documents[rank].text
        start, end = trim(text, *_cut_overlap(span, [item.span for item in found]))
        if end - start >= max(1, LEAST_LEFT * (span.end - span.start)):
            found.append(Evidence(Span(span.doc_id, start, end), text[start:end], cosine, question.query_id))
    kept = cut_to_tokens(found, tokens)
    rank_of = {document.id: rank for rank, document in enumerate(question.documents)}
    kept.sort(key=lambda item: (rank_of[item.span.doc_id], item.span.start))
    places = {id: place for place, id in enumerate(dict.fromkeys(item.span.doc_id for item in kept))}
    return [
        Chunk(number, places[item.span.doc_id], item.span, item.text, item.score) for number, item in enumerate(kept, 1)
    ]


def list_evidence(chunks: Sequence[Chunk], query_id: str) -> tuple[Evidence, ...]:
    """List the chunks as evidence, the closest to the question first."""
    return tuple(
        Evidence(chunk.span, chunk.text, chunk.cosine, query_id, why=f"chunk {chunk.number}")
        for chunk in rank_chunks(chunks)
    )


def rank_chunks(chunks: Sequence[Chunk]) -> list[Chunk]:
    """Put the chunks in the order of their cosine, highest first. Ties stay in the order of the text."""
    return sorted(chunks, key=lambda chunk: -chunk.cosine)


def show_chunks(chunks: Sequence[Chunk], lines: Sequence[str] = ()) -> str:
    """Show chunks as delimited documents of one line; `lines` may hold other lines of their text."""
    shown = lines or [chunk.line for chunk in chunks]
    return "\n\n".join(
        delimit(chunk.number, f"CHUNK[{chunk.number}]: {line}") for chunk, line in zip(chunks, shown, strict=True)
    )


def _rank_segments(question: Question) -> list[tuple[float, int, Span]]:
    """List all segments with their cosine to the question and their document's rank, the closest first.

    A document without segments is one stretch, whose cosine counts as 0.
    """
    found: list[tuple[float, int, Span]] = []
    for rank, row in enumerate(question.rows):
        document = question.context.documents[row]
        cosines = (question.context.segments[row] @ question.vector).tolist() if document.segments else [0.0]
        spans = [segment.span for segment in document.segments] or [Span(document.id, 0, len(document.text))]
        found += [(cosine, rank, span) for cosine, span in zip(cosines, spans, strict=True)]
    return sorted(found, key=lambda one: (-one[0], one[1], one[2].start))


def _cut_overlap(span: Span, chosen: Sequence[Span]) -> tuple[int, int]:
    """Cut off what chosen stretches hold; returns the longest part that is left, the first among equals."""
    parts, at = [], span.start
    for other in sorted((one for one in chosen if one.doc_id == span.doc_id), key=lambda one: one.start):
        parts.append((at, min(other.start, span.end)))
        at = max(at, other.end)
    parts.append((at, span.end))
    return max(parts, key=lambda part: part[1] - part[0])


T = TypeVar("T")

_PLAIN = str.maketrans(
    {**dict.fromkeys("*`#{}|"), **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2212", "-"), "\u2192": "->"}
)


class Found(NamedTuple, Generic[T]):
    """A value that is read from a reply or made by rules, with remarks for the record of the step."""

    value: T
    remarks: list[str]


def tidy_lines(reply: Reply) -> Iterator[str]:
    """Yield the lines of a reply that are not empty, without thoughts, markup and spaces around them."""
    for line in strip_thought(reply.text).translate(_PLAIN).splitlines():
        if tidied := " ".join(line.split()).lstrip("->\u2022 "):
            yield tidied


LONGEST_LABEL_CHARACTERS = 60
"""The characters of a label that are looked at. The rest is a remark of the model."""
MOST_LABEL_WORDS = 4
"""The most words of a relation's name or alias."""
LEAST_SIMILARITY = 0.8
"""The least similarity of a misspelt label and a name, as `difflib` computes it."""
MOST_REPORTED_LABELS = 5
"""The most labels that a step's record lists."""

_NOT_LETTERS = re.compile(r"[^a-z]+")


@dataclass(frozen=True, slots=True)
class Relation:
    """A relation: its usual nuclei, and its meaning for a prompt."""

    nuclei: Nuclearity
    meaning: str


@dataclass(frozen=True, slots=True, eq=False)
class Inventory:
    """The relations by label, the label of each name and alias, and the label that stands for all other words."""

    relations: Mapping[str, Relation]
    labels: Mapping[str, str]
    default: str

    def __str__(self) -> str:
        """List the relations with their meanings, one a line."""
        return "\n".join(f"{label}: {relation.meaning}" for label, relation in self.relations.items())


class Named(NamedTuple):
    """The label that a model's words mean, and whether they are a name or an alias of it."""

    label: str
    known: bool


def _load(names: Iterable[str], default: str) -> Inventory:
    folder = files(__package__) / "inventories"
    read = {
        label: entry
        for name in names
        for label, entry in yaml.safe_load(folder.joinpath(name).read_text(encoding="utf-8")).items()
    }
    return Inventory(
        {label: Relation(entry["nuclei"], entry["meaning"]) for label, entry in read.items()},
        {name.lower(): label for label, entry in read.items() for name in (label, *entry["aliases"])},
        default,
    )


UNRELATED = "UNRELATED"
"""The label of two chunks that have no relation."""
INTRA = _load(["intra.yaml"], "ELABORATION")
"""The relations within a chunk (Disco-RAG, figure 8)."""
INTER = _load(["intra.yaml", "inter.yaml"], UNRELATED)
"""The relations between chunks (Disco-RAG, figure 9)."""


@lru_cache(maxsize=4096)
def name_relation(words: str, inventory: Inventory) -> Named:
    """Find the label that words mean: their longest beginning that is a name, or else the most similar name.

    A similar name has the same first letter. If no name is similar, the label is the inventory's default.
    """
    parts = _NOT_LETTERS.sub(" ", words[:LONGEST_LABEL_CHARACTERS].lower()).split()
    for count in range(min(len(parts), MOST_LABEL_WORDS), 0, -1):
        if label := inventory.labels.get(" ".join(parts[:count])):
            return Named(label, True)
    near = [name for name in inventory.labels if parts and name[0] == parts[0][0]]
    for start in (parts, parts[:1]):
        for name in get_close_matches(" ".join(start), near, 1, LEAST_SIMILARITY):
            return Named(inventory.labels[name], False)
    return Named(inventory.default, False)


def report_unknown(words: Iterable[str], inventory: Inventory) -> list[str]:
    """Report the words that are not names of relations, and the label that each means; empty if there are none."""
    found = [
        f'"{printable(one, LONGEST_LABEL_CHARACTERS)}" as {named.label}'
        for one in dict.fromkeys(words)
        if not (named := name_relation(one, inventory)).known
    ]
    more = f" and {len(found) - MOST_REPORTED_LABELS} more" if len(found) > MOST_REPORTED_LABELS else ""
    return [f"read {', '.join(found[:MOST_REPORTED_LABELS])}{more}"] if found else []


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
