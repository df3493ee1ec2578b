"""The caller's functions as parts of Keystone: an encoder of texts, a reranker, a reader and a method of fusion.

`keystone.index`, `rerank`, `answer` and `fuse` take one each. What a function returns is checked here, and what it
raises reaches the caller as it is.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from math import isfinite
from typing import Any

import numpy as np

from keystone.generation.types import Answer, Sentence
from keystone.indexing.embedder import ReportCut, Vectors, round_to_grid
from keystone.indexing.errors import UserError
from keystone.indexing.io.json_values import digest
from keystone.indexing.types import Document, Embedding, Store, Tick
from keystone.indexing.vectors.embed import find_stand_in, use_embedder
from keystone.retrieval.types import Query, Topic
from keystone.runs.python.checks import check_function, check_id, check_ranked
from keystone.runs.trec.types import Run, make_run

Encode = Callable[[list[str]], Any]
"""Returns a vector for each text: floats[texts, dimension], or a list of lists."""
Score = Callable[[str, list[str]], Sequence[float]]
"""Scores texts for a narrative; the highest is the best."""
Fuse = Callable[[list[dict[str, float]]], Mapping[str, float]]
"""Fuses rankings, each with the score of each document id, best first, into the score of each document id."""
Read = Callable[[str, list[Document]], str | Sequence[tuple[str, Sequence[str]]]]
"""Answers a narrative from documents, best first: a text, or the sentences, each with the ids that it cites."""

PROBE = "Keystone"
"""The text whose vector shows an index whether an encoder is its own."""
MOST_SAMPLES = 8
"""How many texts, the probe and then the first ones, another function of the same name embeds for comparison."""
MOST_APART = 0.1
"""The distance of two vectors of length 1 up to which they count as the same, since hardware and batches vary."""


class FunctionEmbedder:
    """An `Embedder` that asks a function. The length of vectors does not matter, since all are scaled to one length."""

    def __init__(self, encode: Encode) -> None:
        check_function(encode, "encoder")
        self._encode = encode
        self.probe = self._embed([PROBE])
        self.dimension: int = self.probe.shape[1]
        self._samples = {PROBE: self.probe[0]}

    def find_long(self, texts: Sequence[str]) -> list[int]:  # noqa: ARG002
        """Find no text, because nobody knows the function's window."""
        return []

    def embed(
        self,
        texts: Sequence[str],
        threads: int = 1,  # noqa: ARG002
        tick: Tick = lambda _: None,
        cut: ReportCut = lambda _: None,  # noqa: ARG002
    ) -> Vectors:
        """Vectors on the grid, float32[len(texts), dimension]. `UserError` for vectors of another shape."""
        found = self._embed(list(texts)) if texts else np.empty((0, self.dimension), np.float32)
        if found.shape[1] != self.dimension:
            raise UserError(f"encoder: found vectors of {found.shape[1]} and of {self.dimension} entries")
        tick(len(texts))
        new = MOST_SAMPLES - len(self._samples)
        self._samples.update(zip(texts[:new], found[:new].copy(), strict=True))
        return found

    def agrees(self, other: "FunctionEmbedder") -> bool:
        """Tell whether another function is this one, or has its vectors for the first texts that this one embedded."""
        if self._encode == other._encode:
            return True
        apart = other.embed(list(self._samples)) - np.stack(list(self._samples.values()))
        return bool(np.linalg.norm(apart, axis=1).max() < MOST_APART)

    def _embed(self, texts: list[str]) -> Vectors:
        values = self._encode(texts)
        try:
            found = np.asarray(values, dtype=np.float64)
        except (TypeError, ValueError):
            raise UserError(f"encoder: found {type(values).__name__}, expected a vector for each text") from None
        if found.ndim != 2 or len(found) != len(texts) or not found.size or not np.isfinite(found).all():
            shape = " x ".join(map(str, found.shape)) or "a number"
            raise UserError(f"encoder: found {shape} for {len(texts)} texts, expected a finite vector for each text")
        return round_to_grid(found)


def name_encoder(encode: Encode) -> Embedding:
    """Make a function the model of an embedding, named after the function and a vector that tells functions apart.

    `UserError` if a function that this process used before has the same name and other vectors.
    """
    embedder = FunctionEmbedder(encode)
    name = getattr(encode, "__qualname__", type(encode).__qualname__)
    made = Embedding(f"{name} {digest((embedder.probe > 0).tolist())[:8]}")
    before = find_stand_in(made)
    if isinstance(before, FunctionEmbedder) and not before.agrees(embedder):
        raise UserError(
            f"encoder: found another function {name} than the one that this process used before, whose indexes it "
            "would search; expected a function with a name of its own"
        )
    use_embedder(made, embedder)
    return made


