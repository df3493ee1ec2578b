"""Pools for assessors, and runs without the judgments that only their team brought."""

import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from keystone.runs.cli.main import app
from keystone.runs.evaluation.batch import list_teams
from keystone.runs.evaluation.measures import parse_measure
from keystone.runs.evaluation.pooling import describe_pool, keep_judgments, leave_teams_out, pool_documents
from keystone.runs.trec.run_files import read_qrels
from keystone.runs.trec.types import Run, make_qrels, make_run

RUNS = {"a": {"1": ["x", "y", "z"], "2": ["u"]}, "b": {"1": ["y", "w", "v"]}}


@pytest.mark.parametrize(
    ("depth", "judged", "expected"),
    [
        (1, None, {"1": {"x", "y"}, "2": {"u"}}),
        (2, None, {"1": {"x", "y", "w"}, "2": {"u"}}),
        (9, {"1": {"x"}, "2": {"u"}}, {"1": {"y", "z", "w", "v"}, "2": set()}),
    ],
)
def test_a_pool_holds_each_unjudged_document_within_the_depth_once(
    depth: int, judged: dict[str, set[str]] | None, expected: dict[str, set[str]]
) -> None:
    pool = pool_documents(RUNS, depth, judged)
    assert {topic: set(docs) for topic, docs in pool.items()} == expected
    assert all(len(docs) == len(set(docs)) for docs in pool.values())


def test_the_order_depends_on_the_seed_and_not_on_the_order_of_runs() -> None:
    runs = {"a": {"1": [str(doc) for doc in range(50)]}, "b": {"1": [str(doc) for doc in range(25, 75)]}}
    pool = pool_documents(runs, 50)
    assert pool == pool_documents(dict(reversed(runs.items())), 50)
    assert pool != pool_documents(runs, 50, seed=1)


def test_a_depth_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="depth is 0"):
        pool_documents(RUNS, 0)


def test_statistics_of_a_pool_by_hand() -> None:
    runs = {**RUNS, "c": {"1": ["x", "w"], "2": ["u"]}}
    found = describe_pool(pool_documents(runs, 2), runs, ["A", "B", "A"], 2)
    assert found.topics == {"1": 3, "2": 1}
    assert [(one.run, one.team, one.documents, one.unique) for one in found.runs] == [
        ("a", "A", 3, 0),
        ("b", "B", 2, 0),
        ("c", "A", 3, 0),
    ]
    assert [one.overlap for one in found.runs] == pytest.approx([(1 / 4 + 2 / 4) / 2, 1 / 4, (1 / 4 + 2 / 4) / 2])
    assert [(one.team, one.runs, one.documents, one.unique) for one in found.teams] == [("A", 2, 4, 2), ("B", 1, 2, 0)]


DOCUMENTS = st.lists(st.sampled_from("uvwxyz"), unique=True, max_size=6)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(DOCUMENTS, DOCUMENTS, st.sampled_from("AB")), min_size=2, max_size=5), st.integers(1, 4))
def test_statistics_equal_those_of_sets(runs: list[tuple[list[str], list[str], str]], depth: int) -> None:
    rankings = {str(n): {"1": first, "2": second} for n, (first, second, _) in enumerate(runs)}
    teams, judged = [team for *_, team in runs], {"1": {"u", "v"}}
    pool = pool_documents(rankings, depth, judged)
    found = describe_pool(pool, rankings, teams, depth)
    pooled = {(topic, doc) for topic, docs in pool.items() for doc in docs}
    own = [{(t, doc) for t, docs in topics.items() for doc in docs[:depth]} & pooled for topics in rankings.values()]
    counts = Counter(pair for pairs in own for pair in pairs)
    assert [one.documents for one in found.runs] == list(map(len, own))
    assert [one.unique for one in found.runs] == [sum(counts[pair] == 1 for pair in pairs) for pairs in own]
    for i, first in enumerate(own):
        for j, second in enumerate(own):
            expected = len(first & second) / len(first | second) if first | second else math.nan
            assert found.overlaps[i][j] == pytest.approx(expected, nan_ok=True)
    for one in found.teams:
        inside = set().union(*(pairs for pairs, team in zip(own, teams, strict=True) if team == one.team))
        outside = set().union(*(pairs for pairs, team in zip(own, teams, strict=True) if team != one.team))
        assert (one.documents, one.unique) == (len(inside), len(inside - outside))


