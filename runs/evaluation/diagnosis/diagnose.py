"""The stage at which a run lost each nugget or relevant document, found from the files of its run directory.

A later stage may find what an earlier one lost: grades reach documents that the fusion has cut. So a nugget counts as
lost at the stage after the last one that it passed.

The worth of losses in a measure is its gain if the documents that a stage lost stood at their place.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from keystone.generation.readers.write import NOTED
from keystone.generation.rules.support import find_added, rate_support
from keystone.generation.rules.words import find_terms, make_weigher
from keystone.generation.types import Answer, EvidenceSet, Sentence
from keystone.indexing.corpora.languages import differ_in_language
from keystone.indexing.errors import UserError
from keystone.indexing.types import Document, Span, Store, document_id
from keystone.runs.evaluation.diagnosis.questions import QuestionFinding, find_questions
from keystone.runs.evaluation.diagnosis.stored import StoredRun, open_stored_run
from keystone.runs.evaluation.diagnosis.wanted import Wanted
from keystone.runs.evaluation.evaluate import evaluate
from keystone.runs.evaluation.measures import Measure
from keystone.runs.pipeline import table
from keystone.runs.pipeline.file_names import name_system_file
from keystone.runs.pipeline.stages.grades import RELEVANT_GRADE
from keystone.runs.pipeline.stages.research import has_research
from keystone.runs.trec.run_files import list_first, read_run
from keystone.runs.trec.types import make_qrels, make_run

SAID_SHARE = 0.8
"""The least share of a nugget's terms by which a text says the nugget."""


@dataclass(frozen=True, slots=True)
class Use:
    """What became of a nugget or document after its document was selected."""

    read: bool
    """Whether it is in the evidence of the answer."""
    used: bool
    cited: bool
    """Whether a sentence that uses it cites it."""


@dataclass(frozen=True, slots=True)
class Cited:
    """A sentence of an answer, and the stretches that it cites with their texts. A cited document is one stretch."""

    sentence: Sentence
    sources: tuple[tuple[Span, str], ...]

    def join(self, doc_id: str | None = None) -> str:
        """Join the texts of all sources, or of those from one document."""
        return "\n".join(text for span, text in self.sources if doc_id in (None, span.doc_id))


def find_uses(
    wanted: Sequence[Wanted], answer: Answer, evidence: EvidenceSet, documents: Mapping[str, Document]
) -> Iterator[Use]:
    """Find the use of each nugget or document of a topic in the topic's answer and its evidence.

    `documents` are those that the answer cites and those of the nuggets, by id. Words decide, as in `rate_support`:
    they cannot tell a claim from its denial.
    """
    sentences = [Cited(sentence, tuple(_list_sources(sentence, documents))) for sentence in answer.sentences]
    for one in wanted:
        read = any(_holds(item.span, one) for item in evidence.items)
        texts = {one.text}
        if one.span and one.doc_id in documents:
            texts.add(documents[one.doc_id].text[one.span.start : one.span.end])
        found = _find_nugget(one, texts, sentences) if one.text else _find_document(one, sentences, evidence)
        yield Use(read, *found)


def _find_nugget(wanted: Wanted, texts: Collection[str], sentences: Sequence[Cited]) -> tuple[bool, bool]:
    """Find whether a sentence says a nugget, and whether one that does cites its place or another text that says it.

    `texts` are the nugget's wordings: its own, and that of its place.
    """

    def has(source: str) -> bool:
        return any(says(source, text) for text in texts)

    saying = [one for one in sentences if has(one.sentence.text)]
    return bool(saying), any(any(_holds(at, wanted) for at, _ in one.sources) or has(one.join()) for one in saying)


def _find_document(wanted: Wanted, sentences: Sequence[Cited], evidence: EvidenceSet) -> tuple[bool, bool]:
    """Find whether a sentence uses a document, and whether one that does cites it.

    A sentence that cites the document uses it, and cites it rightly if its sources support it, or if the document is in
    another language, whose words cannot be compared. A sentence that the evidence of the document supports uses it too,
    unless the sources that it cites support it as well, or are in another language.
    """
    rate = partial(rate_support, weigh=make_weigher([find_terms(item.text) for item in evidence.items]))
    own = "\n".join(item.text for item in evidence.items if item.span.doc_id == wanted.doc_id)
    used = False
    for one in sentences:
        text, sources, cited = one.sentence.text, one.join(), one.join(wanted.doc_id)
        supported = rate(text, sources) == "full"
        if cited and (differ_in_language(text, cited) or (supported and rate(text, cited) != "none")):
            return True, True
        unsupported = not supported and not differ_in_language(text, sources)
        used = used or bool(cited) or (unsupported and rate(text, own) == "full")
    return used, False


