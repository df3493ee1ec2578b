"""A calibration beside fixed depths: its numbers, what is printed of them, and the reliability curve."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from keystone.fusion.depth import FEATURES, cut_by_f1, describe_by_system
from keystone.indexing.errors import UserError
from keystone.runs.cli.commands.tune_commands import tune
from keystone.runs.evaluation.depth import (
    FIXED_DEPTHS,
    JudgedTopic,
    cross_calibrate,
    describe_calibration,
    list_judged_topics,
)
from keystone.runs.report.plots import draw_reliability, write_figure
from keystone.runs.report.terminal import print_reliability
from keystone.runs.trec.types import make_run


def make_topics(seed: int, deepest: int) -> list[JudgedTopic]:
    """Topics whose first rows are relevant, from one row to `deepest`: the score falls where relevance ends."""
    draw, found = np.random.default_rng(seed), []
    for number in draw.integers(1, deepest + 1, 40).tolist():
        scores = np.concatenate([2 + draw.random(number), draw.random(120 - number)])
        order = np.argsort(-scores)
        found.append(JudgedTopic(scores[order], (np.arange(120) < number)[order], number))
    return found


def test_fixed_depths_are_measured_beside_the_chosen_one(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    topics = make_topics(1, 60)
    found = cross_calibrate(topics)
    for depth in FIXED_DEPTHS:
        expected = [2 * one.relevant[:depth].sum() / (depth + one.all_relevant) for one in topics]
        assert found.fixed[depth] == pytest.approx(np.mean(expected))
    cuts = [one.measure_f1(cut_by_f1(p)) for one, p in zip(topics, found.probabilities, strict=True)]
    assert found.set_f1 == pytest.approx(np.mean(cuts))
    assert found.set_f1 > max(found.fixed.values()) + 0.1, "the scores tell where relevance ends"
    held_out = describe_calibration(found)["held_out"]
    print_reliability(held_out)
    shown = capsys.readouterr().out
    assert f"20 {found.fixed[20]:.3f}, 50 {found.fixed[50]:.3f}" in shown
    assert "no worse" not in shown
    write_figure(draw_reliability(held_out["reliability"]), tmp_path / "curve.svg")
    drawn = re.findall(r">([\d,]+)<", (tmp_path / "curve.svg").read_text())
    assert {f"{one['rows']:,}" for one in held_out["reliability"] if one["rows"]} <= {*drawn}
    held_out["fixed_set_f1"]["20"] = 1.0
    print_reliability(held_out)
    assert "the fixed depth 20 is no worse than chosen ones" in capsys.readouterr().out


def test_the_list_of_a_system_tells_what_the_fused_score_does_not() -> None:
    blind, seen = [], []
    for one in make_topics(3, 60):
        fused = replace(one, scores=np.linspace(2, 1, 120))
        hits = zip(range(120), one.scores.tolist(), strict=True)
        blind.append(fused)
        seen.append(replace(fused, by_system=(describe_by_system(range(120), hits),)))
    found = cross_calibrate(seen)
    assert found.set_f1 > cross_calibrate(blind).set_f1 + 0.1
    described = describe_calibration(found, ["bm25"])
    assert described["features"] == [*FEATURES, "log rank by bm25", "score by bm25"]
    assert len(described["weights"]) == len(described["features"])


def test_judgments_of_segments_cannot_calibrate_a_ranking_of_documents(tmp_path: Path) -> None:
    (tmp_path / "qrels").write_text("1 0 doc#3 1\n")
    ids = r"its ids look like 'doc', those of the judgments like 'doc#3'"
    with pytest.raises(UserError, match=f"qrels: judges no document of the ranking relevant; {ids}"):
        list_judged_topics(make_run("r", {"1": [("doc", 1.0)]}), tmp_path / "qrels")


@pytest.mark.parametrize(
    ("calibrate", "plot", "message"),
    [
        (None, "a.svg", "--plot: found without --calibrate"),
        ("c.json", "a.txt", r"--plot|--out a\.txt: expected a name that ends with"),
    ],
)
def test_a_plot_needs_a_calibration_and_a_picture(
    tmp_path: Path, calibrate: str | None, plot: str, message: str
) -> None:
    config = tmp_path / "run.yaml"
    config.write_text("run_id: r\nindex: i\ntopics: t\n")
    with pytest.raises(UserError, match=message):
        tune(
            config,
            tmp_path / "qrels",
            calibrate=tmp_path / calibrate if calibrate else None,
            plot=tmp_path / plot if calibrate is None else Path(plot),
        )
