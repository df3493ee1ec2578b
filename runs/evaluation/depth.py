"""Calibration of probabilities on judged topics, and its test on other topics."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from keystone.fusion.depth import (
    calibrate,
    cut_by_f1,
    describe_by_system,
    describe_rows,
    fit_calibration,
    measure_reliability,
    measure_top_error,
    name_features,
)
from keystone.indexing.errors import UserError
from keystone.indexing.types import Progress, silent
from keystone.runs.config.read import read_config
from keystone.runs.config.sections import bound_chosen_rows
from keystone.runs.evaluation.tune import RANKINGS_ALONE, draw_folds, perform_in_memory
from keystone.runs.pipeline.job import open_job
from keystone.runs.pipeline.stages.narrative import NARRATIVE_FILE
from keystone.runs.pipeline.stages.search import list_system_files
from keystone.runs.pipeline.table import NARRATIVE_STAGES
from keystone.runs.pipeline.values import convert_to_run
from keystone.runs.trec.arrays import Flags, Floats
from keystone.runs.trec.run_files import drop_own_documents, read_qrels, read_run
from keystone.runs.trec.types import Run

FIXED_DEPTHS = (5, 10, 20, 50, 100)
"""The fixed depths with which a chosen depth is compared."""


@dataclass(frozen=True, slots=True)
class JudgedTopic:
    """The scores of a topic's ranking (float64[rows]), which of its rows are relevant, and the number of relevant ones.

    `by_system` describes the rows by the list of each system, if there are several.
    """

    scores: Floats
    relevant: Flags
    all_relevant: int
    by_system: tuple[Floats, ...] = ()

    def describe(self) -> Floats:
        """Describe the rows: float64[rows, features]."""
        return np.hstack([describe_rows(self.scores), *self.by_system])

    def measure_f1(self, rows: int) -> float:
        """The set F1 of the first rows."""
        kept = self.relevant[:rows]
        return 2 * int(kept.sum()) / (len(kept) + self.all_relevant)


def list_judged_topics(
    ranking: Path | Run, qrels: Path, relevant_from: int = 1, skip_own: bool = False, systems: Sequence[Run] = ()
) -> list[JudgedTopic]:
    """List the topics of a ranking that have a relevant document. `UserError` if none has, or none of them is ranked.

    `systems` are the runs of several systems, with a list for each topic. A single run would tell nothing more.
    """
    judged, run = read_qrels(qrels), read_run(ranking) if isinstance(ranking, Path) else ranking
    if skip_own:
        run, systems = drop_own_documents(run), [drop_own_documents(one) for one in systems]
    hits, found, lists = run.list_hits(), [], [one.list_hits() for one in systems]
    relevant_of: dict[str, set[str]] = {}
    for topic, doc_id, _ in judged.list_rows(relevant_from):
        relevant_of.setdefault(topic, set()).add(doc_id)
    for topic, good in relevant_of.items():
        if hits.get(topic):
            docs, scores = zip(*hits[topic], strict=True)
            by_system = tuple(describe_by_system(docs, own.get(topic, [])) for own in lists)
            relevant = np.array([doc in good for doc in docs])
            found.append(JudgedTopic(np.array(scores), relevant, len(good), by_system))
    if not found:
        raise UserError(f"{qrels}: no ranked topic has a document of grade {relevant_from} or more")
    if not any(one.relevant.any() for one in found):
        ranked, (_, relevant_doc, _) = run.docs[:1].decode_ids()[0], next(judged.list_rows(relevant_from))
        ids = f"its ids look like {ranked!r}, those of the judgments like {relevant_doc!r}"
        raise UserError(f"{qrels}: judges no document of the ranking relevant; {ids}")
    return found


def cross_calibrate(
    topics: Sequence[JudgedTopic], systems: Sequence[str] = (), folds: int = 5, seed: int = 0
) -> dict[str, Any]:
    """Fit a calibration on all topics, and test each fold with a fit on the other folds.

    Returns what its file holds, which `fusion.depth.calibration` names. It reads the lists of `systems`. `held_out` is
    about topics that had no part in the fit: `set_f1` is their mean set F1 if the probabilities cut them, `rows` the
    mean number of rows that are then kept, and `fixed_set_f1` has the mean set F1 of all topics at `FIXED_DEPTHS`. The
    top error is the error on rows that have a chance; see `measure_top_error`. `UserError` if there are fewer topics
    than folds.
    """
    features = [one.describe() for one in topics]
    fold = draw_folds(len(topics), folds, seed)

    def fit(chosen: Flags) -> Floats:
        places = np.flatnonzero(chosen).tolist()
        return fit_calibration(
            np.concatenate([features[i] for i in places]), np.concatenate([topics[i].relevant for i in places])
        )

    weights = [fit(fold != part) for part in range(folds)]
    probabilities = [
        calibrate(one.scores, weights[part], one.by_system) for one, part in zip(topics, fold.tolist(), strict=True)
    ]
    all_rows = np.concatenate(probabilities), np.concatenate([one.relevant for one in topics])
    cuts = [cut_by_f1(p) for p in probabilities]
    f1 = [one.measure_f1(cut) for one, cut in zip(topics, cuts, strict=True)]
    found = measure_reliability(*all_rows)
    curve = zip(found.rows.tolist(), found.probability.tolist(), found.relevant.tolist(), strict=True)
    return {
        "features": name_features(systems),
        "weights": fit(fold >= 0).tolist(),
        "topics": len(topics),
        "held_out": {
            "set_f1": float(np.mean(f1)),
            "rows": float(np.mean(cuts)),
            "fixed_set_f1": {
                str(depth): float(np.mean([one.measure_f1(depth) for one in topics])) for depth in FIXED_DEPTHS
            },
            "calibration_error": found.error,
            "top_calibration_error": measure_top_error(*all_rows),
            "reliability": [{"rows": n, "probability": p, "relevant": share} for n, p, share in curve],
        },
    }


def calibrate_run(
    config: Path,
    overrides: list[str],
    qrels: Path,
    relevant_from: int = 1,
    folds: int = 5,
    skip_own: bool = False,
    threads: int = 1,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Rank the narratives of a configuration and fit a calibration to judgments; returns what its file holds."""
    given = read_config(config, overrides)
    depth = bound_chosen_rows(given.retrieval.depth) if given.fusion.choice is None else given.fusion.depth
    settings = read_config(config, [*overrides, f"fusion.depth={depth}", *RANKINGS_ALONE])
    values = perform_in_memory(open_job(settings, threads, progress), NARRATIVE_STAGES)
    several = len(settings.list_systems()) > 1 and settings.searches_narratives
    files = [NARRATIVE_FILE, *(list_system_files(settings) if several else ())]
    run, *systems = (convert_to_run(values.job.store, values.get(file), settings.run_id) for file in files)
    topics = list_judged_topics(run, qrels, relevant_from, skip_own, systems)
    return cross_calibrate(topics, settings.list_systems() if several else (), folds)
