"""Evaluation of runs with ranx's metrics. They get lists in trec_eval's order, so the numbers equal trec_eval's.

(ranx's own runs sort by score and leave the order of ties to chance.)
"""

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import RLock
from types import ModuleType
from typing import Any

import numpy as np

from keystone.indexing.errors import UserError
from keystone.indexing.io.reading import read_json_lines
from keystone.indexing.io.writing import unicode_name
from keystone.indexing.types import show_as_html
from keystone.retrieval.types import offsets_of
from keystone.runs.evaluation import cautions
from keystone.runs.evaluation.circular import find_circular_rows
from keystone.runs.evaluation.delegated import list_grades, measure_by_function, measure_by_name
from keystone.runs.evaluation.measures import DEFAULT_MEASURES, FAMILIES, LEAST_AP, Measure, is_geometric
from keystone.runs.evaluation.resample import find_bootstrap_interval
from keystone.runs.pipeline.file_names import DEPTHS
from keystone.runs.trec.arrays import Floats, Ints
from keystone.runs.trec.collections import find_qrels_file
from keystone.runs.trec.doc_ids import match_ids
from keystone.runs.trec.run_files import (
    drop_own_documents,
    read_qrels,
    read_unsorted_run,
    require_rows,
    sort_as_trec_eval,
    write_run,
)
from keystone.runs.trec.types import Qrels, Run, make_run, pair_bounds
from keystone.runs.wording import plural

LEAST_PARALLEL_TOPICS = 1_000
"""Below this number of topics, the threads of a metric would wait for each other longer than they work."""
_LOCK = RLock()
_METRICS: dict[str, ModuleType] = {}
"""The modules of ranx that `open_metrics` has imported."""


@contextmanager
def open_metrics(topics: int) -> Iterator[Any]:
    """Open `ranx.metrics` alone, for this number of topics. While it is open, an empty package stands in for `ranx`.

    Importing all of ranx takes seconds and 100 MB, for plots and data frames that no measure needs. Numba imports a
    function's module anew when it loads its compiled code, so measures are computed while it is open. Afterwards no
    trace of it is left, so a later `import ranx` is whole. Numba gets the same setting as from ranx. Fewer topics than
    `LEAST_PARALLEL_TOPICS` are measured by a single thread.
    """
    import numba

    with _LOCK:
        numba.config.THREADING_LAYER = "workqueue"
        threads = numba.get_num_threads()
        numba.set_num_threads(1 if topics < LEAST_PARALLEL_TOPICS else threads)
        try:
            with _stand_in_for_ranx():
                yield import_module("ranx.metrics")
        finally:
            numba.set_num_threads(threads)


@contextmanager
def _stand_in_for_ranx() -> Iterator[None]:
    if "ranx" in sys.modules:
        yield
        return
    if not _METRICS:
        found = find_spec("ranx")
        _METRICS["ranx"] = ModuleType("ranx")
        _METRICS["ranx"].__path__ = list(found.submodule_search_locations or []) if found else []
    sys.modules.update(_METRICS)
    try:
        yield
    finally:
        for name in [name for name in sys.modules if name == "ranx" or name.startswith("ranx.")]:
            _METRICS[name] = sys.modules.pop(name)


HEAD_RANKS = 10
"""The ranks of `Evaluation.judged_head`."""


@dataclass(frozen=True, slots=True)
class Counts:
    """The numbers of topics and rows behind the measures of a run."""

    judged_topics: int = 0
    answered_topics: int = 0
    """Judged topics for which the run has a row."""
    rows: int = 0
    """Rows of the answered topics."""
    judged_rows: int = 0
    depth: int = 0
    """The median number of rows of an answered topic."""

    def __str__(self) -> str:
        topics = f"{self.answered_topics:,} of {self.judged_topics:,} judged topics answered"
        if not self.rows:
            return topics
        return f"{topics}, {self.judged_rows:,} of {self.rows:,} rows judged, {self.judged_rows / self.rows:.1%}"


