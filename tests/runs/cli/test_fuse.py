"""`keystone fuse` fuses run files of any system. An error names the option with an impossible value."""

from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from keystone.fusion.fuse import FusionSettings, fuse
from keystone.fusion.lists import Groups, RankedLists
from keystone.indexing.errors import UserError
from keystone.retrieval.types import offsets_of
from keystone.runs.trec.doc_ids import Ids
from keystone.runs.trec.fuse_files import fuse_files
from keystone.runs.trec.run_files import read_run, write_run
from tests.support.runs.command_line import keystone, keystone_here

A = "1 Q0 a 1 3 A\n1 Q0 b 2 2 A\n1 Q0 c 3 1 A\n2 Q0 a 1 9 A\n"
B = "1 Q0 c 1 0.9 B\n1 Q0 a 2 0.8 B\n10 Q0 z 1 0.5 B\n"
Hits = dict[str, list[tuple[str, float]]]
C = "1 Q0 b 9 0.5 C\n1 Q0 c 1 0.7 C\n"


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    found = []
    for name, text in {"a": A, "b": B, "c": C}.items():
        found.append(tmp_path / f"{name}.trec")
        found[-1].write_text(text)
    return found


@pytest.mark.slow
def test_a_topic_that_a_run_lacks_is_fused_from_the_others(paths: list[Path]) -> None:
    run = fuse_files(paths[:2], "ours")
    assert run.tag == "ours"
    assert list(run.list_hits()) == ["1", "10", "2"]
    assert run.list_hits()["1"] == [("a", 1 / 61 + 1 / 62), ("c", 1 / 61 + 1 / 63), ("b", 1 / 62)]
    assert run.list_hits()["10"] == [("z", 1 / 61)]


def test_a_run_of_segments_beside_one_of_documents_is_told(paths: list[Path]) -> None:
    paths[2].write_text("1 Q0 a#1 1 3 C\n1 Q0 b#0 2 2 C\n2 Q0 a#1 1 1 C\n")
    done = keystone_here("fuse", *paths, "--out", paths[0].with_name("out"))
    assert done.stderr.splitlines() == [
        f"warning: {paths[2]}: ranks segments, but {other} documents, such as a; a segment and its document are fused "
        "as two documents"
        for other in paths[:2]
    ]
    assert not keystone_here("fuse", paths[2], paths[2], "--out", paths[0]).stderr


def test_a_folder_stands_for_its_runs_and_takes_no_output(
    paths: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder, out = paths[0].parent, tmp_path_factory.mktemp("fused")
    assert keystone_here("fuse", *paths, "--weights", "1,2,3", "--out", out / "a").returncode == 0
    assert keystone_here("fuse", folder, "--weights", "1,2,3", "--out", out / "b").returncode == 0
    assert (out / "a").read_bytes() == (out / "b").read_bytes()
    refused = keystone_here("fuse", folder, "--out", folder / "c")
    assert f"lies in {folder}, which the command reads" in refused.stderr


def test_a_file_without_rows_is_no_run(paths: list[Path]) -> None:
    paths[1].write_text("")
    with pytest.raises(UserError, match=r"b\.trec: holds no row, expected a run"):
        fuse_files(paths, "x")


def test_a_run_is_read_by_score_and_ties_go_to_the_larger_id_as_in_trec_eval(tmp_path: Path) -> None:
    path = tmp_path / "ties.trec"
    path.write_text("1 Q0 b 1 0.5 x\n1 Q0 d 2 0.5 x\n1 Q0 c 3 0.7 x\n")
    assert [doc_id for doc_id, _ in fuse_files([path], "x").list_hits()["1"]] == ["c", "d", "b"]


def test_the_smallest_distance_is_the_best(paths: list[Path]) -> None:
    run = fuse_files(paths[:1], "x", FusionSettings("sum", norm="min-max-inverted"))
    assert run.list_hits()["1"] == [("c", 1.0), ("b", 0.5), ("a", 0.0)]


@pytest.mark.parametrize("method", ["rrf", "wsum", "w_condorcet"])
def test_the_order_of_the_files_does_not_matter(paths: list[Path], method: str) -> None:
    weight = dict(zip(paths, (0.3, 1.1, 0.7), strict=True))
    runs = [
        fuse_files(order, "x", FusionSettings(method), [weight[path] for path in order]).list_hits()
        for order in permutations(paths)
    ]
    assert all(run == runs[0] for run in runs)


IDS = st.sampled_from(["a", "b", "ab", "abcdefghij", "abcdefghik", "abcdefghijk", "é", "z#1", "z#10", "z#2", "ü"])
HITS = st.dictionaries(IDS, st.sampled_from([0.5, 0.25, -1.0, 3.0]), min_size=1)


def fuse_by_strings(runs: list[dict[str, dict[str, float]]], method: str, norm: str | None, depth: int) -> Hits:
    """Fuse as `fuse_files` does, but number documents by their ids in all topics."""
    topics = sorted({topic for run in runs for topic in run})
    ids = sorted({doc for run in runs for own in run.values() for doc in own})
    up = norm == "min-max-inverted"
    rankings = []
    for run in runs:
        lists = [
            sorted(sorted(run.get(topic, {}).items(), reverse=True), key=lambda hit: hit[1] if up else -hit[1])
            for topic in topics
        ]
        docs = np.array([ids.index(doc) for own in lists for doc, _ in own], np.int32)
        scores = np.array([score for own in lists for _, score in own], np.float32)
        rankings.append(RankedLists(offsets_of([len(own) for own in lists]), docs, scores))
    members = [[(run, topic) for run in range(len(runs))] for topic in range(len(topics))]
    fused = fuse(rankings, Groups(topics, members), FusionSettings(method, depth, norm))
    return {
        topic: [(ids[doc], score) for doc, score in zip(fused.of(i), fused.scores_of(i).tolist(), strict=True)]
        for i, topic in enumerate(topics)
    }


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.dictionaries(st.sampled_from(["1", "2", "10"]), HITS, min_size=1), min_size=1, max_size=3),
    st.sampled_from([("rrf", None), ("sum", "min-max-inverted"), ("mnz", None), ("bordafuse", None)]),
    st.integers(1, 12),
)
def test_fused_files_equal_those_of_a_plain_implementation(
    tmp_path: Path, runs: list[dict[str, dict[str, float]]], how: tuple[str, str | None], depth: int
) -> None:
    for number, run in enumerate(runs):
        rows = [f"{topic} Q0 {doc} 1 {score} x\n" for topic, own in run.items() for doc, score in own.items()]
        (tmp_path / f"{number}").write_text("".join(rows))
    fused = fuse_files(
        [tmp_path / f"{number}" for number in range(len(runs))], "x", FusionSettings(how[0], depth, how[1])
    )
    assert fused.list_hits() == fuse_by_strings(runs, *how, depth)


