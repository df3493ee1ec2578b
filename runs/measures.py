"""Measures by the names of the field, those of `ir_measures`: a family, the grade that counts, a cutoff.

`nDCG@10`, `R(rel=2)@100` and `MAP` are read and printed alike. nDCG takes the grades as gains; the binary families
count a document as relevant from grade 1 on, or from `rel` on.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

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
GRADED = ("nDCG", "judged")
NEEDS_CUTOFF = ("R", "P", "judged")
_FORM = re.compile(r"([A-Za-z]+)(?:\(rel=([0-9]{1,9})\))?(?:@([0-9]{1,9}))?", re.ASCII)


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
    """The measure of a name. `UserError` for a name that is none."""
    found = _FORM.fullmatch(name)
    family = next((known for known in FAMILIES if found and known.lower() == found[1].lower()), None)
    if not found or not family:
        raise UserError(
            f"measure {name!r}: unknown; expected one of {', '.join(FAMILIES)}, with a cutoff as in nDCG@10"
        )
    measure = Measure(family, int(found[3] or 0), int(found[2] or 1))
    if found[3] and not measure.cutoff:
        raise UserError(f"measure {name!r}: expected a cutoff of 1 or more")
    if family in NEEDS_CUTOFF and not measure.cutoff:
        raise UserError(f"measure {name!r}: expected a cutoff, as in {family}@10")
    if found[2] and (family in GRADED or not measure.relevant_from):
        raise UserError(f"measure {name!r}: rel takes a grade of 1 or more and belongs to R, P, MAP and MRR")
    return measure


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