@dataclass(frozen=True, slots=True, eq=False)
class Evaluation:
    """The measures of a run: for each measure the values of all judged topics (float64[topics], by topic id).

    If a measure cannot be taken on a topic, its value there is NaN. So if no topic has a relevant document for a
    measure, all its values are NaN. `cautions` give reasons why the numbers may mislead.
    """

    name: str
    topics: tuple[str, ...]
    values: dict[str, Floats]
    counts: Counts = Counts()
    cautions: tuple[str, ...] = ()
    circular_rows: int = 0
    """The rows judged by the very grades that selected the documents of the run."""
    condensed: bool = False
    """Whether rows without a judgment were left out."""
    judged_head: float = float("nan")
    """The mean of judged@10 over answered topics; NaN if it is not known."""
    other_means: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """The means by measure for each other treatment of documents without a judgment, if they were asked for."""

    def __len__(self) -> int:
        """The number of topics."""
        return len(self.topics)

    def __iter__(self) -> Iterator[str]:
        """Yield the names of the measures."""
        return iter(self.values)

    def __getitem__(self, measure: str) -> Floats:
        """The values of all topics by a measure: float64[topics]. `KeyError` for a measure that was not taken."""
        return self.values[measure]

    def __eq__(self, other: object) -> bool:
        """Tell whether the other has the same name, topics, values and cautions. NaN equals NaN."""
        if not isinstance(other, Evaluation) or self.values.keys() != other.values.keys():
            return False
        own, others = (
            (one.name, one.topics, one.counts, one.cautions, one.circular_rows, one.condensed) for one in (self, other)
        )
        same = (np.array_equal(values, other.values[name], equal_nan=True) for name, values in self.values.items())
        return own == others and all(same)

    def _repr_html_(self) -> str:
        return show_as_html(repr(self))

    def __repr__(self) -> str:
        """Show the mean of each measure, the counts behind them, and each caution."""
        means = ", ".join(f"{measure} {self.mean(measure):.4f}" for measure in self.values)
        lists = ", condensed lists" if self.condensed else ""
        return "\n".join(
            [f"Evaluation({self.name!r}{lists}: {means})", f"  {self.counts}", *(f"  {c}" for c in self.cautions)]
        )

    def mean(self, measure: str) -> float:
        """The mean over measured topics; NaN without any. A topic that the run lacks counts 0 (trec_eval -c).

        For `gm_map`, whose values are logarithms, it is the geometric mean.
        """
        values = self.values[measure]
        measured = values[~np.isnan(values)]
        mean = float(measured.mean()) if len(measured) else float("nan")
        return math.exp(mean) if is_geometric(measure) else mean

    def interval(self, measure: str) -> tuple[float, float]:
        """The 95 % bootstrap interval of the mean; NaN for fewer than two measured topics."""
        low, high = find_bootstrap_interval(self.values[measure])
        return (math.exp(low), math.exp(high)) if is_geometric(measure) else (low, high)


