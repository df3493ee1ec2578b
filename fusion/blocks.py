"""Overlapping blocks of a ranking, so that sorting each block by itself sorts the whole.

Any two documents share at least one block. So if the same true order sorts each block, the order by won comparisons is
the true order. A caller can sort all blocks at the same time. Two designs give such blocks of groups of neighbours. In
one, any two of n groups form a block. In the other, the blocks are the lines of an affine plane of prime order p: p^2 +
p blocks of p groups. The module takes the design with fewer blocks. The idea of one pass over a block design comes from
Dedov, JointRank: Rank Large Set with Single Pass (2025).
"""

from collections.abc import Sequence
from itertools import combinations

import numpy as np

LARGEST_PRIME = 31
"""The largest order of a plane that is tried: 961 groups."""


def make_blocks(documents: int, size: int) -> list[list[int]]:
    """Make blocks of at most `size` places, 2 or more, such that any two of `documents` places share a block.

    The places in a block ascend. There is no block if there are fewer than two documents.
    """
    if documents < 2:
        return []
    if documents <= size:
        return [list(range(documents))]
    designs = [list(map(list, combinations(range(-(-documents // (size // 2))), 2)))]
    primes = (p for p in range(2, LARGEST_PRIME + 1) if all(p % divisor for divisor in range(2, p)))
    designs += [_list_lines(p) for p in primes if p * -(-documents // p**2) <= size][:1]
    best = min(designs, key=len)
    groups = 1 + max(group for block in best for group in block)
    members = [places.tolist() for places in np.array_split(np.arange(documents), groups)]
    blocks = [[place for group in block for place in members[group]] for block in best]
    return [block for block in blocks if len(block) > 1]


def _list_lines(p: int) -> list[list[int]]:
    """List the lines of the affine plane of prime order p. Its p^2 points are numbered; any two share one line."""
    sloped = [[x * p + (slope * x + start) % p for x in range(p)] for slope in range(p) for start in range(p)]
    return [*sloped, *([x * p + y for y in range(p)] for x in range(p))]


def merge_blocks(documents: int, orders: Sequence[Sequence[int]]) -> list[int]:
    """Merge the orders of blocks into one: by the share of comparisons that a document wins, added over its opponents.

    Each order has the places of a block, best first. Equal documents keep the order of their places.
    """
    won = np.zeros((documents, documents))
    for order in orders:
        for rank, better in enumerate(order):
            won[better, list(order[rank + 1 :])] += 1
    met = won + won.T
    shares = np.divide(won, met, out=np.full_like(won, 0.5), where=met > 0)
    scores = np.round(shares.sum(axis=1), 9)
    merged: list[int] = np.argsort(-scores, kind="stable").tolist()
    return merged


def list_windows(documents: int, size: int, stride: int) -> list[range]:
    """List the windows of RankGPT, from the last places to the first: each is `stride` places above the one before.

    Source: Sun et al., Is ChatGPT Good at Search? (EMNLP 2023), section 3.2.
    """
    ends = range(documents, size, -stride)
    return [range(max(0, end - size), end) for end in ends] + ([range(min(size, documents))] if documents > 1 else [])
