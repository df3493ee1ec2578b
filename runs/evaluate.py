"""Evaluation with ranx, on runs brought into trec_eval's order first, so that the numbers are trec_eval's.

ranx's own runs are ordered by score, ties left to chance; its metrics are given lists that are in order already.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexing.errors import UserError
from indexing.files import unicode_name
from runs.measures import DEFAULT, FAMILIES, Measure
from runs.names import match
from runs.trec import Qrels, Run, bounds_of, in_trec_eval_order, read_qrels, read_run, run_of, without_own, write_run


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The measures of a run: for each the values of all judged topics (float64[topics], in order of topic id)."""

    name: str
    topics: tuple[str, ...]
    values: dict[str, NDArray[np.float64]]

    def mean(self, measure: str) -> float:
        """The mean over all judged topics; one that the run lacks counts 0 (trec_eval -c)."""
        return float(self.values[measure].mean())


def evaluate(name: str, run: Run, qrels: Qrels, measures: Sequence[Measure] = DEFAULT) -> Evaluation:
    """Measure a run, in trec_eval's order, on every judged topic; one without a relevant document counts 0.

    `judged@k` is the share of the first k documents, or of fewer if the topic has fewer, that have any grade.
    """
    from ranx import metrics

    grade = max(measure.relevant_from for measure in measures)
    if qrels.grades.max() < grade:
        raise UserError(f"{name}: no judged topic has a relevant document (of grade {grade} or more)")
    topics = sorted(qrels.query_ids)
    qrels, run = qrels.of(topics), in_trec_eval_order(run.of(topics))
    places = _judgment_of_each(run, qrels)
    judged, ranking = _as_ranx(places, qrels)
    values: dict[str, NDArray[np.float64]] = {}
    for measure in measures:
        if measure.family == "judged":
            values[str(measure)] = _judged(places, np.diff(run.offsets), measure.cutoff)
        else:
            function = getattr(metrics, FAMILIES[measure.family])
            values[str(measure)] = function(judged, ranking, measure.cutoff, measure.relevant_from)
    return Evaluation(name, tuple(topics), values)


def _judgment_of_each(run: Run, qrels: Qrels) -> NDArray[np.int64]:
    """For each topic and rank the position of the document among the topic's judgments; -1 for one without.

    int64[topics, ranks], as wide as the deepest judged document asks, at least one rank.
    """
    _, found = match(qrels.docs, bounds_of(qrels.offsets), run.docs, bounds_of(run.offsets))
    rows = np.flatnonzero(found >= 0)
    topic = np.searchsorted(run.offsets, rows, side="right") - 1
    rank = rows - run.offsets[topic]
    places = np.full((len(run.query_ids), int(rank.max(initial=0)) + 1), -1)
    places[topic, rank] = found[rows] - qrels.offsets[topic]
    return places


def _as_ranx(places: NDArray[np.int64], qrels: Qrels) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What ranx measures: (document, grade) and (document, score), float64[topics, documents, 2], best first.

    A document is its position among the topic's judgments, so that these are one array, and not one a topic; rows
    that fill it up are document -1 of grade 0.
    """
    counts = np.diff(qrels.offsets)
    topic = np.repeat(np.arange(len(counts)), counts)
    rank = np.arange(len(topic)) - qrels.offsets[topic]
    judged = np.zeros((len(counts), int(counts.max()), 2))
    judged[..., 0] = -1
    judged[topic, rank, 0], judged[topic, rank, 1] = rank, np.maximum(qrels.grades, 0)
    ranking = np.zeros((*places.shape, 2))
    ranking[..., 0] = places
    return judged, ranking


def _judged(places: NDArray[np.int64], lengths: NDArray[np.int64], cutoff: int) -> NDArray[np.float64]:
    return np.asarray((places[:, :cutoff] >= 0).sum(axis=1) / np.clip(lengths, 1, cutoff), dtype=np.float64)


def evaluate_files(
    paths: Sequence[Path], qrels_path: Path, measures: Sequence[Measure] = DEFAULT, skip_own: bool = False
) -> list[Evaluation]:
    """Evaluate run files on one qrels file, if asked without the documents that are their own queries.

    `UserError` for a run that has no judged topic.
    """
    qrels = read_qrels(qrels_path)
    evaluations = []
    for path in paths:
        run = read_run(path)
        if not set(qrels.query_ids) & set(run.query_ids):
            raise UserError(f"{path}: none of its topics is judged in {qrels_path}")
        evaluations.append(evaluate(unicode_name(path), without_own(run) if skip_own else run, qrels, measures))
    return evaluations


def paired_test(first: Evaluation, second: Evaluation) -> dict[str, float]:
    """The two-sided p-value of Student's paired t-test for every measure; 1 where no topic differs."""
    from scipy.stats import ttest_rel

    found = {}
    for measure, values in first.values.items():
        others = second.values[measure]
        differ = len(values) > 1 and bool(np.any(values != others))
        found[measure] = float(ttest_rel(values, others).pvalue) if differ else 1.0
    return found


def as_json(evaluations: Sequence[Evaluation]) -> dict[str, Any]:
    """Means, values by topic, and the paired test of every later run against the first."""
    return {
        "runs": [
            {
                "name": evaluation.name,
                "mean": {measure: evaluation.mean(measure) for measure in evaluation.values},
                "topics": {
                    topic: {measure: float(values[i]) for measure, values in evaluation.values.items()}
                    for i, topic in enumerate(evaluation.topics)
                },
            }
            for evaluation in evaluations
        ],
        "paired_t_test": [
            {"first": evaluations[0].name, "second": other.name, "p": paired_test(evaluations[0], other)}
            for other in evaluations[1:]
        ],
    }


def _set_up() -> None:
    """Compile what reading, writing and measuring need, once for all processes."""
    with TemporaryDirectory() as folder:
        run, qrels = Path(folder) / "run", Path(folder) / "qrels"
        write_run(run, run_of("set-up", {"1": [("a", 1.0)]}))
        qrels.write_text("1 0 a 1\n")
        evaluate_files([run], qrels, [*DEFAULT, Measure("P", 10)])


if __name__ == "__main__":
    _set_up()
