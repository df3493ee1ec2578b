"""Overlaps of a text with a reference: precision, recall and F1 of ROUGE-L and of sets of ids."""

import re
from collections.abc import Iterable, Sequence, Set
from typing import NamedTuple


class Overlap(NamedTuple):
    """The share of the found items that are wanted, the share of the wanted items that are found, and F1; 0 to 1."""

    precision: float
    recall: float
    f1: float


def compute_overlap(common: int, found: int, wanted: int) -> Overlap:
    """Compute the overlap of `found` and `wanted` items that have `common` items in common. Without one, all are 0."""
    if not common:
        return Overlap(0.0, 0.0, 0.0)
    return Overlap(common / found, common / wanted, 2 * common / (found + wanted))


def compare_sets(found: Set[str], wanted: Set[str]) -> Overlap:
    """Compare the ids that were found with the gold ids (DiscoRAG's measure of nodes)."""
    return compute_overlap(len(found & wanted), len(found), len(wanted))


def measure_rouge_l(text: str, references: Sequence[str]) -> Overlap:
    """Measure ROUGE-L of a text against the reference with the best F1 (Lin 2004, section 3).

    The numbers are those of `rouge-score`'s `rougeL` without stemming, which is not `rougeLsum`. If two references have
    the same F1, the better recall decides, so the order of the references does not.
    """
    tokens = find_rouge_tokens(text)
    overlaps = (_compare_tokens(tokens, find_rouge_tokens(reference)) for reference in references)
    return max(overlaps, key=lambda overlap: (overlap.f1, overlap.recall))


def find_rouge_tokens(text: str) -> list[str]:
    """Find the tokens of ROUGE: runs of a-z and 0-9 in the lower-cased text. Other letters separate tokens."""
    return re.findall("[a-z0-9]+", text.lower())


def _compare_tokens(tokens: Sequence[str], wanted: Sequence[str]) -> Overlap:
    return compute_overlap(count_common_subsequence(tokens, wanted), len(tokens), len(wanted))


def count_common_subsequence(one: Sequence[str], other: Sequence[str]) -> int:
    """Count the tokens of the longest common subsequence.

    One integer holds a bit for each token of the longer text. Each token of the shorter text takes a few operations on
    this integer (Hyyrö 2004, "Bit-parallel LCS-length computation revisited").
    """
    short, long = sorted((one, other), key=len)
    places = _map_places(long)
    every = row = (1 << len(long)) - 1
    for token in short:
        matched = row & places.get(token, 0)
        row = ((row + matched) | (row - matched)) & every
    return len(long) - row.bit_count()


def _map_places(tokens: Iterable[str]) -> dict[str, int]:
    """Map each token to an integer with a bit at each place of the token."""
    places: dict[str, int] = {}
    for place, token in enumerate(tokens):
        places[token] = places.get(token, 0) | 1 << place
    return places
