"""The fusion methods and score normalisations, under ranx's names.

Each method is the formula of its paper: Hits to float64[documents].

In the formulas `w` is the weight of a list, `s` a normalised score, and `r` a rank from 1. `n` lists have the
document, and sums go over these lists. If a formula also counts lists that lack it, its docstring says so.

Normalisations make scores of different systems comparable, list by list. None divides by zero: each docstring gives
the result for a list of equal scores. (There, ranx divides by 1e-9. So its min-max gives 0 to the only document of a
list, as if the list lacked it.)
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from keystone.fusion.lists import Floats, Hits
from keystone.indexing.plugins import OpenTable
from keystone.retrieval.types import offsets_of


def keep_scores(hits: Hits) -> Hits:
    """Keep the scores as they are (`norm=None` in ranx)."""
    return hits


def scale_to_range(hits: Hits) -> Hits:
    """Scale scores to 0 to 1: (s - min) / (max - min). Equal scores become 1."""
    low, high = _find_lowest(hits.scores, hits), _find_highest(hits.scores, hits)
    return replace(hits, scores=_divide(hits.scores - low, high - low, otherwise=1.0))


def scale_inverted(hits: Hits) -> Hits:
    """Scale distances, of which the smallest is the best: (max - s) / (max - min). Equal scores become 1."""
    return scale_to_range(replace(hits, scores=-hits.scores))


def divide_by_max(hits: Hits) -> Hits:
    """Divide scores by |max|. A list whose highest score is 0 stays as it is. (ranx divides negative ones by 1e-9.)"""
    return replace(hits, scores=_divide(hits.scores, np.abs(_find_highest(hits.scores, hits)), otherwise=hits.scores))


def divide_by_sum(hits: Hits) -> Hits:
    """Divide scores by their sum, counted from the lowest: (s - min) / sum (s - min). Equal scores become 1 / n."""
    above = hits.scores - _find_lowest(hits.scores, hits)
    return replace(hits, scores=_divide(above, _sum_by_list(above, hits), otherwise=1 / hits.lists.lengths[hits.list]))


def standardise(hits: Hits) -> Hits:
    """Give scores zero mean and unit variance: (s - mean) / standard deviation. Equal scores become 0."""
    lengths = hits.lists.lengths[hits.list]
    from_mean = hits.scores - _sum_by_list(hits.scores, hits) / lengths
    deviation = np.sqrt(_sum_by_list(from_mean**2, hits) / lengths)
    equal = _find_lowest(hits.scores, hits) == _find_highest(hits.scores, hits)
    return replace(hits, scores=_divide(from_mean, np.where(equal, 0, deviation), otherwise=0.0))


def score_by_rank(hits: Hits) -> Hits:
    """Replace scores by ranks: 1 - (rank - 1) / n."""
    return replace(hits, scores=1 - (hits.ranks - 1) / hits.lists.lengths[hits.list])


def score_by_borda(hits: Hits) -> Hits:
    """Replace scores by Borda's points, divided by the group's documents.

    A document gets points in a list that lacks it, too.
    """
    points = hits.add_absent_documents()
    return replace(points, scores=points.scores / hits.candidates[hits.groups][points.document])


NORMS: dict[str, Callable[[Hits], Hits]] = {
    "none": keep_scores,
    "min-max": scale_to_range,
    "min-max-inverted": scale_inverted,
    "max": divide_by_max,
    "sum": divide_by_sum,
    "zmuv": standardise,
    "rank": score_by_rank,
    "borda": score_by_borda,
}


def _find_lowest(scores: Floats, hits: Hits) -> Floats:
    """Find the lowest score of each row's list: float64[rows]."""
    return -_find_highest(-scores, hits)


def _find_highest(scores: Floats, hits: Hits) -> Floats:
    """Find the highest score of each row's list: float64[rows]."""
    high = np.full(len(hits.lists.weights), -np.inf)
    np.maximum.at(high, hits.list, scores)
    return high[hits.list]


def _sum_by_list(values: Floats, hits: Hits) -> Floats:
    """Sum the values over each row's list: float64[rows]."""
    return np.bincount(hits.list, values, minlength=len(hits.lists.weights)).astype(np.float64, copy=False)[hits.list]


def _divide(values: Floats, by: Floats, otherwise: Floats | float) -> Floats:
    """Divide values; if a divisor is 0, take `otherwise`."""
    return np.where(by > 0, values / np.where(by > 0, by, 1), otherwise)


RRF_K = 60
"""The k of Cormack et al. (2009), and of both stages of Keystone-Docs RAG."""


