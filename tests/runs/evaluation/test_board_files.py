"""The agreement of two files: judgments or leaderboards, told apart by what they hold."""

import json
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import kendalltau
from typer.testing import CliRunner

from keystone.indexing.errors import UserError
from keystone.runs.cli.main import app
from keystone.runs.evaluation.agreement import compare_boards, read_board

FIRST = {"a": 0.5, "b": 0.4, "c": 0.4, "d": 0.1}
SECOND = {"a": 0.4, "b": 0.5, "c": 0.3, "e": 0.2}


def write_json(means: dict[str, float], **around: Any) -> str:
    report = {"runs": [{"name": name, "mean": {"MAP": mean}} for name, mean in means.items()]}
    return json.dumps({**around, "result": report} if around else report)


FORMS = {
    "leaderboard": "rank,run,team,MAP,P@5,ties by Tukey\n1,x-1*,x,0.5,0.25,a\n2,y-1,y,,0.125,a\n",
    "condensed": "rank,run (condensed lists),MAP,P@5\n1,x-1,0.5,0.25\n2,y-1,,0.125\n",
    "a row for each measure": "run,measure,topics,mean,low\nx-1,MAP,2,0.5,0\nx-1,P@5,2,0.25,0\n"
    "y-1,MAP,2,,0\ny-1,P@5,2,0.125,0\n",
}


@pytest.mark.parametrize("form", FORMS)
def test_each_form_of_csv_has_the_same_means(tmp_path: Path, form: str) -> None:
    (tmp_path / "board").write_text(FORMS[form])
    found = read_board(tmp_path / "board")
    assert found is not None
    assert found["P@5"] == {"x-1": 0.25, "y-1": 0.125}
    assert found["MAP"] == pytest.approx({"x-1": 0.5, "y-1": float("nan")}, nan_ok=True)


@pytest.mark.parametrize("around", [{}, {"command": "evaluate"}])
def test_json_with_and_without_its_envelope_is_read(tmp_path: Path, around: dict[str, str]) -> None:
    (tmp_path / "board").write_text(write_json({"x": 0.5}, **around))
    assert read_board(tmp_path / "board") == {"MAP": {"x": 0.5}}


@pytest.mark.parametrize(
    "text",
    ["1 0 x 1\n", "topic,doc,grade\n1,x,1\n", '{"query_id": "1", "doc_id": "x", "label": 1}\n', "run 0 x 1\n"],
)
def test_judgments_are_no_leaderboard(tmp_path: Path, text: str) -> None:
    (tmp_path / "qrels").write_text(text)
    assert read_board(tmp_path / "qrels") is None


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("rank,run,MAP\n1,x,high\n", ":2: found 'high' as MAP of x; expected a number"),
        ("rank,run,MAP\n1,x,0.5\n1,x,0.5\n", ":3: found MAP of x again"),
        ("rank,run,MAP\n1,x\n", ":2: found 2 columns; expected 3"),
        ("rank,run,MAP\n", ": holds no mean"),
        ('{"runs": [{"name": "x"}]}', ": expected `runs` with `name` and `mean`"),
        ('{"runs": [', ": not JSON"),
    ],
)
def test_a_wrong_leaderboard_is_refused_with_its_place(tmp_path: Path, text: str, fault: str) -> None:
    (tmp_path / "board").write_text(text)
    with pytest.raises(UserError) as refused:
        read_board(tmp_path / "board")
    assert str(refused.value).startswith(f"{tmp_path / 'board'}{fault}")


def test_the_runs_of_both_leaderboards_are_compared() -> None:
    nan = float("nan")
    shares = {"judged@5": FIRST}
    (found,) = compare_boards(
        {"MAP": {**FIRST, "n": 0.2}, "P@5": {"a": 1}, **shares}, {"MAP": {**SECOND, "n": nan}, **shares}
    )
    shared = [[board[run] for run in "abc"] for board in (FIRST, SECOND)]
    assert (found.measure, found.runs) == ("MAP", 3)
    assert found.tau_b == pytest.approx(kendalltau(*shared).statistic)
    assert found.tau == pytest.approx((1 - 1) / 3)
    assert found.tau_ap == pytest.approx(
        2 * (0 + 1 / 2) / 2 - 1
    )  # b, a, c: of those above, a has none in order, c one of two


def agree(*files: Path, json_too: bool = False) -> Any:
    return CliRunner().invoke(app, ["agree", *map(str, files), *["--json"] * json_too])


def test_the_command_compares_judgments_or_leaderboards(tmp_path: Path) -> None:
    for name, text in {
        "one": "1 0 x 2\n1 0 y 0\n2 0 z 1\n1 0 only 1\n",
        "two": "1 0 x 2\n1 0 y 1\n2 0 z 1\n",
        "board": write_json(FIRST),
        "csv": "rank,run,MAP\n" + "".join(f"1,{run},{mean}\n" for run, mean in SECOND.items()),
        "other": "9 0 x 1\n",
        "alone": "rank,run,MAP\n1,z,1\n",
    }.items():
        (tmp_path / name).write_text(text)
    one, two, board, csv, other, alone = (tmp_path / name for name in ("one", "two", "board", "csv", "other", "alone"))
    told = json.loads(agree(one, two, json_too=True).stdout)["result"]
    assert (told["grades"], told["counts"]) == ([0, 1, 2], [[0, 1, 0], [0, 1, 0], [0, 0, 1]])
    assert [told["kappa"], told["kappa_linear"]] == pytest.approx([0.5, (7.5 / 9 - 5.5 / 9) / (1 - 5.5 / 9)])
    assert "3 documents of both" in agree(one, two).output
    assert "MAP      3             0.0000" in agree(board, csv).output
    assert "expected two files of one kind" in str(agree(board, one).exception)
    assert "has judged no document of" in str(agree(one, other).exception)
    assert "has no run of" in str(agree(board, alone).exception)


@pytest.mark.slow
@pytest.mark.parametrize("options", [["--sort", "P@2"], []], ids=["leaderboard", "table of paths"])
def test_each_form_that_evaluate_writes_is_read(tmp_path: Path, options: list[str]) -> None:
    for name, docs in {"a": "xy", "b": "yu", "c": "uv"}.items():
        rows = (f"1 Q0 {doc} 1 {9 - rank} {name.upper()}-1\n" for rank, doc in enumerate(docs))
        (tmp_path / name).write_text("".join(rows))
    (tmp_path / "qrels").write_text("1 0 x 1\n1 0 y 2\n")
    out = tmp_path / "out"
    call = ["evaluate", *(str(tmp_path / name) for name in "abc"), "--qrels", str(tmp_path / "qrels"), *options]
    call += ["-m", "P@2", "-m", "MAP", "-q"]
    for name, form in {"csv": ["--format", "csv"], "json": ["--json", "--out", str(out)]}.items():
        (tmp_path / name).write_text(CliRunner().invoke(app, [*call, *form]).stdout)
    boards = [read_board(tmp_path / name) for name in ("csv", "json", "out")]
    names = ["A-1", "B-1", "C-1"] if options else [str(tmp_path / name) for name in "abc"]
    assert boards[0] == boards[1] == boards[2]
    means = dict(zip(names, (1, 0.5, 0), strict=True))
    assert boards[0] == {"P@2": means, "MAP": means, "judged@2": means}
