"""What `keystone evaluate`, `plot`, `explain` and `diagnose` find, as values: comparisons, figures and explanations."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any
from warnings import warn

from keystone.indexing.errors import UserError
from keystone.runs.evaluation import evaluate as evaluation
from keystone.runs.evaluation.bounds import treat_otherwise
from keystone.runs.evaluation.compare import Difference, collect_cautions, compare_runs
from keystone.runs.evaluation.diagnosis import diagnose as diagnosis
from keystone.runs.evaluation.diagnosis.diagnose import Diagnosis
from keystone.runs.evaluation.diagnosis.wanted import list_nuggets, read_relevant_documents
from keystone.runs.evaluation.evaluate import Evaluation
from keystone.runs.evaluation.measures import DEFAULT_MEASURES, Measure, add_judged_share, parse_measures
from keystone.runs.evaluation.nuggets.files import read_nuggets
from keystone.runs.python.checks import check_path
from keystone.runs.python.files import AnyPath
from keystone.runs.python.incoming import to_qrels, to_run
from keystone.runs.report import explain as explanation
from keystone.runs.report.explain import Explanation

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def compare(runs: Mapping[str, Any], qrels: Any, measures: Sequence[Any] = ()) -> dict[str, dict[str, Difference]]:
    """Compare each later run with the first one by paired tests, as `keystone evaluate` does.

    `runs` has runs by name, each anything that `to_run` takes. Returns, by the name of each later run and by measure,
    the mean difference with its interval, effect size and p-values. Unless `measures` has a share of judged documents,
    judged@k is added. A Python warning says what the command would warn of, such as a comparison that turns on
    documents without a judgment. `UserError` for fewer than two runs.
    """
    if not isinstance(runs, Mapping) or len(runs) < 2:
        raise UserError(f"runs: found {type(runs).__name__}, expected a dictionary with two runs or more by name")
    judged, wanted = to_qrels(qrels), add_judged_share(parse_measures(map(str, measures)) or DEFAULT_MEASURES)
    own = [(str(name), to_run(run)) for name, run in runs.items()]
    found = [treat_otherwise(evaluation.evaluate(name, run, judged, wanted), run, judged, wanted) for name, run in own]
    for caution in collect_cautions(found):
        warn(caution, stacklevel=2)
    return dict(zip(list(runs)[1:], compare_runs(found), strict=True))


def plot(runs: Mapping[str, Any], qrels: Any, measures: Sequence[Any] = ("nDCG@10", "R@100")) -> "Figure":
    """Draw the means of runs with intervals, differences of topics, and recall against depth, as `keystone plot` does.

    `runs` has runs by name. Returns Matplotlib's figure, which a notebook shows and `savefig` writes.
    """
    from keystone.runs.report.plots import RECALL_DEPTHS, draw_runs

    if not isinstance(runs, Mapping) or not runs:
        raise UserError(f"runs: found {type(runs).__name__}, expected a dictionary with runs by name")
    bars = parse_measures(map(str, measures))
    depths = parse_measures(f"R@{depth}" for depth in RECALL_DEPTHS)
    return draw_runs(_evaluate(runs, qrels, list(dict.fromkeys([*bars, *depths]))), list(map(str, bars)))


def explain(directory: AnyPath, topic_id: str, doc_id: str) -> Explanation:
    """Explain the place of a document in the ranking of a topic, from a run directory; `print` shows it as lines.

    `UserError` for a folder that is no run directory, and for a topic or a document that the run lacks.
    """
    return explanation.explain(check_path(directory, "directory"), topic_id, doc_id)


def diagnose(
    directory: AnyPath, *, qrels: AnyPath | None = None, nuggets: AnyPath | None = None, relevant_from: int = 1
) -> Diagnosis:
    """Find the stage at which a finished run lost each relevant document of a file of judgments, or each nugget.

    `UserError` unless there is one of the two files, and for a folder without a finished run.
    """
    folder = check_path(directory, "directory")
    if nuggets is not None and qrels is None:
        wanted = list_nuggets(read_nuggets(check_path(nuggets, "nuggets")))
        return diagnosis.diagnose(folder, lambda _: wanted)
    if qrels is None or nuggets is not None:
        raise UserError("diagnose: expected either qrels or nuggets")
    path = check_path(qrels, "qrels")
    return diagnosis.diagnose(folder, lambda store: read_relevant_documents(path, relevant_from, store))


def _evaluate(runs: Mapping[str, Any], qrels: Any, measures: Sequence[Measure]) -> list[Evaluation]:
    judged = to_qrels(qrels)
    return [evaluation.evaluate(str(name), to_run(run), judged, measures) for name, run in runs.items()]
