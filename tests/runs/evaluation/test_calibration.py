"""A calibration beside fixed depths: its numbers, what is printed of them, and the reliability curve."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from keystone.fusion.depth import FEATURES, calibrate, cut_by_f1, describe_by_system, fit_calibration
from keystone.indexing.errors import UserError
from keystone.runs.cli.commands.tune_commands import tune
from keystone.runs.evaluation.depth import FIXED_DEPTHS, JudgedTopic, cross_calibrate, list_judged_topics
from keystone.runs.evaluation.tune import draw_folds
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
    held_out = cross_calibrate(topics)["held_out"]
    fixed = held_out["fixed_set_f1"]
    for depth in FIXED_DEPTHS:
        expected = [2 * one.relevant[:depth].sum() / (depth + one.all_relevant) for one in topics]
        assert fixed[str(depth)] == pytest.approx(np.mean(expected))
    fold = draw_folds(len(topics), 5)
    cuts = []
    for place, one in enumerate(topics):
        others = [other for other, part in zip(topics, fold, strict=True) if part != fold[place]]
        rows = np.concatenate([other.describe() for other in others])
        weights = fit_calibration(rows, np.concatenate([other.relevant for other in others]))
        cuts.append(one.measure_f1(cut_by_f1(calibrate(one.scores, weights))))
    assert held_out["set_f1"] == pytest.approx(np.mean(cuts))
    assert held_out["set_f1"] > max(fixed.values()) + 0.1, "the scores tell where relevance ends"
    print_reliability(held_out)
    shown = capsys.readouterr().out
    assert f"20 {fixed['20']:.3f}, 50 {fixed['50']:.3f}" in shown
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
    found = cross_calibrate(seen, ["bm25"])
    assert found["held_out"]["set_f1"] > cross_calibrate(blind)["held_out"]["set_f1"] + 0.1
    assert found["features"] == [*FEATURES, "log rank by bm25", "score by bm25"]
    assert len(found["weights"]) == len(found["features"])


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
