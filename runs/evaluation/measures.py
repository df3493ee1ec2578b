"""Measures and their names: a family, the lowest relevant grade, and a cutoff. Some measures are defined here.

Keystone prints the names of `ir_measures`, such as `nDCG@10`, `R(rel=2)@100` and `MAP`, and also reads those of
trec_eval and ranx. nDCG takes grades as gains. The binary families count a document as relevant from grade 1 on, or
from grade `rel` on. All other measures of `ir_measures` are known by their names there, such as `RBP(p=0.8)`. Some
of these are computed here, topic by topic: the packages behind `ir_measures` read topic ids as numbers, limit grades,
round, or leave topics out for them.
"""

import ast
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from io import StringIO
from typing import Any

import numpy as np

from keystone.indexing.errors import UserError
from keystone.indexing.plugins import OpenTable
from keystone.runs.trec.arrays import Floats, Ints

LEAST_TOP_GRADE = 4
"""The top grade of ERR if no judgment is higher, as in TREC's gdeval.pl."""


@dataclass(frozen=True, slots=True)
class GradedTopic:
    """The grades of a topic's judged documents, and those of its ranking, where -1 marks a row without a judgment."""

    judged: Ints
    ranked: Ints
    top: int
    """The highest grade of all topics."""


def is_defined_here(asked: Any) -> bool:
    """Whether this module computes a measure of `ir_measures`."""
    if asked.NAME == "nDCG":
        return asked["dcg"] == "exp-log2" and "gains" not in asked.params and not asked["judged_only"]
    return asked.NAME in _FUNCTIONS


def measure_by_definition(asked: Any, topic: GradedTopic) -> float:
    """Measure a topic by a measure that this module computes."""
    return float(_FUNCTIONS[asked.NAME](asked, topic))


def compute_best_f1(topic: GradedTopic) -> float:
    """Compute the set F1 of a ranking that is cut where it is best; 0 if no document is relevant.

    Grades are 1 for relevant documents. The difference from `SetF` is what the choice of the depth loses.
    """
    found = np.cumsum(topic.ranked > 0)
    rows = np.arange(1, len(found) + 1) + np.count_nonzero(topic.judged > 0)
    return float(np.max(2 * found / rows, initial=0))


def _compute_err(asked: Any, topic: GradedTopic) -> Any:
    """Chapelle et al., CIKM 2009: a reader stops at a document of grade g with probability (2^g - 1) / 2^top."""
    stops = _find_gains(_cut(topic.ranked, asked), max(topic.top, LEAST_TOP_GRADE))
    reached = np.append(1, np.cumprod(1 - stops)[:-1])[: len(stops)]
    return np.sum(stops * reached / np.arange(1, len(stops) + 1))


def _compute_exponential_ndcg(asked: Any, topic: GradedTopic) -> Any:
    """Burges et al., ICML 2005: a document of grade g gains 2^g - 1."""
    best, own = (
        _add_discounted(_find_gains(_cut(grades, asked), topic.top))
        for grades in (np.sort(topic.judged)[::-1], topic.ranked)
    )
    return own / best if best else 0


def _compute_accuracy(asked: Any, topic: GradedTopic) -> Any:
    """Compute the share of pairs of a relevant row and another row in which the relevant row is first.

    Without any relevant row it is 0; if all rows are relevant, no pair is in the wrong order, and it is 1.
    """
    relevant = _cut(topic.ranked, asked) >= asked["rel"]
    pairs = np.count_nonzero(relevant) * np.count_nonzero(~relevant)
    wrong = np.cumsum(~relevant)[relevant].sum()
    return 1 - wrong / pairs if pairs else relevant.any()


