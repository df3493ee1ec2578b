"""The measures of answers by the names that a user gives, with the columns of each and the fields that it needs.

Short answers are found in a text or in passages: exact match and hit, answers as a list, and F1* behind a keyword gate.
Overlaps with a reference are precision, recall and F1 of ROUGE-L and of sets of ids.
"""

import re
import string
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from math import nan
from typing import NamedTuple

from keystone.generation.context.texts import count_tokens
from keystone.generation.grading.rate_sentences import Use
from keystone.generation.rules.answer_form import admits_gap, count_repeated, leads, points_back
from keystone.generation.types import Answer
from keystone.indexing.errors import UserError
from keystone.indexing.types import document_id
from keystone.runs.evaluation.answers.files import Context, Reference, join_sentences
from keystone.runs.evaluation.use import has_agreement, list_texts, measure_agreement, measure_use
from keystone.runs.pipeline.file_names import EVIDENCE


class Overlap(NamedTuple):
    """The share of the found items that are wanted, the share of the wanted items that are found, and F1; 0 to 1."""

    precision: float
    recall: float
    f1: float


def compute_overlap(common: int, found: int, wanted: int) -> Overlap:
    """Compute the overlap of `found` and `wanted` items that have `common` items in common; all 0 if there are none."""
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
    overlaps = (
        compute_overlap(count_common_subsequence(tokens, wanted), len(tokens), len(wanted))
        for wanted in map(find_rouge_tokens, references)
    )
    return max(overlaps, key=lambda overlap: (overlap.f1, overlap.recall))


def find_rouge_tokens(text: str) -> list[str]:
    """Find the tokens of ROUGE: runs of a-z and 0-9 in the lower-cased text. Other letters separate tokens."""
    return re.findall("[a-z0-9]+", text.lower())


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


@dataclass(frozen=True, slots=True)
class Given:
    """A system's answer to a topic, and the evidence behind it. If the topic is missing, both are empty.

    `use` is None if nobody has judged the use of the answer.
    """

    answer: Answer
    context: Context = field(default_factory=Context)
    use: Use | None = None

    @property
    def text(self) -> str:
        """The text of the answer."""
        return join_sentences(self.answer)


@dataclass(frozen=True, slots=True)
class Family:
    """A measure of a topic, with a number for each column.

    If the references of a topic lack a field that `needs` names, the topic is not measured.
    """

    columns: tuple[str, ...]
    needs: tuple[str, ...]
    measure: Callable[[Reference, Given], Sequence[float]]
    of_context: bool = False
    """Whether the measure reads the evidence, and not the answer."""
    of_use: Callable[[Use], bool] | None = None
    """Whether the measure can be taken from a judgment of use. None: it reads no such judgment."""
    usual: bool = True
    """Whether a table without named measures has this one."""

    def applies(self, reference: Reference) -> bool:
        """Whether the references of a topic have the fields that the measure needs."""
        return all(getattr(reference, name) for name in self.needs)

    def can_be_taken(self, uses: Sequence[Use]) -> bool:
        """Whether one of these judgments of use has what the measure needs; true if it reads none."""
        return self.of_use is None or any(map(self.of_use, uses))


def _name_overlap(name: str) -> tuple[str, ...]:
    return f"{name} P", f"{name} R", f"{name} F1"


def _compare_citations(wanted: Reference, given: Given) -> Sequence[float]:
    """Compare the cited ids with the gold ids. If a gold id is a document, each of its segments counts as the id."""
    gold = set(wanted.gold_ids)
    cited = {citation for sentence in given.answer.sentences for citation in sentence.citations}
    return compare_sets({document_id(one) if document_id(one) in gold else one for one in cited}, gold)


def _measure_form(wanted: Reference, given: Given) -> Sequence[float]:
    """Count gaps, sentences that point back and repeated ones; whether the opening is on the question, if known."""
    sentences = list_texts(given.answer)
    opening = float(leads(wanted.question, sentences)) if wanted.question else nan
    pointing = sum(map(points_back, sentences))
    return sum(map(admits_gap, sentences)), opening, pointing, count_repeated(sentences)


