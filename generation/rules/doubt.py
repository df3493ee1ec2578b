"""Doubt whether an answer by rules answers its narrative. Rules choose the closest sentences even if none fits."""

from collections.abc import Sequence

from keystone.generation.rules.words import find_stems
from keystone.indexing.types import Embedding
from keystone.indexing.vectors.embed import embed_queries

LEAST_COSINE = 0.4
"""The least cosine of a narrative and the closest sentence of its answer, by the local model.

Of 35 questions about a manual of software the lowest was 0.47. Of 23 questions about other subjects two were above 0.4.
"""
LEAST_SHARE = 0.25
"""The least share of a narrative's content words that stand in its answer."""
DOUBT = "No sentence of these documents seems to answer the question."


def is_doubtful(narrative: str, sentences: Sequence[str], embedding: Embedding, threads: int = 1) -> bool:
    """Tell whether none of an answer's sentences seems to answer its narrative. No sentences leave no doubt.

    The words decide, and with the local embedding model also the cosines. Those of other models differ too much.
    """
    if not sentences:
        return False
    asked = find_stems(narrative)
    if len(asked & find_stems(" ".join(sentences))) < LEAST_SHARE * len(asked):
        return True
    if not embedding.is_local:
        return False
    vectors = embed_queries(embedding, [narrative, *sentences], threads)
    return bool((vectors[1:] @ vectors[0]).max() < LEAST_COSINE)