def rerank_by(score: Score, store: Store, topics: Sequence[Topic], run: Run, depth: int, tag: str) -> Run:
    """Rank the first `depth` documents of each topic again by a function; the others follow. Ties stay as they were.

    A document scores the number of documents from it to the end. `UserError` unless each text has a finite score, and
    for a document that the store lacks.
    """
    check_function(score, "reranker")
    check_ranked([run], [topic.id for topic in topics], "ranking")
    listed, found = run.select([topic.id for topic in topics]).list_hits(), {}
    for topic in topics:
        ids = [doc_id for doc_id, _ in listed[topic.id]]
        order = _order_texts(score, topic.narrative, [one.contents for one in _get(store, ids[:depth])])
        best = [*(ids[place] for place in order), *ids[depth:]]
        found[topic.id] = [(doc_id, float(len(best) - place)) for place, doc_id in enumerate(best)]
    return make_run(tag, found)


def _get(store: Store, ids: Sequence[str]) -> list[Document]:
    rows = store.rows(ids)
    if missing := [name for name, row in zip(ids, rows.tolist(), strict=True) if row < 0]:
        raise UserError(f"ranking: found document {missing[0]!r}, which the index lacks")
    return store.get(rows)


def _order_texts(score: Score, narrative: str, texts: list[str]) -> list[int]:
    if not texts:
        return []
    values = score(narrative, texts)
    try:
        found = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise UserError(f"reranker: found {type(values).__name__}, expected a score for each text") from None
    if found.shape != (len(texts),) or not np.isfinite(found).all():
        shape = " x ".join(map(str, found.shape)) or "one"
        raise UserError(f"reranker: found {shape} scores for {len(texts)} texts, expected a finite one for each")
    order: list[int] = np.argsort(-found, kind="stable").tolist()
    return order


def fuse_by(fuse: Fuse, runs: Sequence[Run], queries: Sequence[Query], depth: int, tag: str) -> Run:
    """Fuse the systems' rankings of each query by a function, then in the same way the queries of each topic."""
    check_function(fuse, "method")
    check_ranked(runs, [query.id for query in queries], "runs")
    listed, hybrid = [run.list_hits() for run in runs], dict[str, list[dict[str, float]]]()
    for query in queries:
        own = _sort(fuse([dict(hits[query.id]) for hits in listed if query.id in hits]))
        hybrid.setdefault(query.topic_id, []).append(own)
    return make_run(tag, {topic: list(_sort(fuse(own)).items())[:depth] for topic, own in hybrid.items()})


def read_by(read: Read, topic: Topic, documents: list[Document]) -> Answer:
    """Answer a narrative by a reader. `UserError` if it returns no sentences, or cites another document."""
    found = read(topic.narrative, documents)
    if not isinstance(found, Iterable):
        raise UserError(f"reader: found {type(found).__name__}, expected a text, or (sentence, cited ids) pairs")
    known = {document.id for document in documents} | {one.id for document in documents for one in document.segments}
    sentences = []
    for one in [(found, ())] if isinstance(found, str) else found:
        if not _is_sentence(one):
            raise UserError(f"reader: found {one!r:.100}, expected a text, or (sentence, cited ids) pairs")
        if other := [name for name in one[1] if name not in known]:
            raise UserError(f"reader: found a citation of {other[0]!r}, expected the id of a document that it got")
        sentences.append(Sentence(one[0], tuple(one[1])))
    return Answer(topic.id, tuple(sentences))


def _is_sentence(value: Any) -> bool:
    """Tell whether a value is a text with the ids that it cites, which may be none."""
    if not isinstance(value, tuple | list) or len(value) != 2:
        return False
    text, cited = value
    known = isinstance(cited, Collection) and not isinstance(cited, str)
    return known and all(isinstance(one, str) for one in (text, *cited))


def _sort(scores: Any) -> dict[str, float]:
    """Sort fused scores: the highest first, ties by id. `UserError` for anything but scores by document id."""
    if not isinstance(scores, Mapping):
        raise UserError(f"method: found {type(scores).__name__}, expected a dictionary from document id to score")
    try:
        found = [(str(name), float(score)) for name, score in scores.items()]
    except (TypeError, ValueError) as error:
        raise UserError(f"method: {error}, expected a score for each document id") from None
    for name, score in found:
        check_id(name, "method")
        if not isfinite(score):
            raise UserError(f"method: found the score {score} of {name!r}, expected a finite number")
    return dict(sorted(found, key=lambda one: (-one[1], one[0])))