def _compute_interpolated_precision(asked: Any, topic: GradedTopic) -> Any:
    """Compute the highest precision at a rank from which the recall is reached."""
    ranked = topic.ranked[topic.ranked >= 0] if asked["judged_only"] else topic.ranked
    found = np.cumsum(ranked >= asked["rel"])
    reached = found >= asked["recall"] * _count_relevant(asked, topic) - 1e-9
    return np.max(found / np.arange(1, len(found) + 1), where=reached, initial=0)


def _count_relevant(asked: Any, topic: GradedTopic) -> Any:
    return np.count_nonzero(topic.judged >= asked["rel"])


_FUNCTIONS: dict[str, Callable[[Any, GradedTopic], Any]] = {
    "ERR": _compute_err,
    "nDCG": _compute_exponential_ndcg,
    "Accuracy": _compute_accuracy,
    "IPrec": _compute_interpolated_precision,
    "NumRel": _count_relevant,
    "NumQ": lambda _asked, _topic: 1,
}


def _cut(grades: Ints, asked: Any) -> Ints:
    cutoff: int | None = asked.params.get("cutoff")
    return grades[:cutoff]


def _find_gains(grades: Ints, top: int) -> Floats:
    """Find 2^g - 1 for each grade, divided by 2^top so that no grade is too large for a number."""
    return np.asarray(np.exp2(np.maximum(grades, 0) - float(top)) - np.exp2(-float(top)))


def _add_discounted(gains: Floats) -> np.float64:
    return np.float64(np.sum(gains / np.log2(np.arange(2, len(gains) + 2))))


@dataclass(frozen=True, slots=True)
class Family:
    """A family of measures. `function` is the name of a function in `ranx.metrics`, or a function of one topic.

    The function gets the grades of the topic, whose ranking is cut to the measure's cutoff. A document without a
    judgment has a negative grade. Unless `of_grades`, each grade from the lowest relevant one on is 1, and each
    lower one is 0. The function returns a number, or NaN if the topic has none.
    """

    function: str | Callable[[GradedTopic], float] = ""
    of_grades: bool = False
    """Whether the family takes grades as gains, and so has no lowest relevant grade."""
    needs_cutoff: bool = False


GEOMETRIC = "gm_map"
"""The family of the geometric mean of AP, as in trec_eval: the value of a topic is the natural logarithm of its AP."""
LEAST_AP = 1e-5
"""The geometric mean takes any lower AP as this (Robertson, SIGIR 2006; trec_eval)."""
UNAVAILABLE = ("infndcg", "inf_ndcg", "statap", "stat_ap", "statmap", "xinfap")
"""The lower-case names of measures of sampled judgments that no Python package computes."""


def is_geometric(measure: str) -> bool:
    """Tell by a measure's name whether its mean is the geometric one."""
    return measure.startswith(GEOMETRIC)


def _list_other_names() -> list[str]:
    from ir_measures.measures import registry

    return [*SPELLINGS, *registry]