def says(text: str, nugget: str) -> bool:
    """Tell whether a text says a nugget: it has its numbers and names, and `SAID_SHARE` of its terms."""
    terms = find_terms(nugget)
    return len(terms & find_terms(text)) >= SAID_SHARE * len(terms) and not find_added(nugget, text)


def _holds(span: Span, wanted: Wanted) -> bool:
    return span.overlaps(wanted.span) if wanted.span else span.doc_id == wanted.doc_id


def _list_sources(sentence: Sentence, documents: Mapping[str, Document]) -> Iterator[tuple[Span, str]]:
    """List the stretches that a sentence cites. A citation is a segment, or else a document; others are left out."""
    for citation in sentence.citations:
        of_segment = documents.get(document_id(citation))
        segment = next((one for one in of_segment.segments if one.id == citation), None) if of_segment else None
        if of_segment and segment:
            yield segment.span, of_segment.segment_text(segment)
        elif document := documents.get(citation):
            yield Span(document.id, 0, len(document.text)), document.text


Stage = str
"""The name of a stage, as far as it can lose something."""
LOSSES_OF_RANKING: Mapping[Stage, str] = {
    "corpus": "not in the corpus",
    "search": "in no query's list",
    "systems": "cut by the fusion of systems",
    "queries": "cut by the fusion of queries",
    "graded": "not graded",
    "grade": "graded too low",
    "selected": "not selected",
}
LOSSES_OF_READING: Mapping[Stage, str] = {
    "found": "found by no search of the agent",
    "shown": "found by the agent, but not read",
    "noted": "read by the agent, but not noted",
    "read": "selected, but not in the evidence",
    "used": "in the evidence, but not used",
    "cited": "used, but wrongly cited",
}
"""The stages that work on the documents of a ranking, and cannot change it, each with the name of a loss there."""
OF_AGENTS: tuple[Stage, ...] = ("found", "shown", "noted")
"""The stages of research agents alone."""


def name_losses() -> dict[Stage, str]:
    """Name the loss at each stage, in order. The table of stages has those of what ranks narratives again."""
    again = {stage: words for kind in table.STAGES for stage, words in kind.losses.items()}
    return {**LOSSES_OF_RANKING, **again, **LOSSES_OF_READING}


@dataclass(frozen=True, slots=True)
class Finding:
    """What became of one nugget or document."""

    wanted: Wanted
    lost: Stage | None
    """The stage that lost it. None: the answer uses and cites it, or the run has no answer and keeps it."""
    worth: float
    """What the coverage gains if this loss alone is repaired; for one that is kept, its part in the coverage."""
    ranks: Mapping[Stage, int]
    """The best rank of the document in the lists of `search`, `systems` and `queries`, as far as they have it."""
    grade: float | None
    """The highest UMBRELA grade of the document."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """What became of all nuggets or relevant documents of a run's topics, and the stages that the run has."""

    stages: tuple[Stage, ...]
    findings: tuple[Finding, ...]
    left_out: int = 0
    """The number of nuggets or documents of other topics."""
    questions: tuple[QuestionFinding, ...] = ()
    """What became of the questions of these topics, if a contract has asked them and the run answers."""

    def sum_worth(self, lost: Stage | None) -> float:
        """Sum what the coverage gains if all losses at a stage alone are repaired. None: the coverage itself."""
        return sum(finding.worth for finding in self.findings if finding.lost == lost)

    def count_by_topic(self) -> dict[str, Counter[Stage | None]]:
        """Count the losses of each topic by stage, and under None what it keeps."""
        found: dict[str, Counter[Stage | None]] = {}
        for finding in self.findings:
            found.setdefault(finding.wanted.topic_id, Counter())[finding.lost] += 1
        return found


