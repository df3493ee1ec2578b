"""Agreement of judges and of leaderboards: known figures, twins of scikit-learn and SciPy, and all forms of files."""

import gzip
import json
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau
from sklearn.metrics import cohen_kappa_score, confusion_matrix  # type: ignore[import-untyped]
from typer.testing import CliRunner

from keystone.indexing.errors import UserError
from keystone.runs.cli.main import app
from keystone.runs.evaluation.agreement import (
    Agreement,
    compare_boards,
    compare_judgments,
    compute_plain_tau,
    compute_tau,
    compute_tau_ap,
    count_labels,
    find_tau_interval,
    rank_means,
    read_board,
)
from keystone.runs.trec.run_files import read_qrels
from keystone.runs.trec.types import make_qrels
from tests.support.places import SHARED


def test_kappa_of_a_known_table_of_three_labels() -> None:
    counts = np.array([[1188, 798, 416], [240, 822, 595], [146, 486, 2002]])
    assert Agreement((0, 1, 2), counts).compute_kappa() == pytest.approx(0.3936, abs=5e-5)
    assert np.trace(counts) / counts.sum() == pytest.approx(0.5994, abs=5e-5)


def test_kappa_is_missing_if_chance_alone_agrees_or_nothing_was_judged() -> None:
    assert np.isnan(Agreement((0,), np.array([[5]])).compute_kappa())
    assert np.isnan(Agreement((0, 1), np.zeros((2, 2), dtype=np.int64)).compute_kappa())


def test_tau_leaves_out_a_system_that_one_judge_could_not_measure() -> None:
    assert compute_tau([1, 2, np.nan, 3], [1, 3, 9, 2]) == pytest.approx(compute_tau([1, 2, 3], [1, 3, 2]))


def test_means_that_differ_by_the_rounding_of_a_sum_are_tied() -> None:
    means, rounded = [0.1 + 0.2, 0.3, 0.5], [1.0, 2.0, 3.0]
    found = [compute(rounded, means) for compute in (compute_plain_tau, compute_tau, compute_tau_ap)]
    assert found == [compute(rounded, [0.3, 0.3, 0.5]) for compute in (compute_plain_tau, compute_tau, compute_tau_ap)]


def test_without_ties_plain_tau_is_that_of_scipy() -> None:
    draw = np.random.default_rng(5)
    for _ in range(20):
        first, second = draw.random(12), draw.random(12)
        assert compute_plain_tau(first, second) == pytest.approx(kendalltau(first, second).statistic, abs=1e-12)


@pytest.mark.parametrize(
    ("predicted", "expected"),
    [
        pytest.param("BACED", 0.375, id="two swaps"),
        pytest.param("ABCED", 0.875, id="a swap at the end"),
        pytest.param("BACDE", 0.5, id="a swap at the top"),
        pytest.param("ABCDE", 1.0, id="the same order"),
        pytest.param("EDCBA", -1.0, id="the opposite order"),
    ],
)
def test_tau_ap_of_known_orders_against_abcde(predicted: str, expected: float) -> None:
    reference = [-"ABCDE".index(name) for name in "ABCDE"]
    own = [-predicted.index(name) for name in "ABCDE"]
    assert compute_tau_ap(reference, own) == pytest.approx(expected, abs=1e-12)


def test_tau_ap_with_ties_in_both_directions() -> None:
    first, second = [5, 4, 4, 2, 1], [4, 5, 3, 3, 2]
    both = (compute_tau_ap(first, second) + compute_tau_ap(second, first)) / 2
    assert both == pytest.approx(0.291667, abs=5e-7)


@pytest.mark.parametrize(
    ("means", "ranks"),
    [
        pytest.param([0.5, 0.3, np.nan], [1, 2, 3], id="one without a mean"),
        pytest.param([0.5, 0.5, 0.3], [1, 1, 3], id="a tie"),
        pytest.param([0.85, 0.8500000000000001, 0.9], [2, 2, 1], id="a tie but for the rounding of a sum"),
        pytest.param([np.nan, np.nan], [1, 1], id="none with a mean"),
    ],
)
def test_a_run_without_a_mean_is_ranked_last(means: list[float], ranks: list[int]) -> None:
    assert rank_means(means) == ranks


def test_a_system_without_a_score_is_left_out_of_tau_ap() -> None:
    assert np.isnan(compute_tau_ap([np.nan] * 3, [0.1, 0.2, 0.3]))
    assert compute_tau_ap([0.1, np.nan, 0.3], [0.1, 0.2, 0.3]) == 1


def test_equal_systems_have_no_tau_ap() -> None:
    assert np.isnan(compute_tau_ap([1, 1], [1, 1]))
    assert np.isnan(compute_tau_ap([1], [1]))


@pytest.mark.slow
def test_the_interval_of_tau_contains_it_and_is_1_for_the_same_judge() -> None:
    draw = np.random.default_rng(8)
    first = np.linspace(0.2, 0.6, 6)[:, None] + draw.normal(0, 0.1, (6, 40))
    second = first + draw.normal(0, 0.1, (6, 40))
    low, high = find_tau_interval(first, second)
    assert low <= compute_tau(first.mean(axis=1), second.mean(axis=1)) <= high
    assert find_tau_interval(first, first) == pytest.approx((1, 1))


