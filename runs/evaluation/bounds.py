"""What documents without a judgment could change: measures with all of them relevant, and the residual of RBP."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from keystone.runs.evaluation.evaluate import Evaluation, evaluate
from keystone.runs.evaluation.measures import Measure, read_ir_measure
from keystone.runs.trec.arrays import Flags, Ints
from keystone.runs.trec.doc_ids import concatenate_ids, match_ids
from keystone.runs.trec.run_files import sort_as_trec_eval
from keystone.runs.trec.types import Qrels, Run, pair_bounds, sort_qrels


@dataclass(frozen=True, slots=True)
class Bounds:
    """The means of a run by measure: with its unjudged documents as not relevant, and as relevant.

    For measures that only look at the run, such as P, RR, Success and RBP, the true mean lies between the two. The
    ideal of nDCG, AP and R has more documents in the second case, so there it is no limit.
    """

    name: str
    as_nonrelevant: dict[str, float]
    as_relevant: dict[str, float]
    residual: dict[str, float]
    """The mean residual of each RBP: what unjudged documents and the ranks below the last could add."""


def bound_measures(evaluation: Evaluation, run: Run, qrels: Qrels, measures: Sequence[Measure]) -> Bounds:
    """Measure a run a second time, with its documents without a judgment as relevant.

    Such a document gets the lowest grade that the measures count as relevant, or the highest of these grades if the
    measures differ. The residual of RBP is that of Moffat and Zobel (TOIS 2008). Condensed lists are measured whole for
    both means.
    """
    grade = max((measure.relevant_from for measure in measures if measure.of_relevance), default=1)
    topics = sorted(qrels.query_ids)
    own = sort_as_trec_eval(run.select(topics))
    judged = qrels.select(topics)
    if evaluation.condensed:
        evaluation = evaluate(evaluation.name, own, judged, measures)
    _, places = match_ids(judged.docs, pair_bounds(judged.offsets), own.docs, pair_bounds(own.offsets))
    lifted = evaluate(evaluation.name, own, _add(judged, own, places < 0, grade), measures)
    residuals = {
        str(measure): _compute_residual(read_ir_measure(measure.delegated)["p"], own.offsets, places)
        for measure in measures
        if measure.family == "RBP"
    }
    return Bounds(
        evaluation.name,
        {name: evaluation.mean(name) for name in evaluation.values},
        {name: lifted.mean(name) for name in lifted.values},
        residuals,
    )


LEFT_OUT = "are left out"
AS_RELEVANT = "count as relevant"
"""What other treatments do with documents without a judgment. Otherwise they count as not relevant."""


def treat_otherwise(evaluation: Evaluation, run: Run, qrels: Qrels, measures: Sequence[Measure]) -> Evaluation:
    """Add the means of the other treatments of documents without a judgment, unless the lists are condensed."""
    if evaluation.condensed or evaluation.counts.judged_rows == evaluation.counts.rows:
        return evaluation
    left_out = evaluate(evaluation.name, run, qrels, measures, condensed=True)
    means = {
        LEFT_OUT: {name: left_out.mean(name) for name in left_out.values},
        AS_RELEVANT: bound_measures(evaluation, run, qrels, measures).as_relevant,
    }
    return replace(evaluation, other_means=means)


def _add(qrels: Qrels, run: Run, rows: Flags, grade: int) -> Qrels:
    """Add rows of a run to judgments of the same topics, with a grade. Subtopics stay as they are."""
    new = run.keep(rows)
    counts = np.diff(qrels.offsets) + np.diff(new.offsets)
    topic = np.concatenate([np.repeat(np.arange(len(counts)), np.diff(one.offsets)) for one in (qrels, new)])
    order = np.argsort(topic, kind="stable")
    docs = concatenate_ids([qrels.docs, new.docs])[order]
    grades = np.append(qrels.grades, np.full(len(new.scores), grade))[order]
    offsets = np.append(0, np.cumsum(counts))
    return replace(sort_qrels(qrels.query_ids, offsets, docs, grades), subtopics=qrels.subtopics)


def _compute_residual(p: float, offsets: Ints, places: Ints) -> float:
    """Compute the mean over topics of the weight of unjudged ranks, and of all ranks below the last: p^depth."""
    lengths = np.diff(offsets)
    ranks = np.arange(len(places)) - np.repeat(offsets[:-1], lengths)
    weights = np.where(places < 0, (1 - p) * p ** ranks.astype(np.float64), 0.0)
    topic = np.repeat(np.arange(len(lengths)), lengths)
    return float((np.bincount(topic, weights, minlength=len(lengths)) + p**lengths).mean())