def diagnose(directory: Path, read_wanted: Callable[[Store], list[Wanted]]) -> Diagnosis:
    """Find the stage at which a finished run lost each nugget or relevant document of its topics.

    `read_wanted` reads them. The coverage is the mean over topics of the share that is kept. `UserError` for a folder
    without a finished run, and if none is wanted for a topic of the run.
    """
    run = open_stored_run(directory)
    every = read_wanted(run.store)
    wanted = [one for one in every if one.topic_id in run.queries]
    if not wanted:
        ids = f"its topics look like {next(iter(run.queries))!r}" + (f", not {every[0].topic_id!r}" if every else "")
        raise UserError(f"{directory}: found no nugget or relevant document of a topic of the run: {ids}")
    docs: dict[str, list[str]] = {}
    for topic_id, doc_id in dict.fromkeys((one.topic_id, one.doc_id) for one in wanted):
        docs.setdefault(topic_id, []).append(doc_id)
    searched = run.find_query_ranks(list(map(name_system_file, run.config.list_systems())), docs)
    stages, ranks, grades = list_stages(run), _find_ranks(run, docs, searched), _find_best_grades(run)
    passed = _find_passed(run, wanted, ranks, grades)
    counts = Counter(one.topic_id for one in wanted)
    findings = []
    for place, one in enumerate(wanted):
        key = one.topic_id, one.doc_id
        last = max((number for number, stage in enumerate(stages) if passed[stage][place]), default=-1)
        lost = stages[last + 1] if last + 1 < len(stages) else None
        own = {stage: found[key] for stage, found in ranks.items() if key in found}
        findings.append(Finding(one, lost, 1 / counts[one.topic_id] / len(counts), own, grades.get(key)))
    questions = find_questions(run, [(one.wanted, one.lost) for one in findings], searched)
    return Diagnosis(stages, tuple(findings), len(every) - len(wanted), questions)


def list_stages(run: StoredRun) -> tuple[Stage, ...]:
    """List the stages of a run, in order."""
    again = run.list_ranked_again()
    absent: set[Stage] = {"selected"} if again else set()
    if has_research(run.config):  # the agent reads what it finds, not what was selected for it
        absent.add("selected")
    else:
        absent |= set(OF_AGENTS)
    if run.answers_queries:
        absent.add("queries")
    if not run.grades:
        absent |= {"graded", "grade"}
    if not run.has_answers:
        absent |= {"read", "used", "cited"}
        if not run.grades:
            absent.add("selected")
    return tuple(stage for stage in (*LOSSES_OF_RANKING, *again, *LOSSES_OF_READING) if stage not in absent)


def _find_ranks(
    run: StoredRun, docs: Mapping[str, Sequence[str]], searched: Mapping[str, Mapping[str, int]]
) -> dict[Stage, dict[tuple[str, str], int]]:
    """Find the best rank of each document of a topic, over its queries. `searched` has its ranks for each query."""

    def fold(found: Mapping[str, Mapping[str, int]]) -> dict[tuple[str, str], int]:
        best: dict[tuple[str, str], int] = {}
        for topic_id in docs:
            for doc_id, rank in (pair for query in run.queries[topic_id] for pair in found[query.id].items()):
                best[topic_id, doc_id] = min(rank, best.get((topic_id, doc_id), rank))
        return best

    return {
        "search": fold(searched),
        "systems": fold(run.find_query_ranks([run.query_ranking], docs)),
        "queries": run.find_narrative_ranks(docs),
    }


def _find_best_grades(run: StoredRun) -> dict[tuple[str, str], float]:
    """Find the highest grade of each document that has one."""
    found = {}
    for topic_id, record in run.grades.items():
        for doc_id, *own in zip(record.documents, *record.grades, strict=True):
            if known := [grade for grade in own if grade is not None]:
                found[topic_id, doc_id] = max(known)
    return found


def _find_passed(
    run: StoredRun,
    wanted: Sequence[Wanted],
    ranks: Mapping[Stage, Mapping[tuple[str, str], int]],
    grades: Mapping[tuple[str, str], float],
) -> dict[Stage, list[bool]]:
    """Find for each stage whether it let pass each nugget or document."""
    keys = [(one.topic_id, one.doc_id) for one in wanted]
    uses, most = _find_all_uses(run, wanted), run.config.answer.documents
    chosen: dict[Stage, Mapping[str, Collection[str]]] = {"selected": run.list_selected()}
    chosen |= {stage: list_first(run.directory / name, most) for stage, name in run.list_ranked_again().items()}
    return {
        "corpus": _find_in_corpus(run, wanted),
        **{stage: [key in found for key in keys] for stage, found in ranks.items()},
        "graded": [key in grades for key in keys],
        "grade": [grades.get(key, 0) >= RELEVANT_GRADE for key in keys],
        **{stage: [doc_id in own.get(topic_id, ()) for topic_id, doc_id in keys] for stage, own in chosen.items()},
        **_find_researched(run, wanted),
        "read": [use.read for use in uses],
        "used": [use.used for use in uses],
        "cited": [use.cited for use in uses],
    }


