"""Measures and their names: a family, the lowest relevant grade, and a cutoff.

Keystone prints the names of `ir_measures`, such as `nDCG@10`, `R(rel=2)@100` and `MAP`, and also reads those of
trec_eval and ranx. nDCG takes grades as gains. The binary families count a document as relevant from grade 1 on, or
from grade `rel` on.
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
"""The families and their functions in `ranx.metrics`, which has none for `judged`, the share of judged documents."""
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
"""The families by lower-case names: those of trec_eval, ranx and ir_measures."""
FAMILIES_OF_GRADES = ("nDCG", "judged")
FAMILIES_WITH_CUTOFF = ("R", "P", "judged")
_FORM = re.compile(r"([A-Za-z]+(?:_[A-Za-z]+)*)(?:\(rel=([0-9]{1,9})\))?(?:[@_.]([0-9]{1,9}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Measure:
    """A measure gives one number for each topic. A `cutoff` of 0 stands for the whole ranking."""

    family: str
    cutoff: int = 0
    relevant_from: int = 1

    def __str__(self) -> str:
        grade = f"(rel={self.relevant_from})" if self.relevant_from != 1 else ""
        return f"{self.family}{grade}{f'@{self.cutoff}' if self.cutoff else ''}"


def parse_measure(name: str) -> Measure:
    """Parse the name of a measure. `UserError` for an unknown name, with the nearest known one."""
    found = _FORM.fullmatch(name)
    family = SPELLINGS.get(found[1].lower()) if found else None
    if not found or not family:
        known = f"expected one of {', '.join(FAMILIES)}, with a cutoff as in nDCG@10"
        raise UserError(f"measure {name!r}: unknown; {known}{_suggest_nearest(name)}")
    measure = Measure(family, int(found[3] or 0), int(found[2] or 1))
    if found[3] and not measure.cutoff:
        raise UserError(f"measure {name!r}: expected a cutoff of 1 or more")
    if family in FAMILIES_WITH_CUTOFF and not measure.cutoff:
        raise UserError(f"measure {name!r}: expected a cutoff, as in {family}@10")
    if found[2] and (family in FAMILIES_OF_GRADES or not measure.relevant_from):
        raise UserError(f"measure {name!r}: expected rel with a grade of 1 or more, and only with R, P, MAP or MRR")
    return measure


def _suggest_nearest(name: str) -> str:
    """Suggest the known name, with a cutoff, that is nearest to an unknown one; empty if no name is near."""
    parts = re.findall(r"[a-z]+(?:_[a-z]+)*", name.lower())
    near = get_close_matches(parts[0], SPELLINGS, n=1, cutoff=0.7) if parts else []
    if not near:
        return ""
    family, cutoff = SPELLINGS[near[0]], re.search(r"[1-9][0-9]{0,8}", name)
    return f"; {Measure(family, int(cutoff[0]) if cutoff else 10 * (family in FAMILIES_WITH_CUTOFF))} is the nearest"


DEFAULT_MEASURES = tuple(
    map(parse_measure, ("nDCG@10", "nDCG@30", "nDCG@100", "R@100", "MAP", "MRR", "judged@10")),
)


def set_relevant_grade(measures: Sequence[Measure], grade: int) -> tuple[Measure, ...]:
    """Set the lowest relevant grade of binary measures that name none. The other measures stay as they are."""
    return tuple(
        replace(measure, relevant_from=grade)
        if measure.family not in FAMILIES_OF_GRADES and measure.relevant_from == 1
        else measure
        for measure in measures
    )