def comb_min(hits: Hits) -> Floats:
    """CombMIN: the lowest score (Fox and Shaw, TREC-2 1993)."""
    return hits.take_quantile(0)


def comb_med(hits: Hits) -> Floats:
    """CombMED: the median of the scores (Fox and Shaw, TREC-2 1993)."""
    return hits.take_quantile(0.5)


def comb_max(hits: Hits) -> Floats:
    """CombMAX: the highest score (Fox and Shaw, TREC-2 1993)."""
    return hits.take_quantile(1)


def comb_sum(hits: Hits) -> Floats:
    """CombSUM: sum s (Fox and Shaw, TREC-2 1993)."""
    return hits.sum_by_document(hits.scores)


def comb_anz(hits: Hits) -> Floats:
    """CombANZ: the mean of the scores (Fox and Shaw, TREC-2 1993)."""
    return hits.sum_by_document(hits.scores) / hits.counts


def comb_mnz(hits: Hits) -> Floats:
    """CombMNZ: n times sum s (Fox and Shaw, TREC-2 1993)."""
    return hits.sum_by_document(hits.scores) * hits.counts


def comb_gmnz(hits: Hits, gamma: float = 1.0) -> Floats:
    """CombGMNZ: n^gamma times sum s (Lee, SIGIR 1997)."""
    return hits.sum_by_document(hits.scores) * hits.counts**gamma


def wsum(hits: Hits) -> Floats:
    """Weighted sum: sum w s."""
    return hits.sum_by_document(hits.weights * hits.scores)


def wmnz(hits: Hits) -> Floats:
    """Weighted MNZ: sum w times sum s (Wu and Crestani, CIKM 2002)."""
    return hits.sum_by_document(hits.scores) * hits.sum_by_document(hits.weights)


def mixed(hits: Hits) -> Floats:
    """Mixed: the square root of n, times sum w s (Wu and Crestani, CIKM 2002)."""
    return hits.sum_by_document(hits.weights * hits.scores) * np.sqrt(hits.counts)


def isr(hits: Hits) -> Floats:
    """Inverse square rank: n times sum 1 / r^2 (Mourao, Martins and Magalhaes, CMIG 2015)."""
    return hits.counts * hits.sum_by_document(1 / hits.ranks**2)


def log_isr(hits: Hits) -> Floats:
    """Logarithmic ISR: ln n times sum 1 / r^2 (Mourao et al., CMIG 2015). A document of one list alone scores 0.

    If only one list of a group has documents, they score 1 / r^2, so that they keep its order.
    """
    return np.where(hits.lists_with_documents == 1, isr(hits), logn_isr(hits, sigma=0))


def logn_isr(hits: Hits, sigma: float = 0.01) -> Floats:
    """Logarithmic ISR, above 0 even for one list: ln(n + sigma) times sum 1 / r^2 (Mourao et al., CMIG 2015)."""
    factor: Floats = np.log(hits.counts + sigma)
    return factor * hits.sum_by_document(1 / hits.ranks**2)


def rrf(hits: Hits, k: float = RRF_K) -> Floats:
    """Reciprocal rank fusion: sum w / (k + r) (Cormack, Clarke and Buettcher, SIGIR 2009).

    If there are many rows, `keystone.fusion.loops` computes the same sums faster, equal to the last bit.
    """
    return hits.sum_by_document(hits.weights / (k + hits.ranks))


def rbc(hits: Hits, phi: float = 0.8) -> Floats:
    """Rank-biased centroid: sum (1 - phi) phi^(r - 1) (Bailey, Moffat, Scholer and Thomas, SIGIR 2017)."""
    return hits.sum_by_document((1 - phi) * phi ** (hits.ranks - 1))


def bordafuse(hits: Hits) -> Floats:
    """Borda count: the sum of a document's points over all lists (Aslam and Montague, SIGIR 2001).

    `Hits.add_absent_documents` gives the points, also for lists that lack the document.
    """
    hits = hits.add_absent_documents()
    return hits.sum_by_document(hits.scores)


def w_bordafuse(hits: Hits) -> Floats:
    """Weighted Borda count: the sum of w times the points over all lists (Aslam and Montague, SIGIR 2001)."""
    hits = hits.add_absent_documents()
    return hits.sum_by_document(hits.weights * hits.scores)