def _find_researched(run: StoredRun, wanted: Sequence[Wanted]) -> dict[Stage, list[bool]]:
    """Find whether an agent's searches found each document, and whether it was shown and noted the wanted text."""
    found: dict[Stage, list[bool]] = {stage: [] for stage in OF_AGENTS}
    for one in wanted:
        notes = run.evidence[one.topic_id].notes if one.topic_id in run.evidence else ()
        own = [(note.kind, span) for note in notes for span in note.sources if span.doc_id == one.doc_id]
        shown = [kind for kind, span in own if kind != "found" and _holds(span, one)]
        found["found"].append(bool(own))
        found["shown"].append(bool(shown))
        found["noted"].append(NOTED in shown)
    return found


def _find_in_corpus(run: StoredRun, wanted: Sequence[Wanted]) -> list[bool]:
    """Find whether the corpus has each document, and the text of each nugget that has a place."""
    located = sorted({one.doc_id for one in wanted if one.span})
    lengths = {doc_id: len(document.text) for doc_id, document in run.get_documents(located).items()}
    rows = run.store.rows([one.doc_id for one in wanted]).tolist()
    return [
        row >= 0 and (one.span is None or one.span.end <= lengths[one.doc_id])
        for one, row in zip(wanted, rows, strict=True)
    ]


def _find_all_uses(run: StoredRun, wanted: Sequence[Wanted]) -> list[Use]:
    """Find the use of each nugget or document in the answer to its topic."""
    found = [Use(False, False, False)] * len(wanted)
    places: dict[str, list[int]] = {}
    for place, one in enumerate(wanted if run.has_answers else ()):
        places.setdefault(one.topic_id, []).append(place)
    for topic_id, own in places.items():
        asked = [wanted[place] for place in own]
        documents = run.get_cited(topic_id) | run.get_documents(sorted({one.doc_id for one in asked if one.span}))
        uses = find_uses(asked, run.answers[topic_id], run.evidence[topic_id], documents)
        for place, use in zip(own, uses, strict=True):
            found[place] = use
    return found


def measure_worth(directory: Path, found: Diagnosis, measure: Measure) -> dict[str, Any]:
    """Measure the last ranking of a run, and what it would gain by stage without the losses of that stage.

    The lost documents then stand before the first one of a lower grade, and all others in their order. Documents that
    are not wanted count as not relevant. `UserError` if no document is relevant for the measure, and for measures of
    subtopics or of the number of judgments.
    """
    if measure.delegated or not measure.of_relevance:
        raise UserError(f"--measure {measure}: expected a measure of relevance that ranx has, such as nDCG@10")
    grades: dict[str, dict[str, int]] = {}
    for one in found.findings:
        grades.setdefault(one.wanted.topic_id, {})[one.wanted.doc_id] = one.wanted.grade
    ranking = table.find_last_ranking(directory)
    hits, qrels = read_run(ranking).list_hits(), make_qrels(grades)

    def take_measure(lost: Stage | None) -> float:
        missing: dict[str, list[str]] = {topic: [] for topic in grades}
        for one in found.findings:
            if lost and one.lost == lost:
                missing[one.wanted.topic_id].append(one.wanted.doc_id)
        ranked = {
            topic: insert_by_grade([doc_id for doc_id, _ in hits.get(topic, ())], missing[topic], own)
            for topic, own in grades.items()
        }
        run = make_run("run", {topic: [(doc_id, -n) for n, doc_id in enumerate(own)] for topic, own in ranked.items()})
        return evaluate(str(ranking), run, qrels, [measure]).mean(str(measure))

    value = take_measure(None)
    gains = {stage: take_measure(stage) - value for stage in found.stages if stage not in LOSSES_OF_READING}
    return {"measure": str(measure), "value": value, "gains": gains}


def insert_by_grade(ranking: Sequence[str], missing: Iterable[str], grades: Mapping[str, int]) -> list[str]:
    """Insert each missing document before the first one of a lower grade. One that is ranked already moves there."""
    waiting = sorted(missing, key=lambda doc_id: grades[doc_id])
    others = [doc_id for doc_id in ranking if doc_id not in waiting]
    found = list[str]()
    for doc_id in others:
        while waiting and grades[waiting[-1]] > grades.get(doc_id, 0):
            found.append(waiting.pop())
        found.append(doc_id)
    return found + waiting[::-1]