FAMILIES = OpenTable(
    "keystone.measures",
    Family,
    {
        "nDCG": Family("ndcg", of_grades=True),
        "R": Family("recall", needs_cutoff=True),
        "P": Family("precision", needs_cutoff=True),
        "MAP": Family("average_precision"),
        "AP": Family("average_precision"),
        "MRR": Family("reciprocal_rank"),
        "RR": Family("reciprocal_rank"),
        GEOMETRIC: Family("average_precision"),
        "BestF": Family(compute_best_f1),
        "judged": Family(of_grades=True, needs_cutoff=True),
    },
    _list_other_names,
)
"""The families by name, those of other packages included. `judged`, the share of judged documents, has no function."""
SPELLINGS = {
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
"""The families by the lower-case names of trec_eval and ranx."""
FAMILIES_OF_ROWS = ("judged", "Judged", "NumRet", "NumQ")
"""The families that count rows, relevant or not."""
SUBTOPIC_FAMILIES = (
    "alpha_DCG", "alpha_nDCG", "StRecall", "ERR_IA", "nERR_IA", "NRBP", "nNRBP", "AP_IA", "P_IA",
)  # fmt: skip
"""The families of `ir_measures` that look at subtopics."""
FAMILIES_OF_TREC_EVAL = ("P", "recall", "map_cut", "ndcg_cut")
"""The names of trec_eval that stand for a measure at several cutoffs."""
DEEPEST_CUTOFF = 1_000_000
"""The deepest cutoff of a measure of `ir_measures`, some of which look at each rank down to it."""
_FORM = re.compile(
    r"([A-Za-z][A-Za-z0-9]*(?:_[A-Za-z][A-Za-z0-9]*)*)(?:\(rel=([0-9]{1,9})\))?(?:[@_.]([0-9]{1,9}))?", re.ASCII
)
_TREC_EVAL_FORM = re.compile(
    r"[A-Za-z0-9]+(?:_[A-Za-z]+)*(?:[_.][0-9]+(?:\.[0-9]+)?(?:,[0-9]+(?:\.[0-9]+)?)*)?", re.ASCII
)


@dataclass(frozen=True, slots=True)
class Measure:
    """A measure gives one number for each topic. A `cutoff` of 0 stands for the whole ranking."""

    family: str
    cutoff: int = 0
    relevant_from: int = 1
    delegated: str = ""
    """The whole name of a measure of `ir_measures`. Empty for the families above."""
    names_grade: bool = field(default=False, compare=False)
    """Whether the user's name of the measure gives the lowest relevant grade, as `R(rel=1)@10` does."""

    @property
    def of_relevance(self) -> bool:
        """Whether the measure looks for relevant documents."""
        return self.family not in FAMILIES_OF_ROWS

    def __str__(self) -> str:
        if self.delegated:
            return self.delegated
        grade = f"(rel={self.relevant_from})" if self.relevant_from != 1 else ""
        return f"{self.family}{grade}{f'@{self.cutoff}' if self.cutoff else ''}"


def parse_measure(name: str) -> Measure:
    """Parse the name of one measure. `UserError` for an unknown name, with the nearest known one."""
    first, *others = parse_measures([name])
    if others:
        raise UserError(f"measure {name!r}: stands for {len(others) + 1} measures; expected one, such as {first}")
    return first


def parse_measures(names: Iterable[str]) -> tuple[Measure, ...]:
    """Parse names of measures. A name of trec_eval may stand for several, such as `official` or `P_5,10`."""
    return tuple(measure for name in names for measure in _parse_name(name))


def _parse_name(name: str) -> tuple[Measure, ...]:
    if name not in FAMILIES_OF_TREC_EVAL and (measure := _parse_own(name) or _parse_delegated(name)):
        return (measure,)
    if of_trec_eval := _read_trec_eval_name(name):
        return parse_measures(of_trec_eval)
    if name.lower() in UNAVAILABLE:
        way = "TREC's sample_eval.pl does, from judgments with strata; infAP and condensed lists need no strata"
        raise UserError(f"measure {name!r}: no package that Keystone uses computes it; {way}")
    known = f"expected one of {', '.join(FAMILIES)}, with a cutoff as in nDCG@10, or a measure of ir_measures"
    raise UserError(f"measure {name!r}: unknown; {known}{_suggest_nearest(name)}")


def _list_spellings() -> dict[str, str]:
    """List the families by lower-case names: their names here, and those of trec_eval and ranx."""
    return {family.lower(): family for family in FAMILIES} | SPELLINGS


def _parse_own(name: str) -> Measure | None:
    """Parse the name of a measure of the families above; None for another name."""
    found = _FORM.fullmatch(name)
    family = _list_spellings().get(found[1].lower()) if found else None
    if not found or not family:
        return None
    kind = FAMILIES[family]
    measure = Measure(family, int(found[3] or 0), int(found[2] or 1), names_grade=found[2] is not None)
    if found[3] and not measure.cutoff:
        raise UserError(f"measure {name!r}: expected a cutoff of 1 or more")
    if kind.needs_cutoff and not measure.cutoff:
        raise UserError(f"measure {name!r}: expected a cutoff, as in {family}@10")
    if found[2] and (kind.of_grades or not measure.relevant_from):
        raise UserError(f"measure {name!r}: expected rel with a grade of 1 or more, and only with R, P, MAP or MRR")
    return measure


def _parse_delegated(name: str) -> Measure | None:
    """Parse the name of a measure of `ir_measures`; None for a name that it does not know.

    A measure that only counts documents from some grade on, such as RBP, counts them from grade 1 on. `UserError` for
    a wrong parameter, and for a measure that needs a missing package.
    """
    try:
        found = read_ir_measure(name)
        found.validate_params()
        names_grade = "rel" in found.params
        found = read_ir_measure(repr(found))  # its name must read back, as 1e999, which is inf, does not
    except (ValueError, NameError, TypeError, RecursionError):
        return None
    except AssertionError as error:
        reason = re.sub(r"invalid param (\w+)=<object.*", r"expected the parameter \1", str(error))
        raise UserError(f"measure {name!r}: {reason}") from error
    if own := _parse_own(repr(found)):  # P(cutoff=10) is P@10
        return replace(own, names_grade=names_grade)
    _check_parameters(name, found)
    if found.NAME in SUBTOPIC_FAMILIES or is_defined_here(found):
        return replace(_describe_delegated(found), names_grade=names_grade)
    able = _list_providers(found)
    if not able and "rel" in found.SUPPORTED_PARAMS:
        found = found(rel=1)
        able = _list_providers(found)
    if not able:
        raise UserError(f"measure {name!r}: ir_measures computes {found.NAME} only with other parameters")
    if not any(provider.is_available() for provider in able):
        ways = " or ".join(provider.install_instructions() or f"the program of {provider.NAME}" for provider in able)
        raise UserError(f"measure {name!r}: not possible on this machine; it needs: {ways}")
    return replace(_describe_delegated(found), names_grade=names_grade)


def _check_parameters(name: str, found: Any) -> None:
    """Check the parameters whose values `ir_measures` does not check."""
    for key, value in found.params.items():
        if isinstance(value, bool) and found.SUPPORTED_PARAMS[key].dtype is not bool:
            raise UserError(f"measure {name!r}: found {key}={value}, expected a whole number")
    cutoff = found.params.get("cutoff")
    if cutoff is None and found.NAME in SUBTOPIC_FAMILIES and "cutoff" in found.SUPPORTED_PARAMS:
        raise UserError(f"measure {name!r}: expected a cutoff, as in {found.NAME}@10")
    if cutoff is not None and not 0 < cutoff <= DEEPEST_CUTOFF:
        raise UserError(f"measure {name!r}: expected a cutoff from 1 to {DEEPEST_CUTOFF:,}")
    for share in ("alpha", "p", "recall") + ("beta",) * (found.NAME in SUBTOPIC_FAMILIES):
        if found.params.get(share, 0) > 1:
            raise UserError(f"measure {name!r}: expected {share} between 0 and 1")


def _read_trec_eval_name(name: str) -> list[str]:
    """List the names in `ir_measures` of the measures that a name of trec_eval stands for; empty for another name."""
    from ir_measures.util import parse_trec_measure

    if not _TREC_EVAL_FORM.fullmatch(name):
        return []
    with redirect_stdout(StringIO()):  # the members of a group that it does not know, such as gm_map
        try:
            found = list(map(repr, parse_trec_measure(name)))
        except ValueError:
            return []
    return found if found != ["NumQ"] or name == "num_q" else []  # for groups of other judgments, it knows only this


def read_ir_measure(name: str) -> Any:
    """The measure of `ir_measures` with a name of the form `Measure(k1=v1, k2=v2)@cutoff`.

    `ir_measures` 0.4 reads such names by classes that Python 3.14 no longer has. `ValueError` if the name has another
    form, `NameError` if there is no such measure, `TypeError` if a key is not a text.
    """
    from ir_measures.measures import registry

    try:
        node = ast.parse(name, mode="eval").body
    except SyntaxError as error:
        raise ValueError(str(error)) from error
    cutoff, values = None, dict[Any, Any]()
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.MatMult):
        cutoff, node = _read_value(node.right), node.left
    if isinstance(node, ast.Call) and not node.args:
        values = {keyword.arg: _read_value(keyword.value) for keyword in node.keywords}
        node = node.func
    if not isinstance(node, ast.Name):
        raise ValueError("expected a name, keys with values in parentheses, and @cutoff")
    if node.id not in registry:
        raise NameError(node.id)
    kind = registry[node.id]
    return kind(**values, **({} if cutoff is None else {kind.AT_PARAM: cutoff}))