def evaluate(
    name: str, run: Run, qrels: Qrels, measures: Sequence[Measure] = DEFAULT_MEASURES, condensed: bool = False
) -> Evaluation:
    """Measure a run in trec_eval's order on each judged topic. A topic without a relevant document counts 0.

    `judged@k` is the share of the first k documents that have a grade; if a topic has fewer, the share of these. If
    `condensed`, the other measures see only documents with a grade of 0 or more (Sakai, SIGIR 2007; trec_eval -J).
    `UserError` if no topic has a relevant document for any of the measures.
    """
    best = qrels.grades.max()
    measured = [measure for measure in measures if not measure.of_relevance or measure.relevant_from <= best]
    if not measured:
        grade = min(measure.relevant_from for measure in measures)
        raise UserError(f"{name}: no judged topic has a relevant document (of grade {grade} or more)")
    topics = sorted(qrels.query_ids)
    asked = [topic for topic, rows in zip(run.query_ids, np.diff(run.offsets), strict=True) if rows]
    found = cautions.caution_about_judgments(qrels, measures)
    found += cautions.caution_about_topics(name, asked, qrels.query_ids)
    qrels, run = qrels.select(topics), run.select(topics)
    found += cautions.caution_about_order(name, run)
    run = sort_as_trec_eval(run)
    _, places = match_ids(qrels.docs, pair_bounds(qrels.offsets), run.docs, pair_bounds(run.offsets))
    places = np.where(places < 0, -1, places - np.repeat(qrels.offsets[:-1], np.diff(run.offsets)))
    found += cautions.caution_about_ids(name, run, qrels, places)
    values = {str(measure): np.full(len(topics), np.nan) for measure in measures}
    for measure in measured:
        if measure.family == "judged":
            values[str(measure)] = _measure_judged_share(places, run.offsets, measure.cutoff)
    lengths = np.diff(run.offsets)
    answered = lengths[lengths > 0]
    depth = int(np.median(answered)) if len(answered) else 0
    counts = Counts(len(topics), len(answered), len(places), int(np.count_nonzero(places >= 0)), depth)
    offsets, found_places = run.offsets, places
    if condensed or qrels.grades.min() < 0:
        grades = list_grades(places, offsets, qrels)
        negative = (grades < 0) & (places >= 0)
        found += cautions.caution_about_negative_grades(name, negative, offsets, measured, condensed)
        if condensed:
            offsets, places = offsets_of(grades >= 0)[offsets], places[grades >= 0]
    head = _measure_judged_share(found_places, run.offsets, HEAD_RANKS)[lengths > 0]
    parts = list(_arrange_for_ranx(places, offsets, qrels))
    with open_metrics(len(topics)) as metrics:
        for measure in measured:
            if measure.delegated or measure.family == "judged":
                continue
            if callable(function := FAMILIES[measure.family].function):
                values[str(measure)] = measure_by_function(function, places, offsets, qrels, measure)
                continue
            function = getattr(metrics, function)
            for own, judged, ranking in parts:
                values[str(measure)][own] = function(judged, ranking, measure.cutoff, measure.relevant_from)
    if named := [measure for measure in measured if measure.delegated]:
        values |= measure_by_name(places, offsets, qrels, named)
    for measure in measured:
        if is_geometric(str(measure)):
            values[str(measure)] = np.log(np.maximum(values[str(measure)], LEAST_AP))
    relevance = [values[str(one)] for one in measured if one.of_relevance and not is_geometric(str(one))]
    if counts.judged_rows and relevance and not any(map(np.any, relevance)):
        found.append(f"{name}: every measure of relevance is 0 for every topic")
    return Evaluation(
        name, tuple(topics), values, counts, tuple(found), 0, condensed, float(head.mean()) if len(head) else np.nan
    )


def take_mean(name: str, run: Run, qrels: Qrels, measure: Measure) -> float:
    """Take the mean of one measure; NaN if no topic has a relevant document for it, or a judgment."""
    try:
        return evaluate(name, run, qrels, [measure]).mean(str(measure)) if len(qrels) else float("nan")
    except UserError:
        return float("nan")


def _arrange_for_ranx(places: Ints, offsets: Ints, qrels: Qrels) -> Iterator[tuple[Ints, Floats, Floats]]:
    """Arrange topics for ranx's metrics: topics (int64[t]), then judgments and rankings (float64[t, documents, 2]).

    Judgments are (document, grade) pairs and rankings (document, score) pairs. Documents are numbered by `places`
    (int64[rows]), their positions among the judgments of their topic; -1 marks a document without a judgment. Rows
    after a topic's last judged one are left out. Rows that fill an array have document -1 and grade 0. Topics of
    similar size share an array, so it has less than twice the rows of its topics.
    """
    counts, depths = np.diff(qrels.offsets), np.ones(len(qrels.query_ids), dtype=np.int64)
    rows = np.flatnonzero(places >= 0)
    topic = np.searchsorted(offsets, rows, side="right") - 1
    np.maximum.at(depths, topic, rows - offsets[topic] + 1)
    sizes = np.stack([np.frexp(counts)[1], np.frexp(depths)[1]], axis=1)
    for size in np.unique(sizes, axis=0):
        own = np.flatnonzero((sizes == size).all(axis=1))
        grades, ranked = _take_first_rows(qrels.offsets, own, counts), _take_first_rows(offsets, own, depths)
        judged, ranking = np.zeros((*grades.shape, 2)), np.zeros((*ranked.shape, 2))
        judged[..., 0] = np.where(grades < 0, -1, np.arange(grades.shape[1]))
        judged[..., 1] = np.where(grades < 0, 0, np.maximum(qrels.grades[grades], 0))
        ranking[..., 0] = np.where(ranked < 0, -1, places[ranked]) if len(places) else -1
        yield own, judged, ranking


