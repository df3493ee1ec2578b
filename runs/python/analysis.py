"""The organiser's tables as data frames, by the functions of `keystone evaluate`, `pool` and `agree`.

`runs` are runs by name, each anything that `to_run` takes, and need `qrels`. They may also be evaluations of the same
topics, such as those of `score_nuggets`, without `qrels`. `measures` are as for `evaluate`. The columns are those of
the commands' CSV.
"""

from collections.abc import Iterable, Mapping, Sequence
from io import StringIO
from typing import TYPE_CHECKING, Any
from warnings import warn

from keystone.indexing.errors import UserError
from keystone.indexing.types import show_as_html
from keystone.runs.evaluation import evaluate as evaluation
from keystone.runs.evaluation.agreement import compare_boards, compare_judgments
from keystone.runs.evaluation.batch import list_teams
from keystone.runs.evaluation.bounds import bound_measures, treat_otherwise
from keystone.runs.evaluation.compare import Difference, collect_cautions, compare_all_pairs, compare_runs
from keystone.runs.evaluation.diagnosis import diagnose as diagnosis
from keystone.runs.evaluation.diagnosis.diagnose import Diagnosis
from keystone.runs.evaluation.diagnosis.wanted import list_nuggets, read_relevant_documents
from keystone.runs.evaluation.evaluate import Evaluation
from keystone.runs.evaluation.leaderboard import sort_runs
from keystone.runs.evaluation.measures import DEFAULT_MEASURES, Measure, add_judged_share, parse_measures
from keystone.runs.evaluation.nuggets.files import read_nuggets
from keystone.runs.evaluation.pooling import describe_pool, list_documents, pool_documents
from keystone.runs.python.checks import check_count, check_path
from keystone.runs.python.conversions import extend, to_qrels, to_run
from keystone.runs.python.files import AnyPath, list_measures
from keystone.runs.report import explain as explanation
from keystone.runs.report import leaderboard as rows
from keystone.runs.report.diagnosis import print_diagnosis
from keystone.runs.report.explain import Explanation
from keystone.runs.report.judging import list_kappas
from keystone.runs.trec.types import Qrels, Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame


COUNTS = {"rank", "wins", "ties", "losses"}
"""The columns of whole numbers, which tables have as texts."""


class PrintedDiagnosis(Diagnosis):
    """A diagnosis that `print` shows as `keystone diagnose` does."""

    def __str__(self) -> str:
        print_diagnosis(self, out=(out := StringIO()))
        return out.getvalue().rstrip()

    def _repr_html_(self) -> str:
        return show_as_html(str(self))


def leaderboard(
    runs: Any, qrels: Any = None, measures: Any = (), *, sort: str = "", pairs: bool = False
) -> "DataFrame":
    """Rank runs by `sort`, or by the first measure: rank, run, team, means, and the interval of that measure.

    With `pairs`, the last column has letters: runs that share one tie by randomised Tukey HSD.
    """
    found, measure = _measure(runs, qrels, measures, sort)
    compared = compare_all_pairs(found, measure) if pairs and len(found) > 1 else []
    return _frame(rows.list_leaderboard(found, {one.name: one.name for one in found}, measure, compared))


def compare_pairs(runs: Any, qrels: Any = None, measure: Any = "") -> "DataFrame":
    """Test all pairs of runs by a measure: difference, topics won, tied and lost, and p of Tukey's HSD and of t."""
    found, name = _measure(runs, qrels, [measure] if measure and qrels is not None else [], str(measure))
    return _frame(rows.list_pairs(compare_all_pairs(found, name) if len(found) > 1 else []))


def list_topics(runs: Any, qrels: Any = None, measure: Any = "") -> "DataFrame":
    """List the topics, hardest first, with the values of all runs, best run first."""
    found, name = _measure(runs, qrels, [measure] if measure and qrels is not None else [], str(measure))
    return _frame(rows.list_topic_rows(found, name))


