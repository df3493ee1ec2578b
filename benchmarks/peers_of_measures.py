"""The values of measures by other tools: `ir_measures`, and `pytrec_eval`, which holds trec_eval's own code."""

import math
from collections.abc import Mapping, Sequence

import ir_measures
import numpy as np
import pytrec_eval

from keystone.runs.evaluation.measures import FAMILIES, Measure

Grades = Mapping[str, Mapping[str, int]]
Scores = Mapping[str, Mapping[str, float]]
Values = Mapping[str, Mapping[str, float | None]]
"""The values of each topic, and their means, by measure. None: the measure cannot be taken on the topic."""

MEAN = "mean"
"""The key of the means over topics."""
PEERS = {
    "ndcg": ("nDCG", "ndcg"),
    "recall": ("R", "recall"),
    "precision": ("P", "P"),
    "average_precision": ("AP", "map"),
    "reciprocal_rank": ("RR", "recip_rank"),
    "": ("Judged", ""),
}
"""The names in `ir_measures` and in trec_eval of the functions that `FAMILIES` names."""


def measure_by_ir_measures(scores: Scores, qrels: Grades, measures: Sequence[Measure]) -> Values:
    """Take measures by `ir_measures`. Places from the end stand for scores: its parts order ties differently."""
    asked = {
        str(m): m.delegated or str(m).replace(m.family, PEERS[str(FAMILIES[m.family].function)][0], 1) for m in measures
    }
    parsed = {name: ir_measures.parse_measure(peer) for name, peer in asked.items()}
    ranked = {
        topic: {doc: -float(n) for n, doc in enumerate(sort_documents(own), -len(own))} for topic, own in scores.items()
    }
    found = ir_measures.evaluator(list(parsed.values()), qrels).calc(ranked)
    by_topic = {(one.query_id, one.measure): float(one.value) for one in found.per_query}
    topics = {topic: {name: by_topic.get((topic, measure)) for name, measure in parsed.items()} for topic in qrels}
    return {**topics, MEAN: {name: float(found.aggregated[measure]) for name, measure in parsed.items()}}


def sort_documents(scores: Mapping[str, float]) -> list[str]:
    """Sort documents as trec_eval does: score down in float32, then document down."""
    return sorted(scores, key=lambda doc: (np.float32(scores[doc]), doc), reverse=True)


def measure_by_trec_eval(scores: Scores, qrels: Grades, measures: Sequence[Measure]) -> Values:
    """Take those measures that trec_eval has, with its own code. A topic that the run lacks counts 0 (trec_eval -c)."""
    values: dict[str, dict[str, float | None]] = {topic: {} for topic in (*qrels, MEAN)}
    for level in {measure.relevant_from for measure in measures}:
        names = {str(one): name for one in measures if one.relevant_from == level and (name := name_in_trec_eval(one))}
        found = pytrec_eval.RelevanceEvaluator(qrels, set(names.values()), relevance_level=level).evaluate(scores)
        for measure, name in names.items():
            key = name.replace(".", "_")
            own = {topic: found[topic][key] if topic in found else 0.0 for topic in qrels}
            for topic, value in (own | {MEAN: math.fsum(own.values()) / len(own)}).items():
                values[topic][measure] = value
    return values


def name_in_trec_eval(measure: Measure) -> str:
    """Name a measure as `pytrec_eval` reads it; empty if trec_eval does not have it."""
    name = PEERS[str(FAMILIES[measure.family].function)][1]
    if not measure.cutoff or not name or name == "recip_rank":
        return "" if measure.cutoff else name
    return f"{name}{'_cut' if name in ('ndcg', 'map') else ''}.{measure.cutoff}"
