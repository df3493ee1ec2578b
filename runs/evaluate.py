"""Evaluation with ranx, on runs brought into trec_eval's order first, so that the numbers are trec_eval's.

ranx orders by score and leaves ties to chance; it is given the ranks of `in_trec_eval_order` as scores.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexing.errors import UserError
from runs.trec import Qrels, Run, in_trec_eval_order, read_qrels, read_run

MEASURES = {
    "nDCG@10": "ndcg@10",
    "nDCG@30": "ndcg@30",
    "nDCG@100": "ndcg@100",
    "R@100": "recall@100",
    "MAP": "map",
    "MRR": "mrr",
}
"""Our names and ranx's."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The measures of a run: for each the values of all judged topics (float64[topics], in order of topic id)."""

    name: str
    topics: tuple[str, ...]
    values: dict[str, NDArray[np.float64]]

    def mean(self, measure: str) -> float:
        """The mean over all judged topics; one that the run lacks counts 0 (trec_eval -c)."""
        return float(self.values[measure].mean())


def evaluate(name: str, run: Run, qrels: Qrels) -> Evaluation:
    """Measure a run on every judged topic; one without a relevant document (grade 1 or more) counts 0."""
    from ranx import Qrels as RanxQrels
    from ranx import Run as RanxRun
    from ranx import evaluate as ranx_evaluate

    topics = sorted(qrels)
    relevant = {t: {d: g for d, g in qrels[t].items() if g > 0} for t in topics if max(qrels[t].values()) > 0}
    if not relevant:
        raise UserError(f"{name}: no judged topic has a relevant document")
    judged: dict[str, dict[str, int]] = {}
    ranks: dict[str, dict[str, float]] = {}
    for topic, grades in relevant.items():
        order = in_trec_eval_order(run.hits.get(topic, [])) or [" none "]
        number = {doc_id: _code(i) for i, doc_id in enumerate(dict.fromkeys([*order, *grades]))}
        judged[_code(len(judged))] = {number[doc_id]: grade for doc_id, grade in grades.items()}
        ranks[_code(len(ranks))] = {number[d]: float(len(order) - place) for place, d in enumerate(order)}
    found: Any = ranx_evaluate(RanxQrels(judged), RanxRun(ranks), list(MEASURES.values()), return_mean=False)
    places = [i for i, topic in enumerate(topics) if topic in relevant]
    values = {measure: np.zeros(len(topics)) for measure in MEASURES}
    for measure, theirs in MEASURES.items():
        values[measure][places] = found[theirs]
    return Evaluation(name, tuple(topics), values)


def _code(number: int) -> str:
    """An id of ten digits: ranx compiles its kernels anew for every length of id, so all are given one."""
    return f"{number:010d}"


def evaluate_files(paths: Sequence[Path], qrels_path: Path) -> list[Evaluation]:
    """Evaluate run files on one qrels file. `UserError` for a run that has no judged topic."""
    qrels = read_qrels(qrels_path)
    evaluations = []
    for path in paths:
        run = read_run(path)
        if not qrels.keys() & run.hits.keys():
            raise UserError(f"{path}: none of its topics is judged in {qrels_path}")
        evaluations.append(evaluate(str(path), run, qrels))
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


if __name__ == "__main__":
    evaluate("set-up", Run("set-up", {"1": [("a", 1.0)]}), {"1": {"a": 1}})  # compiles ranx's kernels