def bound(runs: Mapping[str, Any], qrels: Any, measures: Any = ()) -> "DataFrame":
    """Measure runs with unjudged documents as not relevant and as relevant, with the residual of each RBP."""
    judged, wanted = to_qrels(qrels), list_measures(measures) or DEFAULT_MEASURES
    measured = _evaluate(runs, judged, wanted)
    return _frame(rows.list_bounds([bound_measures(one, run, judged, wanted) for one, run in measured]))


def pool(runs: Mapping[str, Any], depth: int = 100, *, without: Any = None, seed: int = 0) -> "DataFrame":
    """Pool the first documents of runs for assessors, in random order: `qid`, `docno`. `without` has judgments."""
    from pandas import DataFrame

    judged: Any = {} if without is None else to_qrels(without)
    known = {topic: judged[topic] for topic in judged}
    documents = pool_documents(_list_rankings(_read(runs), depth), depth, known, seed)
    return DataFrame([(topic, doc) for topic, own in documents.items() for doc in own], columns=["qid", "docno"])


def describe_pooled(runs: Mapping[str, Any], depth: int = 100) -> "DataFrame":
    """Describe what each run brings to a pool: team, documents, documents of no other run, and mean overlap."""
    from pandas import DataFrame

    rankings = _list_rankings(_read(runs), depth)
    teams = list_teams([*rankings], [*rankings])
    return DataFrame(describe_pool(pool_documents(rankings, depth), rankings, teams, depth).runs)


def agree(first: Any, second: Any) -> "DataFrame":
    """Compare two judges, or two leaderboards: a row with kappas, or one with taus for each measure of both.

    Leaderboards are data frames with a column `run`. `UserError` if the two have nothing in common.
    """
    from pandas import DataFrame

    if all(isinstance(one, DataFrame) and "run" in one.columns for one in (first, second)):
        boards = [one.set_index("run").select_dtypes("number").to_dict() for one in (first, second)]
        skipped = {*COUNTS, *rows.INTERVAL_HEADS}
        found = compare_boards(*({key: own for key, own in one.items() if key not in skipped} for one in boards))
        if not any(one["runs"] for one in found):
            raise UserError("agree: found no run of both by the same measure, expected the same runs")
        return DataFrame(found)
    agreement = compare_judgments(to_qrels(first), to_qrels(second))
    documents = int(agreement.counts.sum())
    if not documents:
        raise UserError("agree: found no document that both have judged, expected judgments of the same documents")
    return DataFrame([{"documents": documents, **list_kappas(agreement)}])


def _measure(runs: Any, qrels: Any, measures: Any, sort: str) -> tuple[list[Evaluation], str]:
    """Measure and sort runs; returns also the measure that sorts."""
    if qrels is None:
        found = [runs] if isinstance(runs, Evaluation) else list(runs) if isinstance(runs, Iterable) else []
        if not found or not all(isinstance(one, Evaluation) for one in found):
            raise UserError(f"runs: found {type(runs).__name__}, expected evaluations, or runs by name with qrels")
        _check_alike(found)
    else:
        wanted: Sequence[Measure] = add_judged_share(list_measures(measures) or DEFAULT_MEASURES)
        found = [one for one, _ in _evaluate(runs, to_qrels(qrels), wanted)]
        sort = str(parse_measures([sort])[0]) if sort else ""
    names = list(found[0].values)
    if sort and sort not in names:
        raise UserError(f"sort: found {sort!r}, expected one of {', '.join(names)}")
    return sort_runs(found, sort or names[0]), sort or names[0]


def _check_alike(evaluations: Sequence[Evaluation]) -> None:
    """Check that evaluations can stand in one table. `UserError` for other topics or measures, or one name twice."""
    first, names = evaluations[0], set[str]()
    for one in evaluations:
        if one.topics != first.topics:
            raise UserError(f"runs: {one.name!r} has other topics than {first.name!r}, expected the same for all")
        if one.values.keys() != first.values.keys():
            raise UserError(f"runs: {one.name!r} has other measures than {first.name!r}, expected the same for all")
        if one.name in names:
            raise UserError(f"runs: found two evaluations named {one.name!r}, expected a name of its own for each")
        names.add(one.name)