def _read_value(node: ast.expr | None) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, str | int | float | complex | None):
        return node.value
    if isinstance(node, ast.Dict):
        return {_read_value(key): _read_value(value) for key, value in zip(node.keys, node.values, strict=True)}
    raise ValueError("expected a text, a number, or a dictionary of them")


def _list_providers(measure: Any) -> list[Any]:
    import ir_measures

    return [provider for provider in ir_measures.DefaultPipeline.providers if provider.supports(measure)]


def _describe_delegated(measure: Any) -> Measure:
    grade = measure["rel"] if "rel" in measure.SUPPORTED_PARAMS else 1
    cutoff = measure.params.get("cutoff", 0)
    return Measure(measure.NAME, cutoff, grade if isinstance(grade, int) else 1, repr(measure))


def _suggest_nearest(name: str) -> str:
    """Suggest the known name, with a cutoff, that is nearest to an unknown one; empty if no name is near."""
    from ir_measures.measures import registry

    parts = re.findall(r"[a-z]+(?:_[a-z]+)*", name.lower())
    spellings = {family.lower(): family for family in registry} | _list_spellings()
    near = get_close_matches(parts[0], spellings, n=1, cutoff=0.7) if parts else []
    if not near:
        return ""
    family, cutoff = spellings[near[0]], re.search(r"[1-9][0-9]{0,8}", name)
    needs_cutoff = family in FAMILIES and FAMILIES[family].needs_cutoff
    return f"; {Measure(family, int(cutoff[0]) if cutoff else 10 * needs_cutoff)} is the nearest"