FAMILIES: Mapping[str, Family] = {
    "ROUGE-L": Family(
        _name_overlap("ROUGE-L"),
        ("references",),
        lambda wanted, given: measure_rouge_l(given.text, wanted.references),
    ),
    "context": Family(
        _name_overlap("context"),
        ("references",),
        lambda wanted, given: measure_rouge_l(" ".join(given.context.texts), wanted.references),
        of_context=True,
    ),
    "EM": Family(("EM", "hit"), ("answers",), lambda wanted, given: measure_exact_match(given.text, wanted.answers)),
    "P-EM": Family(
        ("P-EM", "P-hit", "P-score"),
        ("answers",),
        lambda wanted, given: measure_passages(given.context.texts, wanted.answers),
        of_context=True,
        usual=False,
    ),
    "F1-5": Family(
        ("recall-5", "F1-5"), ("answers",), lambda wanted, given: measure_list(given.text, wanted.answers), usual=False
    ),
    "F1*": Family(
        ("F1*",),
        ("references", "keywords"),
        lambda wanted, given: (measure_gated_f1(given.text, wanted.references, wanted.keywords),),
    ),
    "ids": Family(_name_overlap("ids"), ("gold_ids",), _compare_citations),
    "documents": Family(
        _name_overlap("documents"),
        ("gold_ids",),
        lambda wanted, given: compare_sets(given.context.doc_ids, set(map(document_id, wanted.gold_ids))),
        of_context=True,
    ),
    "form": Family(("gaps", "opening", "pointing", "repeated"), (), _measure_form, usual=False),
    "use": Family(
        ("mark", "answered", "partly", "unanswered", "no use", "gaps admitted", "lead"),
        (),
        lambda _, given: measure_use(given.use) if given.use else (nan,) * len(FAMILIES["use"].columns),
        of_use=lambda _: True,
    ),
    "agreement": Family(
        ("agreement",),
        (),
        lambda _, given: (measure_agreement(given.use) if given.use else nan,),
        of_use=has_agreement,
    ),
}
"""The measures that need no model, by name."""


def _measure_size(_: Reference, given: Given) -> Sequence[float]:
    sentences = given.answer.sentences
    cited = sum(bool(sentence.citations) for sentence in sentences)
    return len(given.text.split()), cited / max(1, len(sentences))


SIZES = (
    Family(("words", "cited"), (), _measure_size),
    Family(("evidence tokens",), (), lambda _, given: (sum(map(count_tokens, given.context.texts)),), of_context=True),
)
"""The numbers beside every measure: words of the answer, share of its sentences with a citation, and tokens read."""

JUDGED = ("LR", "pairwise")
"""The names of the measures that ask a model."""


def choose_families(
    names: Sequence[str], references: Sequence[Reference], with_contexts: bool, uses: Sequence[Use] = ()
) -> list[Family]:
    """Choose the measures of these names, without those that ask a model, and `SIZES` after them.

    Without a name, they are all usual measures for which a line of the references has the fields; if no line has any,
    also `form`. If `with_contexts` is false, no file comes with evidence. `uses` are the judgments of use of all files.
    If a name is unknown, the function raises `UserError`. It also raises `UserError` for a measure of evidence or of
    use without any, and for a measure whose fields no line of the references has.
    """
    for name in names:
        if name not in FAMILIES and name not in JUDGED:
            raise UserError(f"measure {name!r}: unknown; expected one of {', '.join([*FAMILIES, *JUDGED])}")
        if name in FAMILIES and FAMILIES[name].of_context and not with_contexts:
            raise UserError(f"measure {name!r}: expected a run directory with {EVIDENCE}, found answer files only")
        if name in FAMILIES and not FAMILIES[name].can_be_taken(uses):
            raise UserError(f"measure {name!r}: found no judgment for it; `keystone judge use` makes judgments of use")
        if name in FAMILIES and not any(map(FAMILIES[name].applies, references)):
            raise UserError(f"measure {name!r}: no line of the references has {' and '.join(FAMILIES[name].needs)}")
    usual = [
        family
        for family in FAMILIES.values()
        if family.usual
        and (with_contexts or not family.of_context)
        and family.can_be_taken(uses)
        and any(map(family.applies, references))
    ]
    if not any(family.needs for family in usual):
        usual.insert(0, FAMILIES["form"])
    chosen = [FAMILIES[name] for name in dict.fromkeys(names) if name in FAMILIES]
    return [*(chosen if names else usual), *(size for size in SIZES if with_contexts or not size.of_context)]


LIST_CUTOFF = 5
"""The number of answers that suffices for a recall of 1 on QAMPARI's questions, some of which have hundreds."""
LEAST_RECALL = 0.2
"""The recall of keywords below which F1* is 0."""
LEAST_RECALL_CHINESE = 0.4

