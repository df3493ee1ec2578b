"""Pseudo-relevance feedback: the documents that a query finds first add weighted stems to the query.

A term vector maps stems to weights. Feedback may add a stem of 2 to 20 ASCII letters or digits that occurs in at most
a tenth of all documents. The parameters and this filter are those of Anserini's baselines.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence

FEEDBACK_STEMS = 10
"""The maximum number of stems that each document, and the whole feedback, may add."""
FEEDBACK_DOCUMENTS = 10
"""The number of documents at the top that count as relevant."""
COMMON_SHARE = 0.1
"""The share of all documents above which a stem is too common to be added."""
ORIGINAL_WEIGHT = 0.5
BETA = 0.75

Vector = dict[str, float]
Feedback = Callable[[Mapping[str, float], Sequence[Mapping[str, float]], Sequence[float]], Vector]

_STEM = re.compile(r"[a-z0-9]{2,20}")


def serves(stem: str, documents_with_it: int, documents: int) -> bool:
    """Tell whether feedback may add a stem that occurs in `documents_with_it` of all `documents`."""
    return bool(_STEM.fullmatch(stem)) and documents_with_it <= COMMON_SHARE * documents


def rm3(query: Mapping[str, float], documents: Sequence[Mapping[str, float]], scores: Sequence[float]) -> Vector:
    """Expand a query by RM3 (Abdul-Jaleel et al., TREC 2004): half the query's model, half a relevance model.

    `query` and `documents` hold term frequencies; `scores` are the documents' scores. The relevance model (Lavrenko
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
    """Expand a query by Rocchio (1971): its vector plus 0.75 of the mean of the documents' vectors, of unit length.

    `query` and `documents` hold term frequencies. Each document counts alike, whatever its score.
    """
    mean: Vector = {}
    for document, _ in zip(documents, scores, strict=True):
        _add(mean, _largest(_unit(document, _length_two)), 1 / len(documents))
    return _mixture(1.0, _unit(query, _length_two), BETA, _largest(mean))


METHODS: dict[str, Feedback] = {"rm3": rm3, "rocchio": rocchio}
"""The feedback methods by name."""


def _largest(vector: Mapping[str, float]) -> Vector:
    return dict(sorted(vector.items(), key=lambda item: (-item[1], item[0]))[:FEEDBACK_STEMS])


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