DEFAULT_MEASURES = tuple(
    map(parse_measure, ("nDCG@10", "nDCG@30", "nDCG@100", "R@100", "MAP", "MRR", "judged@10")),
)


JUDGED_SHARE_RANKS = 10
"""The cutoff of the share of judged documents, if no measure has one."""


def add_judged_share(measures: Sequence[Measure]) -> tuple[Measure, ...]:
    """Add judged@k, with the cutoff of the first measure that has one, unless the measures include such a share."""
    if any(measure.family.lower() == "judged" for measure in measures):
        return tuple(measures)
    cutoff = next((measure.cutoff for measure in measures if measure.cutoff), JUDGED_SHARE_RANKS)
    return (*measures, Measure("judged", cutoff))


def set_relevant_grade(measures: Sequence[Measure], grade: int) -> tuple[Measure, ...]:
    """Set the lowest relevant grade of binary measures that name none. The other measures stay as they are."""
    return tuple(measure if measure.names_grade else _set_grade(measure, grade) for measure in measures)


def _set_grade(measure: Measure, grade: int) -> Measure:
    if not measure.delegated:
        return measure if FAMILIES[measure.family].of_grades else replace(measure, relevant_from=grade)
    found = read_ir_measure(measure.delegated)
    binary = "rel" in found.SUPPORTED_PARAMS and isinstance(found["rel"], int)
    return _describe_delegated(found(rel=grade)) if binary else measure
