"""Pseudo-relevance feedback: a query's terms, weighted, after a look at the documents that it finds first.

Term vectors are mappings from stem to weight. A stem serves as feedback if it is 2 to 20 ASCII letters or digits
and stands in at most a tenth of the documents; parameters and this filter are those of Anserini's baselines.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence

TERMS = 10
"""Stems that a document, and the whole feedback, may add."""
DOCUMENTS = 10
"""Documents that are taken to be relevant."""
COMMON = 0.1
ORIGINAL_WEIGHT = 0.5
BETA = 0.75

Vector = dict[str, float]
Feedback = Callable[[Mapping[str, float], Sequence[Mapping[str, float]], Sequence[float]], Vector]

_STEM = re.compile(r"[a-z0-9]{2,20}")


def serves(stem: str, documents_with_it: int, documents: int) -> bool:
    """Whether a stem may be added to a query: plain, and not in more than a tenth of all documents."""
    return bool(_STEM.fullmatch(stem)) and documents_with_it <= COMMON * documents


def rm3(query: Mapping[str, float], documents: Sequence[Mapping[str, float]], scores: Sequence[float]) -> Vector:
    """RM3 (Abdul-Jaleel et al., TREC 2004): half the query's model, half a relevance model.

    `query` and `documents` hold term frequencies, `scores` those of the documents. The relevance model (Lavrenko
    and Croft, SIGIR 2001) weighs each document's 10 most frequent stems by its score.
    """
    model: Vector = {}
    for document, score in zip(documents, scores, strict=True):
        top = _largest(document)
        _add(model, top, score / (sum(top.values()) or 1.0))
    return _mixture(
        ORIGINAL_WEIGHT, _unit(query, _length_one), 1 - ORIGINAL_WEIGHT, _unit(_largest(model), _length_one)
    )


def rocchio(query: Mapping[str, float], documents: Sequence[Mapping[str, float]], scores: Sequence[float]) -> Vector:
    """Rocchio (1971): the query's vector plus 0.75 of the mean of the documents' vectors, all of unit length.

    `query` and `documents` hold term frequencies; every document counts alike.
    """
    mean: Vector = {}
    for document, _ in zip(documents, scores, strict=True):
        _add(mean, _largest(_unit(document, _length_two)), 1 / len(documents))
    return _mixture(1.0, _unit(query, _length_two), BETA, _largest(mean))


METHODS: dict[str, Feedback] = {"rm3": rm3, "rocchio": rocchio}
"""The methods by name."""


def _largest(vector: Mapping[str, float]) -> Vector:
    return dict(sorted(vector.items(), key=lambda item: (-item[1], item[0]))[:TERMS])


def _length_one(vector: Mapping[str, float]) -> float:
    return sum(vector.values())


def _length_two(vector: Mapping[str, float]) -> float:
    return math.hypot(*vector.values())


def _unit(vector: Mapping[str, float], length: Callable[[Mapping[str, float]], float]) -> Vector:
    total = length(vector) or 1.0
    return {stem: weight / total for stem, weight in vector.items()}


def _add(to: Vector, vector: Mapping[str, float], factor: float) -> None:
    for stem, weight in vector.items():
        to[stem] = to.get(stem, 0.0) + factor * weight


def _mixture(a: float, first: Vector, b: float, second: Vector) -> Vector:
    mixed: Vector = {}
    _add(mixed, first, a)
    _add(mixed, second, b)
    return mixed
