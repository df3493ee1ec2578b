"""Pictures of runs: they show the measures, and the same evaluations give the same bytes."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from keystone.runs.evaluation.evaluate import Counts, Evaluation
from keystone.runs.evaluation.resample import find_bootstrap_interval
from keystone.runs.report.plots import RECALL_DEPTHS, draw_costs, draw_runs, draw_settings, write_figure
from tests.support.runs.command_line import keystone

TOPICS = ("1", "2", "3", "$x_1$")


def evaluation(name: str, *values: float, depth: int = 100) -> Evaluation:
    own = np.array(values)
    recalls = {f"R@{depth}": own * depth / 1000 for depth in RECALL_DEPTHS}
    return Evaluation(name, TOPICS, {"nDCG@10": own, "MAP": own / 2, **recalls}, Counts(depth=depth))


ONE, TWO = evaluation("a", 0.2, 0.4, 0.6, 0.8), evaluation("b $5 <script>", 0.3, 0.4, 0.9, 0.5, depth=20)


def list_heights(axes: Any) -> list[float]:
    return [bar.get_height() for bar in axes.patches]


def test_bars_are_means_with_intervals_and_differences_of_topics() -> None:
    panels: list[Any] = draw_runs([ONE, TWO], ["nDCG@10", "MAP"]).axes
    bars, differences, recall = panels
    assert list_heights(bars) == pytest.approx([0.5, 0.25, 0.525, 0.2625])
    low, high = bars.collections[0].get_segments()[0][:, 1]
    assert (low, high) == pytest.approx(find_bootstrap_interval(ONE.values["nDCG@10"]))
    assert list_heights(differences) == pytest.approx([0.3, 0.1, 0.0, -0.3])
    assert [label.get_text() for label in differences.get_xticklabels()] == ["3", "1", "2", "$x_1$"]
    assert [list(line.get_xdata()) for line in recall.lines] == [[1, 2, 5, 10, 20, 50, 100], [1, 2, 5, 10, 20]]


@pytest.mark.slow
@pytest.mark.parametrize(("runs", "panels"), [([ONE], 2), ([ONE, TWO], 3), ([ONE, TWO] * 5, 3)])
def test_any_number_of_runs_has_a_picture(tmp_path: Path, runs: list[Evaluation], panels: int) -> None:
    figure = draw_runs(runs, ["MAP"])
    assert len(figure.axes) == panels
    write_figure(figure, tmp_path / "runs.png")
    assert (tmp_path / "runs.png").read_bytes().startswith(b"\x89PNG")


def test_an_axis_that_counts_topics_has_whole_numbers() -> None:
    _, differences, _ = draw_runs([ONE, TWO, ONE], ["MAP"]).axes
    ticks = differences.get_xticks()
    assert len(ticks) > 1
    assert all(float(tick).is_integer() for tick in ticks)
    single = [Evaluation(name, ("1",), {key: own[:1] for key, own in ONE.values.items()}, ONE.counts) for name in "abc"]
    ticks = draw_runs(single, ["MAP"]).axes[1].get_xticks()
    assert all(float(tick).is_integer() for tick in ticks)


@pytest.mark.slow
def test_missing_values_leave_a_gap(tmp_path: Path) -> None:
    missing = evaluation("c", np.nan, np.nan, np.nan, np.nan, depth=0)
    write_figure(draw_runs([ONE, missing], ["MAP"]), tmp_path / "runs.svg")
    assert ElementTree.parse(tmp_path / "runs.svg").getroot().tag.endswith("svg")


@pytest.mark.slow
@pytest.mark.parametrize("ending", [".svg", ".png"])
def test_the_same_evaluations_give_the_same_bytes(tmp_path: Path, ending: str) -> None:
    paths = [tmp_path / f"{name}{ending}" for name in "ab"]
    for path in paths:
        write_figure(draw_runs([ONE, TWO], ["MAP"]), path)
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_a_setting_has_a_line_for_each_combination_of_the_others() -> None:
    lines = {"depth=5": {60: ONE, 20: TWO}, "depth=9": {60: TWO}}
    (axes,) = draw_settings(lines, [20, 60], "fusion.k_narrative", "MAP").axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["20", "60"]
    first, second = (container.lines[0] for container in axes.containers)  # type: ignore[attr-defined]
    assert list(first.get_ydata()) == pytest.approx([0.2625, 0.25])
    assert list(second.get_ydata()) == pytest.approx([0.2625])


def test_costs_are_points_with_intervals(tmp_path: Path) -> None:
    figure = draw_costs([ONE, TWO], [1200, 0], "tokens", "nDCG@10")
    (axes,) = figure.axes
    points = [container.lines[0] for container in axes.containers]  # type: ignore[attr-defined]
    assert [(*point.get_xdata(), *point.get_ydata()) for point in points] == [(1200, 0.5), (0, 0.525)]
    assert axes.get_xlabel() == "tokens"
    write_figure(figure, tmp_path / "costs.svg")
    assert "b $5 &lt;script&gt;" in (tmp_path / "costs.svg").read_text()


def test_names_are_text_and_a_circle_is_marked(tmp_path: Path) -> None:
    write_figure(draw_runs([ONE, replace(TWO, circular_rows=3)], ["MAP"]), tmp_path / "runs.svg")
    texts = [
        element.text for element in ElementTree.parse(tmp_path / "runs.svg").iter() if element.tag.endswith("text")
    ]
    assert "b $5 <script>*" in texts
    assert any(text and text.startswith("* measured on the grades") for text in texts)


@pytest.mark.slow
def test_the_command_writes_the_picture(tmp_path: Path) -> None:
    (tmp_path / "qrels").write_text("1 0 a 1\n2 0 b 1\n")
    for name, docs in (("one", "ab"), ("two", "ba")):
        rows = (f"{topic} Q0 {doc} {i} {-i} t\n" for topic in "12" for i, doc in enumerate(docs, 1))
        (tmp_path / name).write_text("".join(rows))
    files: list[str | Path] = [tmp_path / "one", tmp_path / "two", "--qrels", tmp_path / "qrels"]
    asked: list[str | Path] = ["plot", *files, "-m", "P@1", "--quiet", "--out"]
    done = keystone(*asked, tmp_path / "runs.svg")
    assert (done.returncode, done.stdout) == (0, f"{tmp_path / 'runs.svg'}\n")
    assert ">P@1<" in (tmp_path / "runs.svg").read_text()
    refused = keystone(*asked, tmp_path / "runs.pdf")
    assert refused.stderr == f"error: --out {tmp_path}/runs.pdf: expected a name that ends with .svg or .png\n"
    kept = keystone(*asked, tmp_path / "one.svg", "--out", tmp_path / "qrels")
    assert kept.returncode == 1
    assert (tmp_path / "qrels").read_text() == "1 0 a 1\n2 0 b 1\n"
