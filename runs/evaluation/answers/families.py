"""The measures of answers by the names that a user gives, with the columns of each and the fields that it needs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import nan

from keystone.generation.context.tokens import count_tokens
from keystone.generation.grading.use import Use
from keystone.generation.rules.answer_form import admits_gap, count_repeated, leads, points_back
from keystone.generation.types import Answer
from keystone.indexing.errors import UserError
from keystone.indexing.types import document_id
from keystone.runs.evaluation.answers.files import Context, Reference, join_sentences
from keystone.runs.evaluation.answers.overlap import compare_sets, measure_rouge_l
from keystone.runs.evaluation.answers.short_answers import (
    measure_exact_match,
    measure_gated_f1,
    measure_list,
    measure_passages,
)
from keystone.runs.evaluation.use.measures import has_agreement, measure_agreement, measure_use
from keystone.runs.evaluation.use.records import list_texts
from keystone.runs.pipeline.file_names import EVIDENCE


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
    """A measure of one topic. It returns a number for each column.

    If the references of a topic lack a field that `needs` names, the topic is not measured.
    """

    columns: tuple[str, ...]
    needs: tuple[str, ...]
    measure: Callable[[Reference, Given], Sequence[float]]
    of_context: bool = False
    """Whether the measure reads the evidence, and not the answer."""
    of_use: Callable[[Use], bool] | None = None
    """Whether the measure can be taken from a judgment of use. None: it reads none."""
    usual: bool = True
    """Whether a table without named measures has this one."""

    def applies(self, reference: Reference) -> bool:
        """Whether the references of a topic have the fields that the measure needs."""
        return all(getattr(reference, name) for name in self.needs)

    def can_be_taken(self, uses: Sequence[Use]) -> bool:
        """Whether one of these judgments of use, if the measure reads them, has what it needs."""
        return self.of_use is None or any(map(self.of_use, uses))


def _name_overlap(name: str) -> tuple[str, ...]:
    return f"{name} P", f"{name} R", f"{name} F1"


def _measure_answer(wanted: Reference, given: Given) -> Sequence[float]:
    return measure_rouge_l(given.text, wanted.references)


def _measure_context(wanted: Reference, given: Given) -> Sequence[float]:
    return measure_rouge_l(" ".join(given.context.texts), wanted.references)


def _measure_gated_f1(wanted: Reference, given: Given) -> Sequence[float]:
    return (measure_gated_f1(given.text, wanted.references, wanted.keywords),)


def _compare_citations(wanted: Reference, given: Given) -> Sequence[float]:
    """Compare the cited ids with the gold ids. If a gold id is a document, each of its segments counts as the id."""
    gold = set(wanted.gold_ids)
    cited = {citation for sentence in given.answer.sentences for citation in sentence.citations}
    return compare_sets({document_id(one) if document_id(one) in gold else one for one in cited}, gold)


def _compare_documents(wanted: Reference, given: Given) -> Sequence[float]:
    return compare_sets(given.context.doc_ids, set(map(document_id, wanted.gold_ids)))


def _measure_form(wanted: Reference, given: Given) -> Sequence[float]:
    """Count gaps, sentences that point back and repeated ones; whether the opening is on what was asked, if known."""
    sentences = list_texts(given.answer)
    opening = float(leads(wanted.question, sentences)) if wanted.question else nan
    pointing = sum(map(points_back, sentences))
    return sum(map(admits_gap, sentences)), opening, pointing, count_repeated(sentences)


def _measure_use(_: Reference, given: Given) -> Sequence[float]:
    return measure_use(given.use) if given.use else (nan,) * len(FAMILIES["use"].columns)


def _measure_agreement(_: Reference, given: Given) -> Sequence[float]:
    return (measure_agreement(given.use) if given.use else nan,)


FAMILIES: Mapping[str, Family] = {
    "ROUGE-L": Family(_name_overlap("ROUGE-L"), ("references",), _measure_answer),
    "context": Family(_name_overlap("context"), ("references",), _measure_context, of_context=True),
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
    "F1*": Family(("F1*",), ("references", "keywords"), _measure_gated_f1),
    "ids": Family(_name_overlap("ids"), ("gold_ids",), _compare_citations),
    "documents": Family(_name_overlap("documents"), ("gold_ids",), _compare_documents, of_context=True),
    "form": Family(("gaps", "opening", "pointing", "repeated"), (), _measure_form, usual=False),
    "use": Family(
        ("mark", "answered", "partly", "unanswered", "no use", "gaps admitted", "lead"),
        (),
        _measure_use,
        of_use=lambda _: True,
    ),
    "agreement": Family(("agreement",), (), _measure_agreement, of_use=has_agreement),
}
"""The measures that need no model, by name."""


def _measure_size(_: Reference, given: Given) -> Sequence[float]:
    sentences = given.answer.sentences
    cited = sum(bool(sentence.citations) for sentence in sentences)
    return len(given.text.split()), cited / max(1, len(sentences))


def _count_evidence_tokens(_: Reference, given: Given) -> Sequence[float]:
    return (sum(map(count_tokens, given.context.texts)),)


SIZES = (
    Family(("words", "cited"), (), _measure_size),
    Family(("evidence tokens",), (), _count_evidence_tokens, of_context=True),
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
