"""Many runs at once: faults, tags, copies, topics, Tukey's test, letters, bounds, several judges."""

import gzip
import json
import re
from itertools import permutations, product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.sandbox.stats.multicomp import tukeyhsd

from keystone.indexing.errors import UserError
from keystone.indexing.types import silent
from keystone.runs.cli.leaderboard import Asked, list_files, make_board, read_topic_ids
from keystone.runs.evaluation.agreement import count_labels
from keystone.runs.evaluation.batch import Cut, compute_rbo, evaluate_batch
from keystone.runs.evaluation.compare import Pair, find_letters, run_tukey_test
from keystone.runs.evaluation.evaluate import Evaluation
from keystone.runs.evaluation.measures import parse_measures
from keystone.runs.report.leaderboard import list_judge_pairs
from tests.support.runs.command_line import keystone, keystone_here

MEASURES = parse_measures(["P@2", "RBP(p=0.5)"])


def write_files(folder: Path) -> list[Path]:
    """Three runs of two topics, a torn file, an empty one, and one of other topics; judgments by two judges."""
    texts = {
        "a": "1 Q0 x 1 9 A-1\n1 Q0 y 2 8 A-1\n2 Q0 z 1 9 A-1\n",
        "b": "1 Q0 y 1 9 B-1\n1 Q0 u 2 8 B-1\n2 Q0 v 1 9 C-1\n",
        "c": "1 Q0 x 1 9 C-1\n1 Q0 y 2 8 C-1\n2 Q0 z 1 9 C-1\n",
        "torn": "1 Q0 x 1 9 T\n1 Q0\n",
        "empty": "",
        "other": "7 Q0 x 1 9 O\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    (folder / "qrels").write_text("1 0 x 1\n1 0 y 0\n2 0 z 1\n")
    (folder / "second").write_text("1 0 x 1\n1 0 y 1\n2 0 z 0\n")
    return [folder / name for name in texts]


def test_every_fault_is_listed_once_and_the_good_runs_are_measured(tmp_path: Path) -> None:
    files = write_files(tmp_path)
    with pytest.raises(UserError) as refused:
        evaluate_batch(files, [tmp_path / "qrels"], MEASURES)
    lines = str(refused.value).splitlines()
    assert [line.split(":")[0] for line in lines] == list(map(str, files[3:]))
    batch = evaluate_batch(files, [tmp_path / "qrels"], MEASURES, skip_bad=True)
    assert list(batch.faults) == lines
    assert [one.mean("P@2") for one in batch.evaluations[0]] == [0.5, 0, 0.5]
    about_tags, about_copies = batch.cautions
    assert about_tags.startswith(f"{files[1]}:3: found the run tag 'C-1', after 'B-1'")
    assert about_copies.startswith(f"{files[0]} and {files[2]}: the same first")


def test_topics_and_depth_are_cut_as_asked(tmp_path: Path) -> None:
    first = write_files(tmp_path)[:1]
    of_topic = evaluate_batch(first, [tmp_path / "qrels"], MEASURES, Cut(topics={"2"})).evaluations[0][0]
    assert of_topic.topics == ("2",)
    cut = evaluate_batch(first, [tmp_path / "qrels"], parse_measures(["R@9"]), Cut(depth=1)).evaluations[0][0]
    assert cut.counts.rows == 2
    with pytest.raises(UserError, match="1 topic of --topics without a judgment, such as 3"):
        evaluate_batch(first, [tmp_path / "qrels"], MEASURES, Cut(topics={"3"}))


def test_wanted_topics_leave_no_warning_about_the_others(tmp_path: Path) -> None:
    files, cut = write_files(tmp_path), Cut(topics={"2"})
    (found,) = evaluate_batch(files[:1], [tmp_path / "qrels"], MEASURES, cut).evaluations[0]
    assert not [caution for caution in found.cautions if "left out" in caution]
    with pytest.raises(UserError, match="other: has none of --topics; its topics look like '7'"):
        evaluate_batch(files[-1:], [tmp_path / "qrels"], MEASURES, cut)


@pytest.mark.parametrize("depth", [0, 1])
def test_growing_scores_are_named_at_any_depth(depth: int, tmp_path: Path) -> None:
    write_files(tmp_path)
    (tmp_path / "far").write_text("1 Q0 x 1 1 F\n1 Q0 y 2 2 F\n2 Q0 z 1 5 F\n")
    batch = evaluate_batch([tmp_path / "far"], [tmp_path / "qrels"], MEASURES, Cut(depth=depth))
    cautions = [*batch.cautions, *batch.evaluations[0][0].cautions]
    assert sum("scores grow from row to row" in caution for caution in cautions) == 1


@pytest.mark.parametrize(
    ("content", "tags"),
    [
        (b"1 Q0 x 1 9 A\r\n2 Q0 z 1 9 A\r\n", 0),
        (b"1 Q0 x 1 9 two  words\r\n\r\n2 Q0 z 1 9 two  words \r\n", 0),
        (b"1 Q0 x 1 9 A\r\n2 Q0 z 1 9 B\r\n", 1),
    ],
)
def test_two_tags_are_told_apart_at_any_end_of_lines(content: bytes, tags: int, tmp_path: Path) -> None:
    write_files(tmp_path)
    (tmp_path / "crlf").write_bytes(content)
    cautions = evaluate_batch([tmp_path / "crlf"], [tmp_path / "qrels"], MEASURES).cautions
    assert [caution.partition(":2: ")[2][:21] for caution in cautions] == ["found the run tag 'B'"] * tags


def test_many_ids_of_topics_are_not_taken_for_a_file() -> None:
    ids = [f"rag26-{number}" for number in range(500)]
    assert read_topic_ids(",".join(ids)) == {*ids}


@pytest.mark.parametrize(
    "content", [b"1\n22 40\n", b"\xef\xbb\xbf1\r\n\r\n22\tx\r\n", gzip.compress(b"1\n22\n", mtime=0), b"1\r22\r"]
)
def test_topics_are_read_from_any_file_of_lines(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "ids").write_bytes(content)
    assert read_topic_ids(str(tmp_path / "ids")) == {"1", "22"}


def test_kept_files_beside_run_directories_are_not_run_files(tmp_path: Path) -> None:
    (tmp_path / "rag").mkdir()
    for name in ("replies.sqlite", "replies.sqlite-wal", "scores.sqlite", "stages.jsonl", "usage.json", "costs.jsonl"):
        (tmp_path / name).write_bytes(b"\xff")
    with pytest.raises(UserError, match=re.escape(f"name each run directory, as {tmp_path}/*/")):
        list_files([tmp_path])
    (tmp_path / "own").write_text("1 Q0 x 1 9 A\n")
    assert list_files([tmp_path]) == [tmp_path / "own"]


def test_the_file_of_topics_is_not_overwritten(tmp_path: Path) -> None:
    files = write_files(tmp_path)[:1]
    (topics := tmp_path / "ids").write_text("1\n")
    done = keystone_here("evaluate", *files, "--qrels", tmp_path / "qrels", "--topics", topics, "--out", topics)
    assert (done.returncode, topics.read_text()) == (1, "1\n")
    assert f"--out {topics}: " in done.stderr


def test_bounds_count_unjudged_documents_as_relevant(tmp_path: Path) -> None:
    second = write_files(tmp_path)[1:2]
    found = evaluate_batch(second, [tmp_path / "qrels"], parse_measures(["P@2", "RBP(p=0.5)"]), bounds=True).bounds[0]
    assert (found.as_nonrelevant["P@2"], found.as_relevant["P@2"]) == (0, 0.5)
    residuals = 0.25 + 0.25, 0.5 + 0.5  # of unjudged ranks and below the last one
    assert list(found.residual.values()) == [pytest.approx(np.mean(residuals))]


def test_bounds_count_unjudged_documents_as_0_beside_condensed_lists(tmp_path: Path) -> None:
    write_files(tmp_path)
    (tmp_path / "first").write_text("1 Q0 u 1 9 F\n1 Q0 x 2 8 F\n2 Q0 z 1 9 F\n")
    bounds = [
        evaluate_batch([tmp_path / "first"], [tmp_path / "qrels"], parse_measures(["P@1"]), cut, bounds=True).bounds
        for cut in (Cut(), Cut(condensed=True))
    ]
    assert bounds[0] == bounds[1]
    assert bounds[1][0].as_nonrelevant == {"P@1": 0.5}


def test_tukey_of_few_systems_and_topics_equals_all_permutations() -> None:
    values = np.array([[0.9, 0.8, 0.7], [0.5, 0.6, 0.2], [0.4, 0.1, 0.3]])
    ranges = [
        np.ptp(np.stack(rows).mean(axis=0))
        for rows in product(*(list(map(np.array, permutations(column))) for column in values.T))
    ]
    means = values.mean(axis=1)
    exact = np.array([[np.mean(np.array(ranges) >= abs(a - b) - 1e-9) for b in means] for a in means])
    assert run_tukey_test(values) == pytest.approx(exact, abs=0.012)


def test_tukey_of_normal_values_is_near_that_of_statsmodels() -> None:
    draw = np.random.default_rng(1)
    systems, topics = 5, 60
    values = draw.normal(0, 1, (systems, topics)) + np.linspace(0, 0.5, systems)[:, None]
    rest = values - values.mean(axis=1, keepdims=True) - values.mean(axis=0) + values.mean()
    free = (systems - 1) * (topics - 1)
    error = (rest**2).sum() / free
    found = tukeyhsd(values.mean(axis=1), topics, error, df=free / systems)
    assert run_tukey_test(values)[found[0]] == pytest.approx(found[8], abs=0.04)


@settings(deadline=None, max_examples=50)
@given(st.lists(st.booleans(), min_size=10, max_size=10))
def test_two_runs_share_a_letter_exactly_if_they_do_not_differ(differ: list[bool]) -> None:
    names = list("vwxyz")
    couples = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    pairs = [Pair(a, b, 0, 0, 0, 0, 0.01 if own else 0.9, 1) for (a, b), own in zip(couples, differ, strict=True)]
    letters = find_letters(names, pairs)
    assert [not set(letters[a]) & set(letters[b]) for a, b in couples] == differ


def test_rbo_of_equal_opposite_and_missing_lists() -> None:
    first = np.array([[1, 2, 3, 4], [5, 6, -1, -1]], dtype=np.int32)
    assert compute_rbo(first, first) == pytest.approx(1)
    assert compute_rbo(first[:1], first[:1] + 9) == 0
    assert compute_rbo(first[:1], first[:1, ::-1].copy(), 0.5) == pytest.approx(2 / 3 * 0.125 + 2 * 0.0625)


@pytest.mark.slow
def test_two_judges_have_a_column_each_and_their_agreement(tmp_path: Path) -> None:
    files = [str(path) for path in write_files(tmp_path)[:2]]
    judges = [part for name in ("qrels", "second") for part in ("--qrels", str(tmp_path / name))]
    shown = keystone("evaluate", *files, *judges, "-m", "P@2", "--format", "json")
    tables = json.loads(shown.stdout)["tables"]
    by_judge = tables["P@2 by each judge:"]
    first = by_judge[0]
    assert (first[str(tmp_path / "qrels")], first[str(tmp_path / "second")], first["mean"]) == (0.5, 0.5, 0.5)
    assert tables["Agreement of judges:"][0]["judged by both"] == "3"


def test_the_orders_of_two_judges_are_those_of_the_topics_of_both() -> None:
    first = [Evaluation(name, ("1", "2"), {"m": np.array(own)}) for name, own in (("a", [1, 0.0]), ("b", [0.5, 0.9]))]
    second = [Evaluation(name, ("1",), {"m": np.array([own])}) for name, own in (("a", 0.7), ("b", 0.2))]
    agreement = count_labels(np.array([0, 1]), np.array([0, 1]))
    head, row = list_judge_pairs([Path("x"), Path("y")], [first, second], [agreement], "m")
    assert [row[head.index(name)] for name in ("tau-b", "tau_AP")] == [1, 1]


def test_judges_agree_on_the_wanted_topics_only(tmp_path: Path) -> None:
    files = write_files(tmp_path)[:2]
    judges = [tmp_path / "qrels", tmp_path / "second"]
    board = make_board(files, judges, parse_measures(["P@2"]), Cut(topics={"1"}), Asked(), silent)
    assert board.tables["Agreement of judges:"][1][1] == "2"
