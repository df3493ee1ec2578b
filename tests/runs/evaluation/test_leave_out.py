"""Leave-one-team-out: the runs of a team without the judgments that only it brought."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from keystone.runs.cli.main import app
from keystone.runs.evaluation.measures import parse_measure
from keystone.runs.evaluation.pooling import keep_judgments, leave_teams_out
from keystone.runs.trec.run_files import read_qrels
from keystone.runs.trec.types import Run, make_qrels, make_run

RANKED = {"a": {"1": "xy", "2": "z"}, "b": {"1": "uy", "2": "w"}, "c": {"1": "xv", "2": "z"}}
TEAMS = ["A", "B", "A"]
QRELS = make_qrels({"1": {"x": 1, "y": 1, "u": 0}, "2": {"z": 1, "w": 1}})


def make_runs() -> dict[str, Run]:
    hits = {
        name: {topic: [(doc, 9.0 - rank) for rank, doc in enumerate(docs)] for topic, docs in topics.items()}
        for name, topics in RANKED.items()
    }
    return {name: make_run(name, own) for name, own in hits.items()}


def test_each_team_loses_the_judgments_that_only_it_brought() -> None:
    found = {one.run: one for one in leave_teams_out(make_runs(), RANKED, TEAMS, QRELS, 2, parse_measure("P@2"))}
    assert {name: one.judgments for name, one in found.items()} == {"a": 2, "b": 2, "c": 2}
    assert {name: one.mean for name, one in found.items()} == {"a": 0.75, "b": 0.5, "c": 0.5}
    assert {name: one.mean_without for name, one in found.items()} == {"a": 0.25, "b": 0.25, "c": 0.0}
    assert {name: (one.rank, one.rank_without) for name, one in found.items()} == {
        "a": (1, 2),
        "b": (2, 3),
        "c": (2, 3),
    }


@pytest.mark.parametrize(("depth", "judgments"), [pytest.param(1, 2, id="x and z"), pytest.param(2, 1, id="z alone")])
def test_depth_decides_who_brought_a_document(depth: int, judgments: int) -> None:
    rankings = {**RANKED, "b": {"1": "yx", "2": "w"}}
    found = leave_teams_out(make_runs(), rankings, TEAMS, QRELS, depth, parse_measure("P@2"))
    assert found[0].judgments == judgments


def test_a_team_without_documents_of_its_own_loses_nothing() -> None:
    found = leave_teams_out(make_runs(), RANKED, ["A", "B", "C"], QRELS, 2, parse_measure("P@2"))
    own = {one.run: one for one in found}["c"]
    assert (own.judgments, own.mean, own.mean_without, own.rank, own.rank_without) == (0, 0.5, 0.5, 2, 2)
    assert own.tau == pytest.approx(1)


def test_a_team_that_brought_everything_has_no_mean_without_it() -> None:
    run = {"a": make_runs()["a"]}
    (found,) = leave_teams_out(run, {"a": RANKED["a"]}, ["A"], make_qrels({"1": {"x": 1}}), 2, parse_measure("P@2"))
    assert np.isnan(found.mean_without)


def test_judgments_by_subtopic_are_taken_away_too(tmp_path: Path) -> None:
    (tmp_path / "qrels").write_text("1 1 x 1\n1 2 x 1\n1 2 y 1\n2 1 z 1\n")
    qrels = read_qrels(tmp_path / "qrels")
    kept = keep_judgments(qrels, np.array([doc == "y" for doc in qrels.docs.decode_ids()]))
    assert kept.query_ids == ("1",)
    assert kept["1"] == {"y": 1}
    assert kept.subtopics is not None
    assert kept.subtopics.list_rows() == [("1", "2", "y", 1)]


def test_the_command_prints_each_run_before_and_after(tmp_path: Path) -> None:
    for (name, topics), team in zip(RANKED.items(), TEAMS, strict=True):
        rows = [
            f"{t} Q0 {doc} 1 {9 - rank} {team}-{name}" for t, docs in topics.items() for rank, doc in enumerate(docs)
        ]
        (tmp_path / name).write_text("\n".join(rows) + "\n")
    (tmp_path / "qrels").write_text("1 0 x 1\n1 0 y 1\n1 0 u 0\n2 0 z 1\n2 0 w 1\n")
    call = [
        "pool",
        *(str(tmp_path / name) for name in RANKED),
        "--leave-out",
        str(tmp_path / "qrels"),
        "-m",
        "P@2",
        "-q",
    ]
    told = json.loads(CliRunner().invoke(app, [*call, "--json"]).stdout)["result"]
    assert told["out"] is None
    assert [(one["team"], one["judgments"], one["mean_without"]) for one in told["left_out"]] == [
        ("A", 2, 0.25),
        ("A", 2, 0.0),
        ("B", 2, 0.25),
    ]
    assert "P@2 without the judgments that only the team brought:" in CliRunner().invoke(app, call).output
    neither = CliRunner().invoke(app, ["pool", str(tmp_path / "a")])
    assert "expected --out with a pool to write, or --leave-out" in str(neither.exception)
    (tmp_path / "other").write_text("9 0 x 1\n")
    unjudged = CliRunner().invoke(app, ["pool", str(tmp_path / "a"), "--leave-out", str(tmp_path / "other"), "-q"])
    assert "none of its topics is judged in" in str(unjudged.exception)