def test_fusing_decodes_no_id(paths: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """With one string for each row, fusing took ten times as long as evaluating."""
    decoded, decode_ids = list[Ids](), Ids.decode_ids

    def record(ids: Ids) -> list[str]:
        decoded.append(ids)
        return decode_ids(ids)

    monkeypatch.setattr(Ids, "decode_ids", record)
    fused = fuse_files(paths, "x")
    write_run(paths[0].with_name("fused"), fused)
    assert decoded == []


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        pytest.param({"method": "mean"}, "--method: found 'mean', expected one of min", id="unknown method"),
        pytest.param({"method": "sum", "norm": "l2"}, "--norm: found 'l2', expected one of none", id="unknown norm"),
        pytest.param(
            {"parameters": {"phi": 0.5}}, "--set phi: no parameter of method 'rrf'", id="parameter of another method"
        ),
        pytest.param({"weights": [1, 2]}, "--weights: found 2 numbers for 3 runs", id="too few weights"),
        pytest.param(
            {"weights": [1, -2, 1]}, "--weights: found 1,-2,1, expected numbers from 0 to", id="a negative weight"
        ),
        pytest.param({"weights": [0, 0, 0]}, "--weights: found 0,0,0, expected", id="all weights 0"),
        pytest.param({"weights": [1, float("nan"), 1]}, "--weights: found 1,nan,1", id="NaN as weight"),
        pytest.param(
            {"method": "isr", "weights": [1, 2, 1]},
            "--weights: found different weights",
            id="weights with a method that has none",
        ),
        pytest.param(
            {"method": "log_isr", "weights": [1, 0, 0]},
            "--method: found 'log_isr'",
            id="a single run of weight above 0",
        ),
        pytest.param({"tag": "a\x01b"}, "--tag: found 'a\\x01b', expected one word", id="control character in the tag"),
        pytest.param({"tag": "two words"}, "--tag: found 'two words', expected one word", id="two words as tag"),
    ],
)
def test_an_error_names_the_option_with_an_impossible_value(
    paths: list[Path], asked: dict[str, Any], message: str
) -> None:
    settings = FusionSettings(**{name: value for name, value in asked.items() if name not in ("tag", "weights")})
    with pytest.raises(UserError) as caught:
        fuse_files(paths, asked.get("tag", "x"), settings, asked.get("weights"))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("score", "norm", "message"),
    [
        pytest.param("1e39", None, "big.trec: a score is too large for float32", id="too large in a run"),
        pytest.param("3e38", "none", "sum: a fused score is too large", id="too large after fusion"),
        pytest.param(
            "-1.7014117e38", "none", "sum: a fused score is too large", id="too large after scores are made to decrease"
        ),
    ],
)
def test_a_score_beyond_float32_is_an_error(tmp_path: Path, score: str, norm: str | None, message: str) -> None:
    path = tmp_path / "big.trec"
    path.write_text(f"1 Q0 a 1 {score} x\n1 Q0 b 1 {score} x\n")
    with pytest.raises(UserError) as caught:
        fuse_files([path, path], "x", FusionSettings("sum", norm=norm))
    assert message in str(caught.value)


@pytest.mark.slow
def test_the_command_writes_a_run_and_leaves_nothing_after_an_error(paths: list[Path], tmp_path: Path) -> None:
    made = keystone("fuse", *paths, "--weights", "2,1,0.5", "--set", "k=10", "--depth", "2", "--out", tmp_path / "f")
    assert (made.returncode, made.stdout) == (0, f"{tmp_path / 'f'}\n"), made.stderr
    assert [doc_id for doc_id, _ in read_run(tmp_path / "f").list_hits()["1"]] == ["c", "a"]
    failed = keystone("fuse", *paths, "--weights", "2,x", "--out", tmp_path / "g")
    assert (failed.returncode, failed.stderr) == (1, "error: --weights: found '2, x', expected numbers\n")
    assert not (tmp_path / "g").exists()