def write_files(folder: Path) -> None:
    """Two runs of two teams, a torn file, and judgments."""
    (folder / "a").write_text("1 Q0 x 1 7 A-1\n1 Q0 y 2 9 A-1\n2 Q0 z 1 9 A-1\n")
    (folder / "b").write_text("1 Q0 y 1 9 B_1\n1 Q0 u 2 8 B_1\n")
    (folder / "torn").write_text("1 Q0 x 1 9 T\n1 Q0\n")
    (folder / "empty").write_text("")
    (folder / "qrels").write_text("1 0 y 1\n2 0 v 0\n")
    (folder / "judged pool").write_text("\n1 y\n2 v\n")
    (folder / "torn pool").write_text("1 y\n2 0 z\n")


def test_the_command_writes_the_pool_and_says_who_brought_it(tmp_path: Path) -> None:
    write_files(tmp_path)
    files = [str(tmp_path / name) for name in ("a", "b")]
    out, call = tmp_path / "pool", ["pool", *files, "--depth", "1", "--out", str(tmp_path / "pool"), "--quiet"]
    shown = CliRunner().invoke(app, call)
    assert shown.exit_code == 0
    assert out.read_text() == "1 y\n2 z\n"
    assert "2 documents of 2 topics: 1 to 1 a topic, median 1" in shown.output
    told = json.loads(CliRunner().invoke(app, [*call, "--json", "--without", str(tmp_path / "qrels")]).stdout)["result"]
    assert out.read_text() == "2 z\n"
    assert CliRunner().invoke(app, [*call, "--without", str(tmp_path / "judged pool")]).exit_code == 0
    assert out.read_text() == "2 z\n"
    refused = CliRunner().invoke(app, [*call, "--without", str(tmp_path / "torn pool")])
    assert "torn pool:2: found '2 0 z', expected a topic and a document" in str(refused.exception)
    assert (told["topics"], told["overlaps"][1]) == ({"1": 0, "2": 1}, [0.0, None])
    assert [(one["team"], one["unique"]) for one in told["teams"]] == [("A", 1), ("B", 0)]


@pytest.mark.parametrize(
    ("tags", "teams"),
    [
        (["bm25-k1", "bm25_rm3", "splade-v3"], ["bm25", "bm25", "splade"]),
        (["bm25-k1", "bm25_rm3", "dense"], ["bm25-k1", "bm25_rm3", "dense"]),
        (["run1", "run1", "run2"], ["run1 (a)", "run1 (b)", "run2"]),
    ],
)
def test_each_run_is_a_team_unless_all_tags_name_one(tags: list[str], teams: list[str]) -> None:
    assert list_teams(tags, [*"abc"]) == teams


def test_runs_of_one_tag_without_a_team_are_two_teams_with_a_warning(tmp_path: Path) -> None:
    for name, doc in ("a", "x"), ("b", "y"):
        (tmp_path / name).write_text(f"1 Q0 {doc} 1 9 run1\n")
    call = ["pool", str(tmp_path / "a"), str(tmp_path / "b"), "--out", str(tmp_path / "pool"), "--quiet"]
    told = json.loads(CliRunner().invoke(app, [*call, "--json"]).stdout)["result"]
    assert [(one["runs"], one["unique"]) for one in told["teams"]] == [(1, 1), (1, 1)]
    assert "warning: the run tag 'run1' is that of 2 files" in CliRunner().invoke(app, call).output


def test_each_wrong_file_is_named_and_no_pool_is_written(tmp_path: Path) -> None:
    write_files(tmp_path)
    files = [str(tmp_path / name) for name in ("torn", "a", "empty")]
    shown = CliRunner().invoke(app, ["pool", *files, "--out", str(tmp_path / "pool"), "--quiet"])
    assert shown.exit_code == 1
    assert str(shown.exception).splitlines() == [
        f"{tmp_path / 'torn'}:2: expected 6 columns, found 2",
        f"{tmp_path / 'empty'}: holds no row, expected a run",
    ]
    assert not (tmp_path / "pool").exists()


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
    twice = CliRunner().invoke(app, [*call, "-m", "P@1"])
    assert str(twice.exception) == "--measure: found P@2, P@1, expected one measure"
    neither = CliRunner().invoke(app, ["pool", str(tmp_path / "a")])
    assert "expected --out with a pool to write, or --leave-out" in str(neither.exception)
    (tmp_path / "other").write_text("9 0 x 1\n")
    unjudged = CliRunner().invoke(app, ["pool", str(tmp_path / "a"), "--leave-out", str(tmp_path / "other"), "-q"])
    assert "none of its topics is judged in" in str(unjudged.exception)
