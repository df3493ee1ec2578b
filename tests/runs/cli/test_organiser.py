"""The organiser's page: its commands run as it has them, and their figures equal those of other libraries."""

import csv
import io
import json
import math
import re
import shlex
from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import Any

import ir_measures
import numpy as np
import pytest
from scipy.stats import kendalltau, ttest_rel
from statsmodels.stats.inter_rater import cohens_kappa
from statsmodels.stats.multitest import multipletests
from typer.testing import CliRunner

import keystone
from keystone.runs.cli.main import app
from keystone.runs.evaluation.measures import read_ir_measure
from tests.support.places import ROOT
from tests.support.runs.shared_task import write_scored_answers, write_shared_task

pytestmark = pytest.mark.slow

PAGE = (ROOT / "docs" / "organiser.md").read_text()
COMMANDS = [line for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
DEPTH = 60
MEASURES = ("nDCG@10", "MAP", "R@100")
Shown = Mapping[str, str]


@pytest.fixture(scope="module")
def task(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_shared_task(tmp_path_factory.mktemp("task"), runs=9, topics=12, depth=DEPTH)
    return write_scored_answers(folder, runs=4, topics=12)


@pytest.fixture(scope="module")
def shown(task: Path) -> Shown:
    """What each command of the page prints, in the order of the page."""
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(task)
        for line in COMMANDS:
            command, _, target = line.partition(" > ")
            done = CliRunner().invoke(app, shlex.split(command)[1:])
            assert done.exit_code == 0, (line, done.output, done.exception)
            found[command] = done.stdout
            if target:
                Path(target).write_text(done.stdout)
    return found


def read_csv(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def run_json(task: Path, *arguments: str) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(task)
        done = CliRunner().invoke(app, [*arguments, "--format", "json", "-q"])
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def evaluate(task: Path, *options: str) -> dict[str, Any]:
    return run_json(task, "evaluate", "runs", "--qrels", "qrels.txt", *options)


@pytest.fixture(scope="module")
def values(task: Path) -> dict[str, dict[str, dict[str, float]]]:
    """The values of ir_measures: measure -> run -> topic."""
    qrels = list(ir_measures.read_trec_qrels(str(task / "qrels.txt")))
    found: dict[str, dict[str, dict[str, float]]] = {}
    for path in sorted((task / "runs").iterdir()):
        for one in ir_measures.iter_calc(
            [read_ir_measure(name.replace("MAP", "AP")) for name in MEASURES],
            qrels,
            ir_measures.read_trec_run(str(path)),
        ):
            name = "MAP" if str(one.measure) == "AP" else str(one.measure)
            found.setdefault(name, {}).setdefault(path.stem, {})[one.query_id] = one.value
    return found


def list_values(values: Mapping[str, Mapping[str, Mapping[str, float]]], run: str) -> list[float]:
    return [value for _, value in sorted(values["nDCG@10"][run].items())]


def test_the_page_has_nine_jobs_of_a_command_or_a_few(shown: Shown) -> None:
    assert len(re.findall(r"^## \d\.", PAGE, re.MULTILINE)) == 9
    assert len(shown) == len(COMMANDS)


@pytest.mark.usefixtures("shown")
def test_the_leaderboard_equals_ir_measures(task: Path, values: dict[str, Any]) -> None:
    rows = read_csv((task / "board.csv").read_text())
    assert rows[0]["rank"] == "1"
    for row in rows:
        for name in ("nDCG@10", "MAP"):
            assert float(row[name]) == pytest.approx(np.mean([*values[name][row["run"]].values()]), abs=1e-9)
    assert sorted(rows, key=lambda row: -float(row["nDCG@10"])) == rows
    assert {row["team"] for row in rows} == {"teamA", "teamB", "teamC"}


def test_all_pairs_equal_scipy_and_statsmodels(task: Path, values: dict[str, Any]) -> None:
    pairs = evaluate(task, "-m", "nDCG@10", "--pairs")["pairs"]
    raw = [ttest_rel(list_values(values, one["first"]), list_values(values, one["second"])).pvalue for one in pairs]
    assert len(pairs) == len(list(combinations(range(9), 2)))
    corrected = multipletests(raw, method="holm")[1]
    assert [one["p_t"] for one in pairs] == pytest.approx(corrected, abs=1e-9)
    for one in pairs:
        steps = np.array(list_values(values, one["first"])) - np.array(list_values(values, one["second"]))
        assert [one["wins"], one["losses"]] == [int((steps > 1e-12).sum()), int((steps < -1e-12).sum())]


def test_topics_equal_means_over_runs(shown: Shown, values: dict[str, Any]) -> None:
    (text,) = (text for command, text in shown.items() if "--by-topic" in command)
    rows = read_csv(text)
    assert sorted(float(row["mean"]) for row in rows) == [float(row["mean"]) for row in rows]
    for row in rows:
        own = [values["nDCG@10"][run][row["topic"]] for run in values["nDCG@10"]]
        assert float(row["mean"]) == pytest.approx(np.mean(own), abs=1e-9)
        assert float(row["sd"]) == pytest.approx(np.std(own, ddof=1), abs=1e-9)
        assert float(row["median"]) == pytest.approx(np.median(own), abs=1e-9)


@pytest.mark.usefixtures("shown")
def test_judges_and_measures_equal_scipy_and_statsmodels(task: Path) -> None:
    first, second = (keystone.read_qrels(task / name) for name in ("qrels.txt", "second.qrels"))
    counts = np.zeros((3, 3))
    for topic in first:
        for doc, grade in first[topic].items():
            counts[grade, second[topic][doc]] += 1
    (agreed,) = keystone.agree(first, second).to_dict("records")
    assert agreed["documents"] == counts.sum()
    assert agreed["kappa"] == pytest.approx(cohens_kappa(counts).kappa)
    for weights, power in (("linear", 1), ("quadratic", 2)):
        distance = np.abs(np.subtract.outer(range(3), range(3))) ** power
        assert agreed[f"kappa_{weights}"] == pytest.approx(cohens_kappa(counts, weights=distance).kappa)
    rows = read_csv((task / "board.csv").read_text())
    columns = [[float(row[name]) for row in rows] for name in ("nDCG@10", "MAP")]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(task)
        done = CliRunner().invoke(app, ["agree", "board.csv", "-m", "nDCG@10", "-m", "MAP", "--json"])
    (found,) = json.loads(done.stdout)["result"]["measures"]
    assert found["tau_b"] == pytest.approx(kendalltau(*columns).statistic)


@pytest.mark.usefixtures("shown")
def test_the_pool_equals_its_definition(task: Path) -> None:
    """A twin of trectools' pool: the union over runs of the first documents of each topic, without those judged."""
    expected: set[tuple[str, str]] = set()
    for path in (task / "runs").iterdir():
        rows = [line.split() for line in path.read_text().splitlines()]
        by_topic: dict[str, list[tuple[float, str]]] = {}
        for topic, _, doc, _, score, _ in rows:
            by_topic.setdefault(topic, []).append((float(score), doc))
        expected |= {(topic, doc) for topic, own in by_topic.items() for _, doc in sorted(own, reverse=True)[:20]}
    judged = {(row[0], row[2]) for row in map(str.split, (task / "qrels.txt").read_text().splitlines())}
    lines = [tuple(line.split()) for line in (task / "pool.txt").read_text().splitlines()]
    assert set(lines) == expected - judged
    assert len(lines) == len(set(lines))


@pytest.mark.usefixtures("shown")
def test_a_pool_leaves_out_what_any_of_several_files_judges(task: Path, tmp_path: Path) -> None:
    rows = (task / "qrels.txt").read_text().splitlines(keepends=True)
    halves = [tmp_path / "first.qrels", tmp_path / "second.qrels"]
    for path, own in zip(halves, (rows[::2], rows[1::2]), strict=True):
        path.write_text("".join(own))
    options = [option for path in halves for option in ("--without", str(path))]
    pooled = [str(task / "runs"), "--depth", "20", "--out", str(tmp_path / "pool.txt")]
    done = CliRunner().invoke(app, ["pool", *pooled, *options])
    assert done.exit_code == 0, done.output
    assert (tmp_path / "pool.txt").read_text() == (task / "pool.txt").read_text()


def test_the_bounds_hold_the_mean_between_them(task: Path) -> None:
    rows = evaluate(task, "-m", "P@10", "--bounds")["tables"]["Without a judgment:"]
    assert all(row["unjudged as 0"] <= row["unjudged as relevant"] for row in rows)
    text = (task / "runs" / f"{rows[0]['run']}.trec").read_text()
    judged = {(row[0], row[2]): int(row[3]) for row in map(str.split, (task / "qrels.txt").read_text().splitlines())}
    seen: dict[str, list[int]] = {}
    for topic, _, doc, *_ in map(str.split, text.splitlines()):
        seen.setdefault(topic, []).append(judged.get((topic, doc), 1) > 0)
    assert rows[0]["unjudged as relevant"] == pytest.approx(np.mean([sum(own[:10]) / 10 for own in seen.values()]))


def test_answers_of_two_judges_equal_own_counts(task: Path) -> None:
    found = run_json(task, "nuggets", "score", "--nuggets", "model", "--nuggets", "people")
    own = {}
    for kind in ("model", "people"):
        for path in (task / kind).iterdir():
            banks = [json.loads(line)["nuggets"] for line in path.read_text().splitlines()]
            credit = {"support": 1, "partial_support": 0.5, "not_support": 0}
            own[kind, path.stem] = np.mean([np.mean([credit[one["assignment"]] for one in bank]) for bank in banks])
    rows = found["tables"]["A by each judge:"]
    assert {(kind, row["run"]): row[kind] for row in rows for kind in ("model", "people")} == pytest.approx(own)


@pytest.mark.usefixtures("shown")
def test_pages_and_pictures_name_the_best_run(task: Path) -> None:
    best = read_csv((task / "board.csv").read_text())[0]["run"]
    assert f"{best} is best of 9 runs" in (task / "report.html").read_text()
    assert "is best of 4 runs: A" in (task / "answers.html").read_text()
    assert best in (task / "runs.svg").read_text()


def test_the_python_of_the_page_returns_the_frames_of_the_commands(
    task: Path, shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pandas as pd

    monkeypatch.chdir(task)
    (block,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    made: dict[str, Any] = {}
    exec(block, made)
    board = made["board"].drop(columns="ties by Tukey")
    pd.testing.assert_frame_equal(board, pd.read_csv("board.csv"), check_dtype=False)
    (text,) = (text for command, text in shown.items() if "--by-topic" in command)
    topics = pd.read_csv(io.StringIO(text), dtype={"topic": str})
    pd.testing.assert_frame_equal(made["topics"], topics, check_dtype=False)
    pairs = evaluate(task, "-m", "nDCG@10", "--pairs")["pairs"]
    assert made["pairs"]["p (Tukey HSD)"].tolist() == [one["p_tukey"] for one in pairs]
    pool = [tuple(line.split()) for line in Path("pool.txt").read_text().splitlines()]
    assert list(made["pool"].itertuples(index=False, name=None)) == pool
    assert made["bounds"].columns.tolist() == ["run", "measure", "unjudged as 0", "unjudged as relevant", "residual"]
    assert made["taus"]["measure"].tolist() == ["nDCG@10", "MAP"]
    assert made["answers"]["V_strict"].is_monotonic_decreasing
    assert made["brought"]["team"].nunique() == 3


def measure(topic: str, name: str = "P@5") -> keystone.Evaluation:
    return keystone.evaluate({topic: {"x": 1.0}}, {topic: {"x": 1}}, [name])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: keystone.leaderboard({}, {"1": {"x": 1}}),
            "runs: found dict, expected a dictionary with runs by name",
        ),
        (lambda: keystone.leaderboard([1]), "runs: found list, expected evaluations"),
        (lambda: keystone.leaderboard([measure("1"), measure("2")]), "runs: 'run' has other topics than 'run'"),
        (lambda: keystone.list_topics([measure("1"), measure("1", "AP")]), "runs: 'run' has other measures than 'run'"),
        (lambda: keystone.compare_pairs([measure("1"), measure("1")]), "runs: found two evaluations named 'run'"),
        (lambda: keystone.pool({"a": {"1": {"x": 1.0}}}, 0), "depth: found 0, expected a whole number of at least 1"),
        (lambda: keystone.agree({"1": {"x": 1}}, {"2": {"x": 1}}), "agree: found no document that both have judged"),
    ],
)
def test_a_wrong_argument_is_one_error(call: Any, message: str) -> None:
    with pytest.raises(keystone.UserError, match=re.escape(message)):
        call()


def test_infinite_numbers_are_no_part_of_a_leaderboard(task: Path) -> None:
    rows = evaluate(task, "-m", "gm_map", "-m", "MAP")["leaderboard"]
    assert all(math.isfinite(row["gm_map"]) and row["gm_map"] <= row["MAP"] + 1e-12 for row in rows)