MATERIAL = SHARED / "trec-rag-material"
JUDGES = ("codex", "ministral", "qwen3.5")
GRADES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=40)


@given(GRADES)
def test_kappa_equals_that_of_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    first, second = np.array(pairs).T
    agreement = count_labels(first, second)
    found = [
        (agreement.compute_kappa(), first, second, None),
        (agreement.compute_kappa("linear"), first, second, "linear"),
        (agreement.compute_kappa("quadratic"), first, second, "quadratic"),
        (agreement.compute_binary_kappa(2), first >= 2, second >= 2, None),
    ]
    for kappa, one, other, weights in found:
        if len({*one, *other}) > 1:  # with one grade alone, scikit-learn warns
            assert kappa == pytest.approx(cohen_kappa_score(one, other, weights=weights), abs=1e-12)
        else:
            assert np.isnan(kappa)


def test_kappa_of_a_table_by_hand() -> None:
    """Of 50 pairs, 35 agree, where chance lets half agree: (0.7 - 0.5) / (1 - 0.5)."""
    agreement = count_labels(*np.array([(2, 2)] * 20 + [(2, 0)] * 5 + [(0, 2)] * 10 + [(0, 0)] * 15).T)
    assert (agreement.compute_kappa(), agreement.compute_binary_kappa(2)) == pytest.approx((0.4, 0.4))


def test_only_documents_that_both_judged_for_a_topic_count() -> None:
    first = make_qrels({"1": {"a": 1, "b": 0}, "2": {"a": 3}})
    second = make_qrels({"3": {"a": 1}, "1": {"b": 1, "c": 2, "a": 1}})
    agreement = compare_judgments(first, second)
    assert agreement.grades == (0, 1)
    assert agreement.counts.tolist() == [[0, 1], [0, 1]]
    assert np.isnan(compare_judgments(first, make_qrels({"9": {"a": 1}})).compute_kappa())


@pytest.mark.parametrize(
    ("first", "second", "tau"),
    [
        pytest.param([0.1, 0.2, 0.3], [1, 2, 3], 1.0, id="the same order"),
        pytest.param([0.1, 0.2, 0.3], [3, 2, 1], -1.0, id="the other order"),
        pytest.param([0.1, 0.2, 0.3], [2, 1, 3], 1 / 3, id="one exchange"),
        pytest.param([0.1, 0.1, 0.3], [1, 2, 3], 2 / 6**0.5, id="a tie"),
        pytest.param([1, 2, 3, 4, 5, 5], [2, 1, 3, 3, 5, 4], 11 / 14, id="ties in both"),
        pytest.param([0.1, 0.1], [1, 2], float("nan"), id="no order"),
    ],
)
def test_tau_of_known_orders(first: list[float], second: list[float], tau: float) -> None:
    assert compute_tau(first, second) == pytest.approx(tau, nan_ok=True)


@pytest.mark.skipif(not MATERIAL.is_dir(), reason="needs the judgments of three models beside the repository")
@pytest.mark.parametrize(("one", "other"), list(combinations(JUDGES, 2)))
def test_real_judges_agree_as_scikit_learn_says(one: str, other: str) -> None:
    files: list[Path] = [MATERIAL / f"qrels.rag25-dev22.climbmix-umbrela.{name}.txt.gz" for name in (one, other)]
    first, second = map(read_qrels, files)
    agreement = compare_judgments(first, second)
    rows = [{tuple(row[:3:2]): row[3] for row in list_rows(path)} for path in files]
    shared = sorted(rows[0].keys() & rows[1].keys())
    assert agreement.counts.sum() == len(shared) > 26_000
    grades = [np.array([int(side[pair]) for pair in shared]) for side in rows]
    assert agreement.counts.tolist() == confusion_matrix(*grades).tolist()
    assert agreement.compute_kappa() == pytest.approx(cohen_kappa_score(*grades))
    assert agreement.compute_binary_kappa(2) == pytest.approx(cohen_kappa_score(*(g >= 2 for g in grades)))


def list_rows(path: Path) -> list[list[str]]:
    return [line.split() for line in gzip.decompress(path.read_bytes()).decode().splitlines()]


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
def test_judgments_are_not_a_leaderboard(tmp_path: Path, text: str) -> None:
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
    assert (found["measure"], found["runs"]) == ("MAP", 3)
    assert found["tau_b"] == pytest.approx(kendalltau(*shared).statistic)
    assert found["tau"] == pytest.approx((1 - 1) / 3)
    assert found["tau_ap"] == pytest.approx(
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
        "shares": "rank,run,MAP,judged@10\n1,x,.5,.3\n2,y,.4,.6\n",
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
    chosen = CliRunner().invoke(app, ["agree", str(tmp_path / "shares"), "-m", "judged@10", "-m", "MAP"])
    assert "judged@10, MAP  2             -1.0000" in chosen.output


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
