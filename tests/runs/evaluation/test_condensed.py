"""Condensed lists: what is left out, the mark in each output, and warnings about negative grades."""

from dataclasses import replace
from pathlib import Path

import orjson
import pytest

from keystone.runs.evaluation.compare import build_report
from keystone.runs.evaluation.evaluate import Evaluation, evaluate
from keystone.runs.evaluation.measures import parse_measure
from keystone.runs.report.tables import TABLES
from keystone.runs.report.terminal import print_differences, print_evaluations
from keystone.runs.trec.types import make_qrels, make_run
from tests.support.runs.command_line import keystone

MEASURES = tuple(map(parse_measure, ["MRR", "Success@2", "judged@2"]))


def evaluate_ranking(*docs: str, condensed: bool, **grades: int) -> Evaluation:
    run = make_run("run", {"1": [(doc, -float(place)) for place, doc in enumerate(docs)], "2": [("y", 1.0)]})
    return evaluate("run", run, make_qrels({"1": grades, "2": {"a": 1}}), MEASURES, condensed)


def test_condensed_lists_leave_out_documents_without_a_judgment() -> None:
    plain, condensed = (evaluate_ranking("x", "a", "b", condensed=c, a=0, b=1) for c in (False, True))
    assert [plain.values[m][0] for m in plain.values] == pytest.approx([1 / 3, 0, 0.5])
    assert [condensed.values[m][0] for m in plain.values] == pytest.approx([1 / 2, 1, 0.5])
    assert condensed.counts == plain.counts
    assert condensed.values["MRR"][1] == 0


def test_condensed_lists_leave_out_negative_grades_as_trec_eval_does() -> None:
    pytrec_eval = pytest.importorskip("pytrec_eval")
    grades = {"a": -1, "b": 0, "c": 1, "d": -2, "e": 2}
    docs, names = ["a", "x", "b", "d", "c", "e"], ["nDCG@3", "MAP", "MRR", "P@3", "AP(judged_only=True)"]
    run, qrels = make_run("run", {"1": [(doc, -float(i)) for i, doc in enumerate(docs)]}), make_qrels({"1": grades})
    found = evaluate("run", run, qrels, list(map(parse_measure, names)), condensed=True)
    asked = {"ndcg_cut.3", "map", "recip_rank", "P.3"}
    of_trec_eval = pytrec_eval.RelevanceEvaluator({"1": grades}, asked, judged_docs_only_flag=True)
    (expected,) = of_trec_eval.evaluate({"1": {doc: -float(i) for i, doc in enumerate(docs)}}).values()
    assert [own[0] for own in found.values.values()] == pytest.approx(
        [expected[name] for name in ("ndcg_cut_3", "map", "recip_rank", "P_3", "map")]
    )


@pytest.mark.parametrize(
    ("docs", "condensed", "expected"),
    [
        pytest.param(
            ["a", "b", "c"],
            True,
            [
                "run: 2 rows with a negative grade left out of condensed lists, as by trec_eval -J",
                "run: judged@2 counts 1 row with a negative grade as judged",
            ],
            id="condensed lists",
        ),
        pytest.param(
            ["a", "b", "c"], False, ["run: judged@2 counts 1 row with a negative grade as judged"], id="full lists"
        ),
        pytest.param(["b", "x", "a"], False, [], id="below the cutoff"),
        pytest.param(["b", "x"], True, [], id="no such row"),
    ],
)
def test_negative_grades_get_a_warning_where_they_matter(docs: list[str], condensed: bool, expected: list[str]) -> None:
    found = evaluate_ranking(*docs, condensed=condensed, a=-1, b=1, c=-2)
    assert [caution for caution in found.cautions if "negative" in caution] == expected


def test_every_output_names_condensed_lists(capsys: pytest.CaptureFixture[str]) -> None:
    found = evaluate_ranking("x", "b", condensed=True, b=1)
    pair = [found, replace(found, name="other")]
    plain = [evaluate_ranking("x", "b", condensed=False, b=1)]
    marked = {
        "markdown": "| run (condensed lists) | MRR |",
        "latex": "run (condensed lists) & MRR",
        "csv": ",condensed\n",
    }
    for form, text in marked.items():
        assert text in TABLES[form](pair)
    assert all(row.endswith(",true") for row in TABLES["csv"](pair).splitlines()[1:])
    assert all(row.endswith(",false") for row in TABLES["csv"](plain).splitlines()[1:])
    assert [run["condensed"] for report in (pair, plain) for run in build_report(report)["runs"]] == [True, True, False]
    assert repr(found).startswith("Evaluation('run', condensed lists: MRR 0.5000")
    print_evaluations(pair)
    print_differences(pair)
    printed = capsys.readouterr().out
    assert printed.startswith("run (condensed lists)")
    assert "other against run (condensed lists):" in printed
    print_evaluations(plain)
    print(*(TABLES[form](plain) for form in ("markdown", "latex")), repr(plain[0]))
    assert "condensed" not in capsys.readouterr().out


@pytest.mark.slow
def test_the_command_marks_condensed_lists_and_plot_refuses_two_files_of_judgments(tmp_path: Path) -> None:
    run, one, other = (tmp_path / name for name in ("run", "one", "other"))
    run.write_text("1 Q0 a 1 1 t\n")
    one.write_text("1 0 a 1\n")
    other.write_text("1 0 a 0\n")
    done = keystone("evaluate", run, "--qrels", one, "--condensed", "-m", "MRR", "--out", tmp_path / "o.json")
    assert done.stdout.startswith("run (condensed lists)")
    assert orjson.loads((tmp_path / "o.json").read_bytes())["runs"][0]["condensed"] is True
    for again in (["--qrels", other], [f"--qrels={other}"]):
        refused = keystone("plot", run, "--qrels", one, *again, "-m", "MRR")
        assert (refused.returncode, refused.stdout) == (1, "")
        assert refused.stderr == "error: --qrels: found more than once; expected one file of judgments\n"