def _read(runs: Any) -> dict[str, Run]:
    if not isinstance(runs, Mapping) or not runs:
        raise UserError(f"runs: found {type(runs).__name__}, expected a dictionary with runs by name")
    return {str(name): to_run(run) for name, run in runs.items()}


def _evaluate(runs: Any, qrels: Qrels, measures: Sequence[Measure]) -> list[tuple[Evaluation, Run]]:
    """Measure runs by name; returns each with its run."""
    return [(evaluation.evaluate(name, run, qrels, measures), run) for name, run in _read(runs).items()]


def _list_rankings(runs: Mapping[str, Run], depth: int) -> dict[str, dict[str, list[str]]]:
    return {name: list_documents(run, check_count(depth, "depth")) for name, run in runs.items()}


def _frame(table: rows.Rows) -> "DataFrame":
    """Make a data frame of a table, with whole numbers in the columns of counts."""
    from pandas import DataFrame

    frame = DataFrame(table[1:], columns=table[0])
    return frame.astype({name: int for name in frame.columns if name in COUNTS})


def compare(runs: Mapping[str, Any], qrels: Any, measures: Any = ()) -> dict[str, dict[str, Difference]]:
    """Compare each later run with the first one by paired tests, as `keystone evaluate` does.

    `runs` has runs by name, each anything that `to_run` takes. Returns, by the name of each later run and by measure,
    the mean difference with its interval, effect size and p-values. Unless `measures` has a share of judged documents,
    judged@k is added. A Python warning says what the command would warn of, such as a comparison that turns on
    documents without a judgment. `UserError` for fewer than two runs.
    """
    if not isinstance(runs, Mapping) or len(runs) < 2:
        raise UserError(f"runs: found {type(runs).__name__}, expected a dictionary with two runs or more by name")
    judged, wanted = to_qrels(qrels), add_judged_share(list_measures(measures) or DEFAULT_MEASURES)
    found = [treat_otherwise(one, run, judged, wanted) for one, run in _evaluate(runs, judged, wanted)]
    for caution in collect_cautions(found):
        warn(caution, stacklevel=2)
    return dict(zip(list(runs)[1:], compare_runs(found), strict=True))


def plot(runs: Mapping[str, Any], qrels: Any, measures: Any = ("nDCG@10", "R@100")) -> "Figure":
    """Draw the means of runs with intervals, differences of topics, and recall against depth, as `keystone plot` does.

    `runs` has runs by name. Returns Matplotlib's figure, which a notebook shows and `savefig` writes.
    """
    from keystone.runs.report.plots import RECALL_DEPTHS, draw_runs

    bars = list_measures(measures)
    depths = parse_measures(f"R@{depth}" for depth in RECALL_DEPTHS)
    measured = _evaluate(runs, to_qrels(qrels), list(dict.fromkeys([*bars, *depths])))
    return draw_runs([one for one, _ in measured], list(map(str, bars)))


def explain(directory: AnyPath, topic_id: str, doc_id: str) -> Explanation:
    """Explain the place of a document in the ranking of a topic, from a run directory; `print` shows it as lines.

    `UserError` for a folder that is no run directory, and for a topic or a document that the run lacks.
    """
    return explanation.explain(check_path(directory, "directory"), topic_id, doc_id)


def diagnose(
    directory: AnyPath, *, qrels: AnyPath | None = None, nuggets: AnyPath | None = None, relevant_from: int = 1
) -> Diagnosis:
    """Find the stage at which a finished run lost each relevant document of a file of judgments, or each nugget.

    `print` shows the result as the command does.
    `UserError` unless there is one of the two files, and for a folder without a finished run.
    """
    folder = check_path(directory, "directory")
    if nuggets is not None and qrels is None:
        wanted = list_nuggets(read_nuggets(check_path(nuggets, "nuggets")))
        found = diagnosis.diagnose(folder, lambda _: wanted)
    elif qrels is None or nuggets is not None:
        raise UserError("diagnose: expected either qrels or nuggets")
    else:
        path = check_path(qrels, "qrels")
        found = diagnosis.diagnose(folder, lambda store: read_relevant_documents(path, relevant_from, store))
    return extend(found, PrintedDiagnosis)
