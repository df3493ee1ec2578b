"""Measures by the names of the field: a family, the grade that counts, a cutoff.

`nDCG@10`, `R(rel=2)@100` and `MAP` are the names that are printed, those of `ir_measures`; trec_eval's, ranx's and
others are understood. nDCG takes the grades as gains; the binary families count a document as relevant from grade 1
on, or from `rel` on.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches

from indexing.errors import UserError

FAMILIES = {
    "nDCG": "ndcg",
    "R": "recall",
    "P": "precision",
    "MAP": "average_precision",
    "AP": "average_precision",
    "MRR": "reciprocal_rank",
    "RR": "reciprocal_rank",
    "judged": "",
}
"""The families and the functions of `ranx.metrics` for them. `judged`, the share that is judged, is not ranx's."""
SPELLINGS = {family.lower(): family for family in FAMILIES} | {
    "ndcg_cut": "nDCG",
    "recall": "R",
    "precision": "P",
    "prec": "P",
    "map_cut": "MAP",
    "average_precision": "AP",
    "mean_average_precision": "MAP",
    "recip_rank": "RR",
    "reciprocal_rank": "RR",
    "mean_reciprocal_rank": "MRR",
}
"""The families by every name that is understood, in lower case: those of trec_eval, ranx and ir_measures."""
GRADED = ("nDCG", "judged")
NEEDS_CUTOFF = ("R", "P", "judged")
_FORM = re.compile(r"([A-Za-z]+(?:_[A-Za-z]+)*)(?:\(rel=([0-9]{1,9})\))?(?:[@_.]([0-9]{1,9}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Measure:
    """One number a topic; `cutoff` 0 stands for the whole ranking."""

    family: str
    cutoff: int = 0
    relevant_from: int = 1

    def __str__(self) -> str:
        grade = f"(rel={self.relevant_from})" if self.relevant_from != 1 else ""
        return f"{self.family}{grade}{f'@{self.cutoff}' if self.cutoff else ''}"


def parse_measure(name: str) -> Measure:
    """The measure of a name. `UserError` for a name that is none, with the one that is nearest."""
    found = _FORM.fullmatch(name)
    family = SPELLINGS.get(found[1].lower()) if found else None
    if not found or not family:
        known = f"expected one of {', '.join(FAMILIES)}, with a cutoff as in nDCG@10"
        raise UserError(f"measure {name!r}: unknown; {known}{_nearest(name)}")
    measure = Measure(family, int(found[3] or 0), int(found[2] or 1))
    if found[3] and not measure.cutoff:
        raise UserError(f"measure {name!r}: expected a cutoff of 1 or more")
    if family in NEEDS_CUTOFF and not measure.cutoff:
        raise UserError(f"measure {name!r}: expected a cutoff, as in {family}@10")
    if found[2] and (family in GRADED or not measure.relevant_from):
        raise UserError(f"measure {name!r}: rel takes a grade of 1 or more and belongs to R, P, MAP and MRR")
    return measure


def _nearest(name: str) -> str:
    """`; NAME is the nearest`: the right name, with a cutoff, that a wrong one is nearest to; empty if none is near."""
    words = re.findall(r"[a-z]+(?:_[a-z]+)*", name.lower())
    near = get_close_matches(words[0], SPELLINGS, n=1, cutoff=0.7) if words else []
    if not near:
        return ""
    family, cutoff = SPELLINGS[near[0]], re.search(r"[1-9][0-9]{0,8}", name)
    return f"; {Measure(family, int(cutoff[0]) if cutoff else 10 * (family in NEEDS_CUTOFF))} is the nearest"


DEFAULT = tuple(
    map(parse_measure, ("nDCG@10", "nDCG@30", "nDCG@100", "R@100", "MAP", "MRR", "judged@10")),
)


def relevant_from(measures: Sequence[Measure], grade: int) -> tuple[Measure, ...]:
    """The measures with the binary ones that name no grade of their own counting from this grade."""
    return tuple(
        replace(measure, relevant_from=grade)
        if measure.family not in GRADED and measure.relevant_from == 1
        else measure
        for measure in measures
    )