def condorcet(hits: Hits) -> Floats:
    """Condorcet-fuse: the place in a sort by majority votes (Montague and Aslam, CIKM 2002).

    A list votes for the document that it ranks higher of two. A document that it lacks is below all others. The side
    with more weight wins. A merge sort by these votes begins from the weighted Borda count, so drawn votes keep that
    order. The first of c documents scores c, the last one 1. (ranx gives a drawn vote to the document that it compares
    first.)
    """
    from keystone.fusion.loops import sort_by_majority

    scores, points = np.empty(len(hits.docs)), w_bordafuse(hits)
    bounds, rows = offsets_of(hits.candidates), offsets_of(hits.counts)
    for g, (first, last) in enumerate(pairwise(bounds)):
        own, lists = slice(rows[first], rows[last]), slice(hits.lists.groups[g], hits.lists.groups[g + 1])
        ranks = np.full((last - first, lists.stop - lists.start), np.iinfo(np.int64).max)
        ranks[hits.document[own] - first, hits.list[own] - lists.start] = hits.ranks[own]
        start = np.argsort(-points[first:last], kind="stable")
        scores[first + sort_by_majority(start, ranks, hits.lists.weights[lists])] = np.arange(last - first, 0, -1)
    return scores


def frequency(hits: Hits, k: float = 60, top: float = 20) -> Floats:
    """Frequency: the number of lists with a document in their first `top`; RRF breaks ties (Keystone-Docs RAG, 2.5).

    The score is that number plus a fraction below 1, which is larger for a higher place by RRF. So scores alone give
    the order.
    """
    order = np.lexsort((-rrf(hits, k), hits.groups))
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(1, len(order) + 1) - offsets_of(hits.candidates)[hits.groups]
    share = 1 - place / (hits.candidates[hits.groups] + 1)
    return hits.sum_by_document((hits.ranks <= top).astype(np.float64)) + share


@dataclass(frozen=True, slots=True)
class Method:
    """One fusion method and its limits."""

    score: Callable[..., Floats]
    """The formula: Hits and parameters to float64[documents]."""
    parameters: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """The lowest and the highest value of each parameter."""
    of_scores: bool = False
    """Whether the method looks at normalised scores. The other methods look at ranks."""
    weighted: bool = False
    """Whether lists may have different weights."""
    several: bool = False
    """Whether the method needs two lists or more."""


ALIASES = {
    "borda": "bordafuse",
    "bordacount": "bordafuse",
    "condorcetfuse": "condorcet",
    "reciprocalrankfusion": "rrf",
}
"""Other names of methods, beside those that begin with Comb, such as CombSUM."""

METHODS = OpenTable(
    "keystone.fusion",
    Method,
    {
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
    },
    reserved=lambda: ALIASES,
)
"""The fusion methods by name, those of other packages included."""


_COMB = re.compile(r"comb(?=(?:min|med|max|sum|anz|mnz|gmnz)$)")


def find_method(name: str) -> str:
    """Find the method that a name of the literature means, such as `Borda-Count`. An unknown name stays as it is."""
    if name in METHODS:
        return name
    plain = _COMB.sub("", re.sub(r"[-_ ]", "", name.lower()))
    return {method.replace("_", ""): method for method in METHODS}.get(ALIASES.get(plain, plain), name)


OF_PYSERINI = {
    "average": "sum with the normalisation none",
    "interpolation": "wsum with the normalisation none and the weights alpha and 1 - alpha",
    "normalize": "sum, which normalises by min-max",
}
"""Methods of `pyserini.fusion`, each with what to take here."""


def find_impossible_setting(
    method: str, norm: str | None, parameters: Mapping[str, float], uneven: bool = False
) -> tuple[str, str] | None:
    """Find the first setting that the method cannot have. Returns its name and the reason, or None.

    The name is `method`, `norm`, `weights` or that of a parameter. `uneven` says whether the lists have different
    weights.
    """
    if method not in METHODS:
        instead = f"; for Pyserini's {method}, take {OF_PYSERINI[method]}" if method in OF_PYSERINI else ""
        return "method", f"found {method!r}, expected one of {', '.join(METHODS)}{instead}"
    asked = METHODS[method]
    if norm is not None and norm not in NORMS:
        return "norm", f"found {norm!r}, expected one of {', '.join(NORMS)}"
    if norm is not None and not asked.of_scores:
        return "norm", f"found {norm!r} with method {method!r}, which looks at ranks and not at scores; expected none"
    if uneven and not asked.weighted:
        weighted = ", ".join(name for name, other in METHODS.items() if other.weighted)
        expected = f"equal weights, or a method among {weighted}"
        return "weights", f"found different weights, but method {method!r} takes none; expected {expected}"
    for name, value in parameters.items():
        if name not in asked.parameters:
            expected = f"one of {', '.join(asked.parameters)}" if asked.parameters else "none"
            return name, f"no parameter of method {method!r}; expected {expected}"
        low, high = asked.parameters[name]
        if not low <= value <= high:
            return name, f"found {value:g}, expected {low:g} to {high:g}"
    return None
