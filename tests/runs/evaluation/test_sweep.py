"""Sweeps: each run equals the same run made alone, no stage is made twice, and an interrupted sweep continues."""

import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from keystone.indexing.errors import UserError
from keystone.indexing.index import Index
from keystone.runs.config.read import read_config
from keystone.runs.config.run_config import RunConfig
from keystone.runs.evaluation.evaluate import Evaluation
from keystone.runs.evaluation.measures import parse_measure
from keystone.runs.evaluation.sweep import CONFIGURED, TakeMeasures, measure_rankings, sweep
from keystone.runs.pipeline.directory import MANIFEST
from keystone.runs.pipeline.file_names import CONFIG, STAGE_COSTS
from keystone.runs.pipeline.run import run
from keystone.runs.report.plots import plot_costs, plot_setting
from tests.support.runs.command_line import keystone

MEASURES = [parse_measure("nDCG@5"), parse_measure("R@5")]
TRIES = ["queries.narrative_weight=[0, 1]", "reader.name=[plain, rdr2]"]


@pytest.fixture
def config(index: Index, topics: Path, tmp_path: Path) -> Path:
    path = tmp_path / "run.yaml"
    path.write_text(
        f"run_id: r\nindex: {index.folder}\ntopics: {topics}\nout: {tmp_path / 'out'}\n"
        "retrieval: {depth: 6}\nfusion: {depth: 5}\nanswer: {documents: 3, words: 60}\n"
    )
    (tmp_path / "qrels.txt").write_text("1 0 bees 2\n1 0 beekeeping 1\n1 0 flowers 1\n2 0 volcano 2\n2 0 weather 1\n")
    return path


def take_measures(config: Path) -> TakeMeasures:
    return measure_rankings(config.with_name("qrels.txt"), MEASURES)


def read_artifacts(directory: Path) -> dict[str, bytes]:
    """Read the files of a run, without its configuration and its manifest, which name the folder."""
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.name not in {CONFIG, MANIFEST}}


def list_made(folder: Path) -> list[str]:
    return [orjson.loads(line)[0] for line in (folder / STAGE_COSTS).read_bytes().split()]


@pytest.mark.slow
def test_each_run_equals_the_same_run_alone_and_no_stage_is_made_twice(config: Path, tmp_path: Path) -> None:
    found = sweep(config, [], TRIES, take_measures(config), 2, threads=2)
    assert len(found.points) == 5
    for setting, point in found.points.items():
        alone = run(read_config(config, [*setting, f"out={tmp_path / 'alone' / point.directory.parent.name}"]))
        assert read_artifacts(point.directory) == read_artifacts(alone), setting
        assert point.cost.seconds > 0
    made = list_made(tmp_path / "out" / "r.sweep")
    assert max(Counter(made).values()) == 1
    searches = {(point.directory / "bm25.trec").stat().st_ino for point in found.points.values()}
    assert len(searches) == 2, "with the narrative as a query and without"


@pytest.mark.slow
def test_an_interrupted_sweep_continues(config: Path, tmp_path: Path) -> None:
    measure = take_measures(config)

    def interrupt(directory: Path, own: RunConfig) -> Evaluation:
        if len(list(directory.parents[1].iterdir())) == 4:
            raise KeyboardInterrupt
        return measure(directory, own)

    with pytest.raises(KeyboardInterrupt):
        sweep(config, [], TRIES, interrupt, 2)
    before = list_made(tmp_path / "out" / "r.sweep")
    found = sweep(config, [], TRIES, measure, 2)
    after = list_made(tmp_path / "out" / "r.sweep")
    assert after[: len(before)] == before
    assert max(Counter(after).values()) == 1
    assert all(point.cost.seconds > 0 for point in found.points.values())


@pytest.mark.slow
@pytest.mark.parametrize("change", [Path.unlink, lambda path: path.write_bytes(b"1 Q0 bees 1 1 r\n")])
def test_an_artifact_that_was_edited_or_removed_is_not_borrowed(
    change: Callable[[Path], object], config: Path, tmp_path: Path
) -> None:
    first = sweep(config, [], [], take_measures(config), 2)
    before = (first.points[()].directory / "hybrid.trec").read_bytes()
    change(tmp_path / "out" / "r.sweep" / CONFIGURED / "r" / "hybrid.trec")
    directory = run(read_config(config), lenders=[first.points[()].directory])
    assert (directory / "hybrid.trec").read_bytes() == before


@pytest.mark.slow
def test_the_command_prints_measures_and_costs_and_keeps_the_configuration(config: Path, tmp_path: Path) -> None:
    options: list[str | Path] = ["sweep", config, "--set", "track=none", "--folds", "2", "--quiet"]
    done = keystone(*options, "--qrels", tmp_path / "qrels.txt", "--try", "fusion.k_narrative=[20, 60]")
    rows = done.stdout.splitlines()
    assert rows[0].split() == ["settings", "nDCG@10", "R@100", "judged@10", "calls", "tokens", "seconds", "folder"]
    assert sorted(row.split()[0] for row in rows[1:3]) == ["as", "fusion.k_narrative=20"]
    assert "Recommended: the settings as configured" in rows
    runs = sorted((tmp_path / "out" / "r.sweep").glob("*/r"))
    qrels, out = tmp_path / "qrels.txt", tmp_path / "p.svg"
    drawn = keystone("plot", *runs, "--qrels", qrels, "--setting", "fusion.k_narrative", "--quiet", "--out", out)
    assert (drawn.returncode, drawn.stderr) == (0, "")
    assert {">20<", ">60<", ">fusion.k_narrative<"} <= set(re.findall(">[^<]+<", out.read_text()))
    refused = keystone(*options, "--try", "fusion.k_narrative=[20, 60]")
    assert refused.stderr == "error: expected either --qrels, with or without --skip-own, or --references\n"


@pytest.mark.slow
def test_pictures_name_runs_that_do_not_fit(config: Path, tmp_path: Path) -> None:
    directory = run(read_config(config, ["track=none"]))
    qrels = tmp_path / "qrels.txt"
    with pytest.raises(UserError, match=r"has no key fusion\.kk"):
        plot_setting([directory], qrels, MEASURES[0], "fusion.kk")
    with pytest.raises(UserError, match="has the same settings"):
        plot_setting([directory, directory], qrels, MEASURES[0], "fusion.k_narrative")
    with pytest.raises(UserError, match=r"holds no config\.yaml"):
        plot_costs([tmp_path], qrels, MEASURES[0], "tokens")


def test_a_budget_is_refused(config: Path) -> None:
    model = "model={name: m, urls: ['http://127.0.0.1:9'], budget: {calls: 3}}"
    with pytest.raises(UserError, match=r"model\.budget: found a budget, expected none"):
        sweep(config, [model], TRIES, take_measures(config), 2)


@pytest.mark.slow
def test_a_measure_without_a_value_is_refused_after_the_first_run(config: Path, tmp_path: Path) -> None:
    measures = [parse_measure("R(rel=3)@5"), parse_measure("nDCG@5")]
    with pytest.raises(UserError, match=r"R\(rel=3\)@5: no topic has a value"):
        sweep(config, [], TRIES, measure_rankings(tmp_path / "qrels.txt", measures), 2)
    assert len(list((tmp_path / "out" / "r.sweep").iterdir())) == 2
