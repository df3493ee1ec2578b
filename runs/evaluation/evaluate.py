"""Evaluation with ranx, on runs brought into trec_eval's order first, so that the numbers are trec_eval's.

ranx's own runs are ordered by score, ties left to chance; its metrics are given lists that are in order already.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from indexing.errors import UserError
from indexing.io.files import unicode_name
from runs.evaluation import cautions
from runs.evaluation.measures import DEFAULT, FAMILIES, Measure
from runs.trec.doc_ids import match_ids
from runs.trec.run_files import drop_own_documents, read_qrels, read_unsorted_run, sort_as_trec_eval, write_run
from runs.trec.types import Qrels, Run, make_run, pair_bounds

CONSTANT = 10 * np.finfo(np.float64).eps
"""Differences whose standard error is below this share of them are constant but for rounding, as in R's t.test."""


@dataclass(frozen=True, slots=True)
class Counts:
    """What the numbers of a run rest on."""

    judged_topics: int = 0
    answered_topics: int = 0
    """Judged topics for which the run has a row."""
    rows: int = 0
    """Of the answered topics."""
    judged_rows: int = 0
    depth: int = 0
    """The median number of rows of an answered topic."""

    def __str__(self) -> str:
        topics = f"{self.answered_topics:,} of {self.judged_topics:,} judged topics answered"
        share = f", {self.judged_rows / self.rows:.1%}" if self.rows else ""
        return f"{topics}, {self.judged_rows:,} of {self.rows:,} rows judged{share}"


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The measures of a run: for each the values of all judged topics (float64[topics], in order of topic id).

    A measure for which no topic has a relevant document is NaN throughout. `cautions` say why the numbers may mean
    less than they seem to.
    """

    name: str
    topics: tuple[str, ...]
    values: dict[str, NDArray[np.float64]]
    counts: Counts = Counts()
    cautions: tuple[str, ...] = ()

    def mean(self, measure: str) -> float:
        """The mean over all judged topics; one that the run lacks counts 0 (trec_eval -c). NaN if not measured."""
        return float(self.values[measure].mean())


def evaluate(name: str, run: Run, qrels: Qrels, measures: Sequence[Measure] = DEFAULT) -> Evaluation:
    """Measure a run, in trec_eval's order, on every judged topic; one without a relevant document counts 0.

    `judged@k` is the share of the first k documents, or of fewer if the topic has fewer, that have any grade.
    `UserError` if no topic has a relevant document for any of the measures.
    """
    from ranx import metrics

    best = qrels.grades.max()
    measured = [measure for measure in measures if measure.family == "judged" or measure.relevant_from <= best]
    if not measured:
        grade = min(measure.relevant_from for measure in measures)
        raise UserError(f"{name}: no judged topic has a relevant document (of grade {grade} or more)")
    topics = sorted(qrels.query_ids)
    said = [*cautions.of_judgments(qrels, measures), *cautions.of_topics(name, run, qrels)]
    qrels, run = qrels.select(topics), run.select(topics)
    said += cautions.of_order(name, run)
    run = sort_as_trec_eval(run)
    _, places = match_ids(qrels.docs, pair_bounds(qrels.offsets), run.docs, pair_bounds(run.offsets))
    places = np.where(places < 0, -1, places - np.repeat(qrels.offsets[:-1], np.diff(run.offsets)))
    said += cautions.of_rows(name, run, qrels, places)
    parts = list(_as_ranx(places, run.offsets, qrels))
    values = {str(measure): np.full(len(topics), np.nan) for measure in measures}
    for measure in measured:
        if measure.family == "judged":
            values[str(measure)] = _judged(places, run.offsets, measure.cutoff)
            continue
        function = getattr(metrics, FAMILIES[measure.family])
        for own, judged, ranking in parts:
            values[str(measure)][own] = function(judged, ranking, measure.cutoff, measure.relevant_from)
    relevance = [values[str(measure)] for measure in measured if measure.family != "judged"]
    counts = _counts(run, places)
    if counts.judged_rows and relevance and not any(map(np.any, relevance)):
        said.append(f"{name}: every measure of relevance is 0 for every topic")
    return Evaluation(name, tuple(topics), values, counts, tuple(said))


def _counts(run: Run, places: NDArray[np.int64]) -> Counts:
    lengths = np.diff(run.offsets)
    answered = lengths[lengths > 0]
    depth = int(np.median(answered)) if len(answered) else 0
    return Counts(len(lengths), len(answered), len(places), int(np.count_nonzero(places >= 0)), depth)


def _as_ranx(
    places: NDArray[np.int64], offsets: NDArray[np.int64], qrels: Qrels
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]]:
    """What ranx measures: topics (int64[t]), (document, grade) and (document, score), float64[t, documents, 2].

    `places` (int64[rows], -1 for no judgment) are the positions of documents among the judgments of their topic, by
    which ranx knows them; rows behind a topic's last judged one are left out. Rows that fill an array up are document
    -1 of grade 0. Topics of like size go together, so that an array has less than twice the rows of its topics.
    """
    counts, depths = np.diff(qrels.offsets), np.ones(len(qrels.query_ids), dtype=np.int64)
    rows = np.flatnonzero(places >= 0)
    topic = np.searchsorted(offsets, rows, side="right") - 1
    np.maximum.at(depths, topic, rows - offsets[topic] + 1)
    sizes = np.stack([np.frexp(counts)[1], np.frexp(depths)[1]], axis=1)
    for size in np.unique(sizes, axis=0):
        own = np.flatnonzero((sizes == size).all(axis=1))
        grades, ranked = _first_rows(qrels.offsets, own, counts), _first_rows(offsets, own, depths)
        judged, ranking = np.zeros((*grades.shape, 2)), np.zeros((*ranked.shape, 2))
        judged[..., 0] = np.where(grades < 0, -1, np.arange(grades.shape[1]))
        judged[..., 1] = np.where(grades < 0, 0, np.maximum(qrels.grades[grades], 0))
        ranking[..., 0] = np.where(ranked < 0, -1, places[ranked]) if len(places) else -1
        yield own, judged, ranking


def _first_rows(offsets: NDArray[np.int64], own: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """The first rows of some topics, as many as `counts` says and the topic has; -1 fills up: int64[topics, rows]."""
    columns = np.arange(counts[own].max())
    rows = offsets[own][:, None] + columns
    return np.where(rows < np.minimum(offsets[own] + counts[own], offsets[own + 1])[:, None], rows, -1)


def _judged(places: NDArray[np.int64], offsets: NDArray[np.int64], cutoff: int) -> NDArray[np.float64]:
    rows = np.flatnonzero(places >= 0)
    topic = np.searchsorted(offsets, rows, side="right") - 1
    found = np.bincount(topic[rows - offsets[topic] < cutoff], minlength=len(offsets) - 1)
    return np.asarray(found / np.clip(np.diff(offsets), 1, cutoff), dtype=np.float64)


def evaluate_files(
    paths: Sequence[Path], qrels_path: Path, measures: Sequence[Measure] = DEFAULT, skip_own: bool = False
) -> list[Evaluation]:
    """Evaluate run files on one qrels file, if asked without the documents that are their own queries.

    `UserError` for a run that has no judged topic.
    """
    qrels = read_qrels(qrels_path)
    evaluations = []
    for path in paths:
        run = read_unsorted_run(path)
        if not run.query_ids:
            raise UserError(f"{path}: holds no row, expected a run")
        if not set(qrels.query_ids) & set(run.query_ids):
            ids = f"its topics are such as {run.query_ids[0]!r}, those of the judgments {qrels.query_ids[0]!r}"
            raise UserError(f"{path}: none of its topics is judged in {qrels_path}: {ids}")
        evaluations.append(evaluate(unicode_name(path), drop_own_documents(run) if skip_own else run, qrels, measures))
    return evaluations


def paired_test(first: Evaluation, second: Evaluation) -> dict[str, float]:
    """The two-sided p-value of Student's paired t-test for every measure; 1 where no topic differs.

    NaN where the test says nothing: for one topic, a measure that is NaN, and topics that all differ by the same.
    """
    return {measure: _p_value(values - second.values[measure]) for measure, values in first.values.items()}


def _p_value(differences: NDArray[np.float64]) -> float:
    from scipy.stats import t

    topics = len(differences)
    if topics < 2 or np.isnan(differences).any():
        return float("nan")
    if not differences.any():
        return 1.0
    error = differences.std(ddof=1) / np.sqrt(topics)
    if error < CONSTANT * np.abs(differences).max():
        return float("nan")
    return float(2 * t.sf(abs(differences.mean()) / error, topics - 1))


def all_cautions(evaluations: Sequence[Evaluation]) -> list[str]:
    """The cautions of all runs, each once, and those of comparing the later ones with the first."""
    first, *others = evaluations
    found = [caution for evaluation in evaluations for caution in evaluation.cautions]
    found += _of_depth(evaluations)
    for other in others:
        between = f"{first.name} and {other.name}"
        p = paired_test(first, other)
        if all(np.array_equal(first.values[m], other.values[m], equal_nan=True) for m in first.values):
            found.append(f"{between}: the same numbers for every topic")
        elif len(first.topics) < 2:
            found.append(f"{between}: no paired test, as one topic is judged")
        elif untold := [m for m in p if np.isnan(p[m]) and not np.isnan(first.values[m]).any()]:
            found.append(f"{between}: no paired test of {', '.join(untold)}, as all topics differ by the same amount")
    return list(dict.fromkeys(found))


def _of_depth(evaluations: Sequence[Evaluation]) -> list[str]:
    """Measures that look deeper than the shallowest of rankings whose depths differ by more than a tenth."""
    shallow = min(evaluations, key=lambda evaluation: evaluation.counts.depth)
    deep = max(evaluations, key=lambda evaluation: evaluation.counts.depth)
    least, most = shallow.counts.depth, deep.counts.depth
    measures = [name for name in shallow.values if not name.startswith("judged")]
    unlike = [name for name in measures if int(name.partition("@")[2] or most) > least]
    if least >= 0.9 * most or not unlike:
        return []
    depths = f"{shallow.name} has {least:,} rows a topic, {deep.name} {most:,}"
    return [f"rankings of unequal depth: {depths}; not comparable by {', '.join(unlike)}"]


def as_json(evaluations: Sequence[Evaluation]) -> dict[str, Any]:
    """Means, counts and values by topic, the paired test of every later run against the first, and all cautions.

    NaN stands for a number that there is not; JSON has null for it.
    """
    return {
        "runs": [
            {
                "name": evaluation.name,
                "mean": {measure: evaluation.mean(measure) for measure in evaluation.values},
                "counts": asdict(evaluation.counts),
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
        "warnings": all_cautions(evaluations),
    }


def _set_up() -> None:
    """Compile what reading, writing and measuring need, once for all processes."""
    with TemporaryDirectory() as folder:
        run, qrels = Path(folder) / "run", Path(folder) / "qrels"
        write_run(run, make_run("set-up", {"1": [("a", 1.0)]}))
        qrels.write_text("1 0 a 1\n")
        evaluate_files([run], qrels, [*DEFAULT, Measure("P", 10)])


if __name__ == "__main__":
    _set_up()