_ARTICLE = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_CHINESE = re.compile(r"[\u3400-\u9fff\uf900-\ufaff]")
_CHINESE_TOKEN = re.compile(rf"{_CHINESE.pattern}|(?:(?!{_CHINESE.pattern})\w)+")
FUNCTION_WORDS = frozenset(
    """and or but as because if so than of in on at by to from for with about into over is are was were be been being
    am has have had do does did will would can could it its he him his she her they them their we our you your i my
    this that these those who whom whose which what when where how why there not
    的 了 和 与 或 及 而 但 是 在 为 于 对 把 被 从 到 由 以 也 都 就 等 之 其 这 那 有 中""".split()
)
"""Words that do not count as found keywords. LV-Eval's own lists are similar; so F1* differs at the gate, if at all."""


def normalise_answer(text: str) -> str:
    """Normalise a text as SQuAD, ALCE and LV-Eval do: lower case, no ASCII punctuation, no articles, single spaces."""
    return " ".join(_ARTICLE.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def measure_exact_match(text: str, answers: Sequence[Sequence[str]]) -> tuple[float, float]:
    """Measure the share of answers that the text holds, and whether it holds all (ALCE's STR-EM and hit for ASQA).

    `answers` has the spellings of each answer. The text holds an answer if one of its spellings is a part of the text,
    both normalised. A spelling that is empty then is never found. Longer texts hold more answers.
    """
    whole = normalise_answer(text)
    found = [any(name in whole for name in _normalise_names(names)) for names in answers]
    return sum(found) / len(found), float(all(found))


def measure_passages(passages: Sequence[str], answers: Sequence[Sequence[str]]) -> tuple[float, float, float]:
    """Measure exact match and hit of all passages together, and the passage score (RDR2, appendix B.2, equation 10).

    The score is the mean over passages of the exact match of passage i divided by i. So it rewards evidence whose first
    passages hold the answers. It divides by the number of passages, so more passages lower it.
    """
    together = measure_exact_match("\n".join(passages), answers)
    by_rank = [measure_exact_match(text, answers)[0] / rank for rank, text in enumerate(passages, 1)]
    return *together, sum(by_rank) / max(1, len(by_rank))


def measure_list(text: str, answers: Sequence[Sequence[str]]) -> tuple[float, float]:
    """Measure recall-5 and F1-5 of a text that lists answers between commas (ALCE's measures for QAMPARI).

    Each part between commas is right if it equals a spelling of an answer, both normalised. Recall counts up to
    `LIST_CUTOFF` answers; precision counts all parts.
    """
    parts = [part for part in map(normalise_answer, text.split(",")) if part]
    spellings = [_normalise_names(names) for names in answers]
    right = sum(any(part in names for names in spellings) for part in parts)
    found = sum(not names.isdisjoint(parts) for names in spellings)
    recall = min(LIST_CUTOFF, found) / min(LIST_CUTOFF, len(answers))
    precision = right / len(parts) if parts else 0.0
    return recall, 2 * precision * recall / (precision + recall) if found else 0.0


def _normalise_names(names: Sequence[str]) -> set[str]:
    return {name for name in map(normalise_answer, names) if name}


def measure_gated_f1(text: str, references: Sequence[str], keywords: Sequence[str]) -> float:
    """Measure F1*: F1 of tokens against the best reference, or 0 if too few keywords are found (LV-Eval).

    The recall of keywords does not count found function words, but it counts wanted ones, as the
    official scorer does. So keywords that are function words make the gate harder. The official scorer takes the first
    reference only. Chinese is compared character by character, not by words.
    """
    tokens, wanted = find_f1_tokens(text), find_f1_tokens(" ".join(keywords))
    found = Counter(tokens) & Counter(wanted)
    held = sum(number for token, number in found.items() if token not in FUNCTION_WORDS)
    least = LEAST_RECALL_CHINESE if any(map(_CHINESE.search, references)) else LEAST_RECALL
    if not wanted or held / len(wanted) < least:
        return 0.0
    return max(_compare_bags(tokens, find_f1_tokens(reference)).f1 for reference in references)


def find_f1_tokens(text: str) -> list[str]:
    """Find the tokens of F1*: normalised words; each Chinese character is a token of its own."""
    normal = normalise_answer(text)
    return _CHINESE_TOKEN.findall(normal) if _CHINESE.search(normal) else normal.split()


def _compare_bags(tokens: Sequence[str], wanted: Sequence[str]) -> Overlap:
    common = (Counter(tokens) & Counter(wanted)).total()
    return compute_overlap(common, len(tokens), len(wanted))
