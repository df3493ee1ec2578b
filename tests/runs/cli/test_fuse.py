"""`keystone fuse`: run files of any system become one; what cannot be fused is refused with the option's name."""

from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fusion.fuse import fuse
from indexing.errors import UserError
from retrieval.types import Rankings, offsets_of
from runs.trec.doc_ids import Names
from runs.trec.fuse_files import FileFusion, fuse_files
from runs.trec.run_files import read_run, write_run
from tests.support.command_line import keystone

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


def test_a_topic_that_a_run_lacks_is_fused_from_the_others(paths: list[Path]) -> None:
    run = fuse_files(paths[:2], "ours")
    assert run.tag == "ours"
    assert list(run.hits()) == ["1", "10", "2"]
    assert run.hits()["1"] == [("a", 1 / 61 + 1 / 62), ("c", 1 / 61 + 1 / 63), ("b", 1 / 62)]
    assert run.hits()["10"] == [("z", 1 / 61)]


def test_scores_order_a_run_not_its_ranks_and_ties_go_to_the_larger_id_as_in_trec_eval(tmp_path: Path) -> None:
    path = tmp_path / "ties.trec"
    path.write_text("1 Q0 b 1 0.5 x\n1 Q0 d 2 0.5 x\n1 Q0 c 3 0.7 x\n")
    assert [doc_id for doc_id, _ in fuse_files([path], "x").hits()["1"]] == ["c", "d", "b"]


def test_the_smallest_distance_is_the_best(paths: list[Path]) -> None:
    run = fuse_files(paths[:1], "x", FileFusion("sum", norm="min-max-inverted"))
    assert run.hits()["1"] == [("c", 1.0), ("b", 0.5), ("a", 0.0)]


@pytest.mark.parametrize("method", ["rrf", "wsum", "w_condorcet"])
def test_the_order_of_the_files_does_not_matter(paths: list[Path], method: str) -> None:
    weight = dict(zip(paths, (0.3, 1.1, 0.7), strict=True))
    runs = [
        fuse_files(order, "x", FileFusion(method, weights=[weight[path] for path in order])).hits()
        for order in permutations(paths)
    ]
    assert all(run == runs[0] for run in runs)


IDS = st.sampled_from(["a", "b", "ab", "abcdefghij", "abcdefghik", "abcdefghijk", "é", "z#1", "z#10", "z#2", "ü"])
HITS = st.dictionaries(IDS, st.sampled_from([0.5, 0.25, -1.0, 3.0]), min_size=1)


def by_strings(runs: list[dict[str, dict[str, float]]], method: str, norm: str | None, depth: int) -> Hits:
    """What `fuse_files` does, a document at a time, numbered by their ids in all topics."""
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
        rankings.append(Rankings(tuple(topics), offsets_of([len(own) for own in lists]), docs, scores))
    members = [[(run, topic) for run in range(len(runs))] for topic in range(len(topics))]
    fused = fuse(rankings, members, topics, method, depth, None, norm)
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
def test_fusing_equals_a_plain_twin(
    tmp_path: Path, runs: list[dict[str, dict[str, float]]], how: tuple[str, str | None], depth: int
) -> None:
    for number, run in enumerate(runs):
        rows = [f"{topic} Q0 {doc} 1 {score} x\n" for topic, own in run.items() for doc, score in own.items()]
        (tmp_path / f"{number}").write_text("".join(rows))
    files = [tmp_path / f"{number}" for number in range(len(runs))]
    fused = fuse_files(files, "x", FileFusion(how[0], depth, norm=how[1]))
    assert fused.hits() == by_strings(runs, *how, depth)


def test_fusing_makes_no_text_of_ids(paths: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """An object a row is what took ten times the time of evaluating the runs."""
    made, strings = list[Names](), Names.strings

    def counted(names: Names) -> list[str]:
        made.append(names)
        return strings(names)

    monkeypatch.setattr(Names, "strings", counted)
    fused = fuse_files(paths, "x")
    write_run(paths[0].with_name("fused"), fused)
    assert made == []


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        pytest.param({"method": "mean"}, "--method: found 'mean', expected one of min", id="method"),
        pytest.param({"method": "sum", "norm": "l2"}, "--norm: found 'l2', expected one of none", id="norm"),
        pytest.param({"parameters": {"phi": 0.5}}, "--set phi: no parameter of method 'rrf'", id="parameter"),
        pytest.param({"weights": [1, 2]}, "--weights: found 2 for 3 runs", id="too few weights"),
        pytest.param({"weights": [1, -2, 1]}, "--weights: found 1,-2,1, expected 0 to", id="a negative weight"),
        pytest.param({"weights": [0, 0, 0]}, "--weights: found 0,0,0, expected", id="no weight"),
        pytest.param({"weights": [1, float("nan"), 1]}, "--weights: found 1,nan,1", id="no number"),
        pytest.param({"method": "isr", "weights": [1, 2, 1]}, "--weights: differ", id="weights that cannot be"),
        pytest.param({"method": "log_isr", "weights": [1, 0, 0]}, "--method: found 'log_isr'", id="one run left"),
        pytest.param({"tag": "a\x01b"}, "--tag: found 'a\\x01b', expected one word", id="invisible tag"),
        pytest.param({"tag": "two words"}, "--tag: found 'two words', expected one word", id="tag"),
    ],
)
def test_what_cannot_be_fused_is_named(paths: list[Path], asked: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        fuse_files(paths, asked.pop("tag", "x"), FileFusion(**asked))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("score", "norm", "message"),
    [
        pytest.param("1e39", None, "big.trec: a score is too large for float32", id="read"),
        pytest.param("3e38", "none", "sum: a fused score is too large", id="written"),
        pytest.param("-1.7014117e38", "none", "sum: a fused score is too large", id="made to decrease"),
    ],
)
def test_a_score_beyond_float32_is_an_error(tmp_path: Path, score: str, norm: str | None, message: str) -> None:
    path = tmp_path / "big.trec"
    path.write_text(f"1 Q0 a 1 {score} x\n1 Q0 b 1 {score} x\n")
    with pytest.raises(UserError) as caught:
        fuse_files([path, path], "x", FileFusion("sum", norm=norm))
    assert message in str(caught.value)


def test_the_command_writes_a_run_and_leaves_nothing_after_an_error(paths: list[Path], tmp_path: Path) -> None:
    made = keystone("fuse", *paths, "--weights", "2,1,0.5", "--set", "k=10", "--depth", "2", "--out", tmp_path / "f")
    assert (made.returncode, made.stdout) == (0, f"{tmp_path / 'f'}\n"), made.stderr
    assert [doc_id for doc_id, _ in read_run(tmp_path / "f").hits()["1"]] == ["c", "a"]
    failed = keystone("fuse", *paths, "--weights", "2,x", "--out", tmp_path / "g")
    assert (failed.returncode, failed.stderr) == (1, "error: --weights: found '2, x', expected numbers\n")
    assert not (tmp_path / "g").exists()