def _take_first_rows(offsets: Ints, own: Ints, counts: Ints) -> Ints:
    """Take the first `counts` rows of some topics, as far as they have them, filled up with -1: int64[topics, rows]."""
    columns = np.arange(counts[own].max())
    rows = offsets[own][:, None] + columns
    return np.where(rows < np.minimum(offsets[own] + counts[own], offsets[own + 1])[:, None], rows, -1)


def _measure_judged_share(places: Ints, offsets: Ints, cutoff: int) -> Floats:
    rows = np.flatnonzero(places >= 0)
    topic = np.searchsorted(offsets, rows, side="right") - 1
    found = np.bincount(topic[rows - offsets[topic] < cutoff], minlength=len(offsets) - 1)
    return np.asarray(found / np.clip(np.diff(offsets), 1, cutoff), dtype=np.float64)


def evaluate_files(
    paths: Sequence[Path],
    qrels_path: Path,
    measures: Sequence[Measure] = DEFAULT_MEASURES,
    skip_own: bool = False,
    condensed: bool = False,
    add: Callable[[Evaluation, Run, Qrels, Sequence[Measure]], Evaluation] | None = None,
) -> list[Evaluation]:
    """Evaluate run files on one qrels file. If `skip_own`, documents with the id of their query do not count.

    If `condensed`, documents without a grade of 0 or more do not count either. Each evaluation says how many rows are
    judged by grades that selected the documents of the run. `add` adds more to the evaluation of a run. `UserError` for
    a run without a row or without a judged topic, and for files that cannot be read.
    """
    qrels_path = find_qrels_file(qrels_path)
    qrels = read_qrels(qrels_path)
    evaluations = []
    for path in paths:
        run = read_unsorted_run(path)
        check_run(path, run, qrels_path, qrels)
        run = drop_own_documents(run) if skip_own else run
        found = evaluate_file(path, run, qrels_path, qrels, measures, condensed)
        evaluations.append(add(found, run, qrels, measures) if add else found)
    return evaluations


def check_run(path: Path, run: Run, qrels_path: Path, qrels: Qrels) -> None:
    """Raise `UserError` for the run of a file that has no row or no judged topic."""
    if not set(qrels.query_ids) & set(require_rows(path, run).query_ids):
        ids = f"its topics look like {run.query_ids[0]!r}, those of the judgments like {qrels.query_ids[0]!r}"
        raise UserError(f"{path}: none of its topics is judged in {qrels_path}: {ids}")


def evaluate_file(
    path: Path, run: Run, qrels_path: Path, qrels: Qrels, measures: Sequence[Measure], condensed: bool
) -> Evaluation:
    """Measure the run of a file, and count the rows judged by grades that selected its documents."""
    evaluation = evaluate(unicode_name(path), run, qrels, measures, condensed)
    found = list(evaluation.cautions)
    sets = cautions.caution_about_sets(evaluation.name, evaluation)
    if sets and path.suffix == ".trec" and (path.parent / DEPTHS).is_file():
        depths = [record for _, record in read_json_lines(path.parent / DEPTHS)]
        cut = any(record.get("rows") != record.get("ranked") for record in depths)
        found += sets if cut or sum(record.get("ranked", 0) for record in depths) < len(run.docs) else []
    circular, grades = find_circular_rows(path, run, qrels_path)
    if circular:
        rows = f"{plural(circular, 'row')} judged by the very grades that selected its documents, see {grades}"
        found.append(f"{evaluation.name}: {rows}")
    return replace(evaluation, circular_rows=circular, cautions=tuple(found))


def compile_loops() -> None:
    """Compile the loops for reading, writing and measuring, once for all processes."""
    with TemporaryDirectory() as folder:
        run, qrels = Path(folder) / "run", Path(folder) / "qrels"
        write_run(run, make_run("set-up", {"1": [("a", 1.0)]}))
        qrels.write_text("1 0 a 1\n")
        evaluate_files([run], qrels, [*DEFAULT_MEASURES, Measure("P", 10)])


if __name__ == "__main__":
    compile_loops()
