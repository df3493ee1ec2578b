"""The fusion methods, under ranx's names: from the hits of a group, a score for each document.

All look only at the lists that have a document; where one that lacks it counts too, the formula says so.
`hits.total` adds over those lists, `w` is the weight of a list, `s` a normalised score, `r` a rank from 1.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from fusion.hits import Floats, Hits
from fusion.norms import NORMS
from retrieval.types import offsets_of


def comb_min(hits: Hits) -> Floats:
    """CombMIN: the lowest score (Fox and Shaw, TREC-2 1993)."""
    return hits.middle(0)


def comb_med(hits: Hits) -> Floats:
    """CombMED: the median of the scores (Fox and Shaw, TREC-2 1993)."""
    return hits.middle(0.5)


def comb_max(hits: Hits) -> Floats:
    """CombMAX: the highest score (Fox and Shaw, TREC-2 1993)."""
    return hits.middle(1)


def comb_sum(hits: Hits) -> Floats:
    """CombSUM: sum s (Fox and Shaw, TREC-2 1993)."""
    return hits.total(hits.scores)


def comb_anz(hits: Hits) -> Floats:
    """CombANZ: the mean of the scores (Fox and Shaw, TREC-2 1993)."""
    return hits.total(hits.scores) / hits.counts


def comb_mnz(hits: Hits) -> Floats:
    """CombMNZ: sum s, times the number n of lists that have the document (Fox and Shaw, TREC-2 1993)."""
    return hits.total(hits.scores) * hits.counts


def comb_gmnz(hits: Hits, gamma: float = 1.0) -> Floats:
    """CombGMNZ: sum s, times n ** gamma (Lee, SIGIR 1997)."""
    return hits.total(hits.scores) * hits.counts**gamma


def wsum(hits: Hits) -> Floats:
    """Weighted sum: sum w s."""
    return hits.total(hits.weights * hits.scores)


def wmnz(hits: Hits) -> Floats:
    """Weighted MNZ: sum s, times sum w (Wu and Crestani, CIKM 2002)."""
    return hits.total(hits.scores) * hits.total(hits.weights)


def mixed(hits: Hits) -> Floats:
    """Mixed: sum w s, times the square root of n (Wu and Crestani, CIKM 2002)."""
    return hits.total(hits.weights * hits.scores) * np.sqrt(hits.counts)


def isr(hits: Hits) -> Floats:
    """Inverse square rank: n times sum 1 / r^2 (Mourao, Martins and Magalhaes, CMIG 2015)."""
    return hits.counts * hits.total(1 / hits.ranks**2)


def log_isr(hits: Hits) -> Floats:
    """Logarithmic ISR: ln n times sum 1 / r^2, so 0 for what one list alone has (Mourao et al., CMIG 2015)."""
    return logn_isr(hits, sigma=0)


def logn_isr(hits: Hits, sigma: float = 0.01) -> Floats:
    """Logarithmic ISR that one list can reach: ln(n + sigma) times sum 1 / r^2 (Mourao et al., CMIG 2015)."""
    factor: Floats = np.log(hits.counts + sigma)
    return factor * hits.total(1 / hits.ranks**2)


def rrf(hits: Hits, k: float = 60) -> Floats:
    """Reciprocal rank fusion: sum w / (k + r) (Cormack, Clarke and Buettcher, SIGIR 2009).

    The plain form of `fusion.rrf`, equal to it to the last bit.
    """
    return hits.total(hits.weights / (k + hits.ranks))


def rbc(hits: Hits, phi: float = 0.8) -> Floats:
    """Rank-biased centroid: sum (1 - phi) phi^(r - 1) (Bailey, Moffat, Scholer and Thomas, SIGIR 2017)."""
    return hits.total((1 - phi) * phi ** (hits.ranks - 1))


def bordafuse(hits: Hits) -> Floats:
    """Borda count: the points of `Hits.with_absent`, added over all lists (Aslam and Montague, SIGIR 2001)."""
    hits = hits.with_absent()
    return hits.total(hits.scores)


def w_bordafuse(hits: Hits) -> Floats:
    """Weighted Borda count: w times the points, added over all lists (Aslam and Montague, SIGIR 2001)."""
    hits = hits.with_absent()
    return hits.total(hits.weights * hits.scores)


def condorcet(hits: Hits) -> Floats:
    """Condorcet-fuse: no document is outvoted by the next one (Montague and Aslam, CIKM 2002).

    A list votes for what it ranks above another document, one that it lacks being below all; the side with more
    weight wins. The order is that of a merge sort by these votes which begins from the (weighted) Borda count, so
    that drawn votes keep it; the first of c documents scores c, the last one 1. (ranx gives a drawn vote, and one
    of a list that lacks both, to whichever document is compared first.)
    """
    from fusion.condorcet import by_majority

    scores, points = np.empty(len(hits.docs)), w_bordafuse(hits)
    bounds, rows = offsets_of(hits.candidates), offsets_of(hits.counts)
    for g, (first, last) in enumerate(pairwise(bounds)):
        own, lists = slice(rows[first], rows[last]), slice(hits.lists.groups[g], hits.lists.groups[g + 1])
        ranks = np.full((last - first, lists.stop - lists.start), np.iinfo(np.int64).max)
        ranks[hits.document[own] - first, hits.list[own] - lists.start] = hits.ranks[own]
        start = np.argsort(-points[first:last], kind="stable")
        scores[first + by_majority(start, ranks, hits.lists.weights[lists])] = np.arange(last - first, 0, -1)
    return scores


def frequency(hits: Hits, k: float = 60, top: float = 20) -> Floats:
    """How many lists have a document among their first `top`; ties by RRF (Keystone-Docs RAG, section 2.5).

    A document below every top counts 0. The score is the count plus the share of the RRF order below a document,
    so that scores alone give the order.
    """
    order = np.lexsort((-rrf(hits, k), hits.groups))
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(1, len(order) + 1) - offsets_of(hits.candidates)[hits.groups]
    share = 1 - place / (hits.candidates[hits.groups] + 1)
    return hits.total((hits.ranks <= top).astype(np.float64)) + share


@dataclass(frozen=True, slots=True)
class Method:
    """A method, its parameters with the lowest and highest value of each, and what it looks at."""

    score: Callable[..., Floats]
    parameters: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    of_scores: bool = False
    """Whether it looks at scores, which then are normalised; the others look at ranks."""
    weighted: bool = False
    """Whether lists may have different weights."""
    several: bool = False
    """Whether it needs several lists: of one, it says nothing."""


METHODS = {
    "min": Method(comb_min, of_scores=True),
    "med": Method(comb_med, of_scores=True),
    "max": Method(comb_max, of_scores=True),
    "sum": Method(comb_sum, of_scores=True),
    "anz": Method(comb_anz, of_scores=True),
    "mnz": Method(comb_mnz, of_scores=True),
    "gmnz": Method(comb_gmnz, {"gamma": (0, 10)}, of_scores=True),
    "wsum": Method(wsum, of_scores=True, weighted=True),
    "wmnz": Method(wmnz, of_scores=True, weighted=True),
    "mixed": Method(mixed, of_scores=True, weighted=True),
    "isr": Method(isr),
    "log_isr": Method(log_isr, several=True),
    "logn_isr": Method(logn_isr, {"sigma": (0, 1)}),
    "rrf": Method(rrf, {"k": (0, 1_000_000)}, weighted=True),
    "rbc": Method(rbc, {"phi": (0.001, 0.999)}),
    "bordafuse": Method(bordafuse),
    "w_bordafuse": Method(w_bordafuse, weighted=True),
    "condorcet": Method(condorcet),
    "w_condorcet": Method(condorcet, weighted=True),
    "frequency": Method(frequency, {"k": (0, 1_000_000), "top": (1, 100_000)}, several=True),
}


def impossible(
    method: str, norm: str | None, parameters: Mapping[str, float], uneven: bool = False
) -> tuple[str, str] | None:
    """The first setting that cannot be, and why: `method`, `norm`, `weights` or the name of a parameter.

    `uneven` says whether the lists have different weights.
    """
    if method not in METHODS:
        return "method", f"found {method!r}, expected one of {', '.join(METHODS)}"
    asked = METHODS[method]
    if norm is not None and norm not in NORMS:
        return "norm", f"found {norm!r}, expected one of {', '.join(NORMS)}"
    if norm is not None and not asked.of_scores:
        return "norm", f"found {norm!r} with method {method!r}, which looks at ranks and not at scores; expected none"
    if uneven and not asked.weighted:
        heavy = ", ".join(name for name, other in METHODS.items() if other.weighted)
        return "weights", f"differ, but method {method!r} counts all lists alike; expected equal weights, or {heavy}"
    for name, value in parameters.items():
        if name not in asked.parameters:
            expected = f"one of {', '.join(asked.parameters)}" if asked.parameters else "none"
            return name, f"no parameter of method {method!r}; expected {expected}"
        low, high = asked.parameters[name]
        if not low <= value <= high:
            return name, f"found {value:g}, expected {low:g} to {high:g}"
    return None
