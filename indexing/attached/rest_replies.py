"""Reading and checking the replies of a REST server of Pyserini or Anserini, in either form of its interface."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from keystone.indexing.io.error_text import show_value
from keystone.indexing.types import describe_id, is_id

LARGEST_SCORE = float(np.finfo(np.float32).max)
"""The largest score that rankings can hold."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A hit. `payload` is the part of the document that came with it, None if nothing came."""

    id: str
    score: float
    payload: Any


def candidates_of(reply: Any) -> list[Candidate]:
    """Read the candidates of a reply, best first.

    `ValueError` for a reply of another form, an impossible id or score, a document twice, and scores that ascend.
    """
    found = reply.get("candidates") if isinstance(reply, dict) else None
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise ValueError("found no list of candidates")
    hits = [Candidate(_id(item), _score(item), item.get("doc", item.get("document_txt"))) for item in found]
    if len({hit.id for hit in hits}) < len(hits):
        raise ValueError("found a document twice")
    if any(first.score < second.score for first, second in pairwise(hits)):
        raise ValueError("found candidates whose scores ascend")
    return hits


def payload_of(reply: Any) -> Any:
    """Return the payload of a reply that holds one document: the value under `doc`, or the reply itself."""
    return reply["doc"] if isinstance(reply, dict) and "doc" in reply else reply


def _id(item: dict[str, Any]) -> str:
    found = item.get("docid")
    if not isinstance(found, str) or not is_id(found):
        raise ValueError(f"found the docid {show_value(found)}, expected {describe_id(found)}")
    return found


def _score(item: dict[str, Any]) -> float:
    found = item.get("score")
    if isinstance(found, bool) or not isinstance(found, int | float) or not abs(found) <= LARGEST_SCORE:
        raise ValueError(f"found the score {show_value(found)}, expected a finite number of single precision")
    return float(found)
