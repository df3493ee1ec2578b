"""The worth of losses in a measure of rankings: its gain if the documents that a stage lost stood at their place."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from keystone.indexing.errors import UserError
from keystone.runs.evaluation.diagnosis.diagnose import Diagnosis, Stage
from keystone.runs.evaluation.evaluate import evaluate
from keystone.runs.evaluation.measures import Measure
from keystone.runs.pipeline.table import find_last_ranking
from keystone.runs.trec.run_files import read_run
from keystone.runs.trec.types import make_qrels, make_run

STAGES_AFTER_RANKING: tuple[Stage, ...] = ("read", "used", "cited")
"""The stages that work on the documents of a ranking, and cannot change it."""


@dataclass(frozen=True, slots=True)
class RankingWorth:
    """The value of a measure for the last ranking of a run, and its gain by stage."""

    measure: str
    value: float
    gains: Mapping[Stage, float]


def measure_worth(directory: Path, found: Diagnosis, measure: Measure) -> RankingWorth:
    """Measure for each stage the gain if the documents that it lost stood before the first one of a lower grade.

    All other documents stay in their order. Documents that are not wanted count as not relevant. `UserError` if no
    document is relevant for the measure, and for measures of subtopics or of the number of judgments.
    """
    if measure.delegated or not measure.of_relevance:
        raise UserError(f"--measure {measure}: expected a measure of relevance that ranx has, such as nDCG@10")
    grades: dict[str, dict[str, int]] = {}
    for one in found.findings:
        grades.setdefault(one.wanted.topic_id, {})[one.wanted.doc_id] = one.wanted.grade
    ranking = find_last_ranking(directory)
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
    gains = {stage: take_measure(stage) - value for stage in found.stages if stage not in STAGES_AFTER_RANKING}
    return RankingWorth(str(measure), value, gains)


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
