"""Evaluation: the numbers equal trec_eval's for any order of lines, ties and missing topics."""

import json
import math
import random
import re
import statistics
import tracemalloc
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import ir_measures
import numpy as np
import pytest
import pytrec_eval
from hypothesis import given, settings
from hypothesis import strategies as st

from keystone.indexing.errors import UserError
from keystone.runs.evaluation.compare import build_report, run_paired_test
from keystone.runs.evaluation.evaluate import Evaluation, evaluate, evaluate_files
from keystone.runs.evaluation.measures import (
    DEFAULT_MEASURES,
    Measure,
    parse_measure,
    read_ir_measure,
    set_relevant_grade,
)
from keystone.runs.report.terminal import format_p_value
from keystone.runs.trec.run_files import read_qrels
from keystone.runs.trec.types import Run, make_qrels, make_run
from tests.support.places import SHARED
from tests.support.runs.command_line import keystone
from tests.support.runs.qrels import grades_of

Grades = Mapping[str, Mapping[str, int]]
Scores = Mapping[str, Mapping[str, float]]
NAMES = "nDCG@10 nDCG@30 nDCG@100 nDCG R@100 R@5 P@10 P@200 MAP MAP@20 MRR judged@10 judged@200".split()
MEASURES = tuple(map(parse_measure, NAMES))
TREC_EVAL = {"nDCG": "ndcg", "R": "recall", "P": "P", "MAP": "map", "MRR": "recip_rank"}
IR_MEASURES = {"nDCG": "nDCG", "R": "R", "P": "P", "MAP": "AP", "MRR": "RR", "judged": "Judged"}
DOCS = st.sampled_from([f"d{n}" for n in range(150)])
GRADES = st.dictionaries(st.sampled_from("abcd"), st.dictionaries(DOCS, st.integers(-1, 4), min_size=1), min_size=1)
HITS = st.dictionaries(DOCS, st.sampled_from([1.0, 0.5, 0.25, 1 / 61, 1 / 61 + 1e-10]) | st.floats(0, 1), max_size=130)


def measure_by_trec_eval(scores: Scores, qrels: Grades, measures: Sequence[Measure], level: int) -> dict[str, float]:
    """Compute the means over all judged topics (trec_eval -c) with trec_eval's own code."""
    asked = {}
    for measure in measures:
        if measure.family in TREC_EVAL:
            name = TREC_EVAL[measure.family]
            cut = "_cut" if measure.cutoff and measure.family in ("nDCG", "MAP") else ""
            asked[str(measure)] = (name + cut, measure.cutoff)
    wanted = {f"{name}.{cutoff}" if cutoff else name for name, cutoff in asked.values()}
    found = pytrec_eval.RelevanceEvaluator(qrels, wanted, relevance_level=level).evaluate(scores).values()
    keys = {own: f"{name}_{cutoff}" if cutoff else name for own, (name, cutoff) in asked.items()}
    return {own: sum(values[key] for values in found) / len(qrels) for own, key in keys.items()}


def measure_by_ir_measures(scores: Scores, qrels: Grades, measures: Sequence[Measure]) -> dict[str, float]:
    """Compute the means over all judged topics with `ir_measures`."""
    asked = {str(m): read_ir_measure(str(m).replace(m.family, IR_MEASURES[m.family])) for m in measures}
    found = ir_measures.calc_aggregate(list(asked.values()), qrels, scores)
    return {own: float(found[measure]) for own, measure in asked.items()}


def shuffle(scores: Scores, seed: int) -> Run:
    hits = {topic: list(own.items()) for topic, own in scores.items()}
    for own in hits.values():
        random.Random(seed).shuffle(own)
    return make_run("tag", hits)


def raise_negative_grades(qrels: Grades) -> Grades:
    """Raise a topic's grades to 0 if all are below 0, because trec_eval then reads memory that it never wrote.

    A grade of 0 counts the same: judged, and not relevant.
    """
    return {topic: own if max(own.values()) >= 0 else dict.fromkeys(own, 0) for topic, own in qrels.items()}


def assert_measures_agree(scores: Scores, qrels: Grades, level: int, ties: bool) -> None:
    measures = set_relevant_grade(MEASURES, level)
    evaluation = evaluate("run", shuffle(scores, 0), make_qrels(qrels), measures)
    means = {str(measure): evaluation.mean(str(measure)) for measure in measures}
    qrels = raise_negative_grades(qrels)
    expected = measure_by_trec_eval(scores, qrels, measures, level)
    assert expected == pytest.approx({name: means[name] for name in expected}, abs=1e-6)
    # For judged@k, ir_measures orders ties differently from trec_eval
    measures = tuple(m for m in measures if not ties or m.family != "judged")
    assert measure_by_ir_measures(scores, qrels, measures) == pytest.approx(
        {str(m): means[str(m)] for m in measures}, abs=1e-6
    )


@settings(max_examples=60)
@given(GRADES, st.dictionaries(st.sampled_from("abcde"), HITS), st.sampled_from([1, 1, 2, 4]))
def test_measures_equal_those_of_trec_eval_and_ir_measures(qrels: Grades, scores: Scores, level: int) -> None:
    best = max(grade for own in qrels.values() for grade in own.values())
    if best >= level:
        assert_measures_agree(scores, qrels, level, ties=True)
        return
    found = evaluate("run", shuffle(scores, 0), make_qrels(qrels), measures := set_relevant_grade(MEASURES, level))
    without = {str(m) for m in measures if m.family != "judged" and m.relevant_from > best}
    assert {name for name in found.values if np.isnan(found.mean(name))} == without
    assert any(f"no judged topic has a document of grade {level} or more" in caution for caution in found.cautions)


@pytest.mark.parametrize(
    ("qrels", "scores"),
    [
        pytest.param({"1": {"a": 1}, "2": {"b": 0}}, {"1": {"a": 1.0}, "2": {"b": 1.0}}, id="no relevant document"),
        pytest.param({"1": {"a": 1, "b": -2}}, {"1": {"b": 2.0, "a": 1.0}}, id="a negative grade"),
        pytest.param({"1": {"a": 1}, "2": {"b": 1}}, {"1": {"a": 1.0}, "3": {"b": 1.0}}, id="missing topics"),
        pytest.param({"1": {"a": 1}}, {"1": {"a": 0.5, "b": 0.5, "c": 0.5}}, id="ties"),
        pytest.param({"1": {"a": 1}}, {"1": {"a": 0.0327868852, "b": 0.03278688521}}, id="ties in float32"),
        pytest.param(
            {"1": {"a": 1}}, {"1": {"a": 1e30, "b": -1e30, "c": 1e-30}}, id="very large and very small scores"
        ),
        pytest.param({"1": {"a": 300, "b": 1}}, {"1": {"b": 2.0, "a": 1.0}}, id="a large grade"),
        pytest.param({"1": {"é": 1, "z": 1}}, {"1": {"é": 1.0, "z": 1.0, "x": 1.0}}, id="ties of ids beyond ASCII"),
    ],
)
def test_measures_agree_on_edge_cases(qrels: Grades, scores: Scores) -> None:
    assert_measures_agree(scores, qrels, 1, ties=True)


@pytest.mark.slow
@pytest.mark.skipif(not SHARED.exists(), reason="the real collections are not on this machine")
@pytest.mark.parametrize("path", sorted(SHARED.glob("*/qrels*")), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_measures_agree_on_real_judgments(path: Path) -> None:
    """The run is that of a mediocre system: judged documents by noisy grades, and other documents."""
    rng = random.Random(path.name)
    qrels = grades_of(read_qrels(path))
    scores: dict[str, dict[str, float]] = {}
    for topic, own in qrels.items():
        if rng.random() < 0.95:
            found = {doc: grade + rng.gauss(0, 1.5) for doc, grade in own.items() if rng.random() < 0.8}
            scores[topic] = {**found, **{f"other-{i}": rng.gauss(0, 1) for i in range(rng.randrange(300))}}
    for level in (1, 2):
        if any(grade >= level for own in qrels.values() for grade in own.values()):
            assert_measures_agree(scores, qrels, level, ties=False)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nDCG@20", Measure("nDCG", 20)),
        ("ndcg", Measure("nDCG")),
        ("R(rel=2)@100", Measure("R", 100, 2)),
        ("AP", Measure("AP")),
        ("MRR@10", Measure("MRR", 10)),
        ("judged@5", Measure("judged", 5)),
        ("Judged@5", Measure("judged", 5)),
        ("ndcg_cut_10", Measure("nDCG", 10)),
        ("ndcg_cut.10", Measure("nDCG", 10)),
        ("recall_100", Measure("R", 100)),
        ("Recall@100", Measure("R", 100)),
        ("P_10", Measure("P", 10)),
        ("precision@10", Measure("P", 10)),
        ("map", Measure("MAP")),
        ("map_cut_20", Measure("MAP", 20)),
        ("recip_rank", Measure("RR")),
        ("AP(rel=2)@100", Measure("AP", 100, 2)),
    ],
)
def test_a_measure_is_parsed_from_its_usual_names(name: str, expected: Measure) -> None:
    assert parse_measure(name) == expected
    assert parse_measure(str(expected)) == expected


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("nDCG10", "nDCG@10"),
        ("ndgc@20", "nDCG@20"),
        ("recal_100", "R@100"),
        ("nDCG@10-l2", "nDCG@10"),
        ("MRR-10", "MRR@10"),
        ("Precison", "P@10"),
    ],
)
def test_an_error_about_an_unknown_measure_suggests_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_measure(name)
    assert str(caught.value).endswith(f"; {nearest} is the nearest")
    assert str(parse_measure(nearest)) == nearest


@pytest.mark.parametrize("name", "nDCG@ R P judged F1 nDCG@0 nDCG(rel=2)@10 R(rel=0)@5 R@1.5 R@-1 MAP@ten".split())
def test_an_impossible_measure_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="measure '"):
        parse_measure(name)


def test_relevant_from_changes_only_binary_measures() -> None:
    wanted = set_relevant_grade(tuple(map(parse_measure, ["nDCG@10", "R@5", "R(rel=3)@5", "MAP", "judged@10"])), 2)
    assert " ".join(map(str, wanted)) == "nDCG@10 R(rel=2)@5 R(rel=3)@5 MAP(rel=2) judged@10"


@pytest.mark.parametrize(
    "named",
    [
        "R(rel=1)@1",
        "P(rel=1,cutoff=5)",
        "AP(rel=1)",
        "SetP(rel=1)",
        "Success(rel=1)@3",
        "P_IA(rel=1)@5",
        "Rprec(rel=1)",
    ],
)
def test_relevant_from_keeps_the_grade_that_a_name_gives(named: str) -> None:
    both = set_relevant_grade([parse_measure(named), parse_measure(re.sub(r"rel=1,?|\(rel=1\)", "", named))], 2)
    assert [measure.relevant_from for measure in both] == [1, 2]
    assert str(both[0]) != str(both[1])


def write_rows(path: Path, *rows: str) -> Path:
    path.write_text("".join(f"{row}\n" for row in rows))
    return path


def test_two_runs_are_compared_topic_by_topic(tmp_path: Path) -> None:
    qrels = write_rows(tmp_path / "qrels", *(f"{t} 0 d{t} 1" for t in range(8)))
    good = write_rows(tmp_path / "good", *(f"{t} Q0 d{t} 1 0.9 good" for t in range(8)))
    poor = write_rows(tmp_path / "poor", *(f"{t} Q0 {'d' if t < 2 else 'x'}{t} 1 0.9 poor" for t in range(8)))
    first, second, third = evaluate_files([good, poor, good], qrels)
    assert (first.mean("MRR"), second.mean("MRR")) == (1.0, 0.25)
    differences = [a - b for a, b in zip(first.values["MRR"], second.values["MRR"], strict=True)]
    t = statistics.mean(differences) / (statistics.stdev(differences) / 8**0.5)
    assert t == pytest.approx(4.58, abs=0.01)
    assert run_paired_test(first, second)["MRR"] == pytest.approx(0.00253, abs=1e-5)  # t of 4.58 with 7 degrees
    assert set(run_paired_test(first, third).values()) == {1.0}
    report = build_report([first, second])
    assert report["runs"][1]["topics"]["2"]["MRR"] == 0.0
    assert report["paired_t_test"][0]["p"]["MRR"] == pytest.approx(0.00253, abs=1e-5)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        pytest.param(
            ["007 Q0 a 1 0.5 t"],
            "none of its topics is judged in .*: its topics look like '007', those of the judgments like '7'",
            id="other topics",
        ),
        pytest.param([], "holds no row", id="no row"),
    ],
)
def test_a_run_without_a_judged_topic_is_refused(tmp_path: Path, rows: list[str], message: str) -> None:
    qrels = write_rows(tmp_path / "qrels", "7 0 a 1")
    with pytest.raises(UserError, match=message):
        evaluate_files([write_rows(tmp_path / "run", *rows)], qrels)


@pytest.mark.parametrize(
    ("kept", "ranked", "name", "warned"),
    [
        pytest.param(1, 2, "graded.trec", True, id="fewer rows are submitted"),
        pytest.param(2, 2, "graded.trec", False, id="a selected set is submitted whole"),
        pytest.param(1, 1, "narrative.trec", True, id="a ranking before the selected set"),
        pytest.param(1, 2, "submitted.tsv", False, id="the submitted file"),
    ],
)
def test_measures_of_sets_warn_of_rows_that_a_run_does_not_submit(
    tmp_path: Path, kept: int, ranked: int, name: str, warned: bool
) -> None:
    write_rows(tmp_path / "depths.jsonl", json.dumps({"topic_id": "1", "rows": kept, "ranked": ranked, "why": "-"}))
    run = write_rows(tmp_path / name, "1 Q0 a 1 2 t", "1 Q0 b 2 1 t")
    (found,) = evaluate_files([run], write_rows(tmp_path / "qrels", "1 0 a 1"), [parse_measure("SetF")])
    assert [f"{run}: SetF of all rows" in caution for caution in found.cautions] == [True] * warned


def test_evaluation_is_refused_if_no_measure_has_a_relevant_document(tmp_path: Path) -> None:
    qrels, run = write_rows(tmp_path / "qrels", "1 0 a 0"), write_rows(tmp_path / "run", "1 Q0 a 1 1 t")
    with pytest.raises(UserError, match=r"no judged topic has a relevant document .of grade 1 or more."):
        evaluate_files([run], qrels, [parse_measure("MAP"), parse_measure("R(rel=2)@10")])


def rows_of(topic: str, *docs: str) -> list[str]:
    return [f"{topic} Q0 {doc} {i + 1} {-i} t" for i, doc in enumerate(docs)]


@pytest.mark.parametrize(
    ("qrels", "runs", "expected"),
    [
        pytest.param(["1 0 a 1", "1 0 b 0"], [rows_of("1", "a", "x")], [], id="no caution"),
        pytest.param(
            ["1 0 a 1", "2 0 a 0"],
            [rows_of("1", "a")],
            [
                "judged topics without a document of grade 1 or more, which count 0: 1 of 2",
                "A: judged topics without a row, which count 0: 1 of 2, such as 2",
            ],
            id="topics without rows and without relevant documents",
        ),
        pytest.param(
            ["1 0 a 1", "7 0 a 1"],
            [[*rows_of("1", "a"), *rows_of("007", "a")]],
            [
                "A: judged topics without a row, which count 0: 1 of 2, such as 7",
                "A: topics without a judgment, which are left out: 1 of 2, such as 007",
                "A: its topic '007' is not '7' of the judgments; ids must be the same",
            ],
            id="the form of topic ids",
        ),
        pytest.param(
            ["1 0 a 0"],
            [rows_of("1", "a")],
            ["MRR, MAP: not measured, as no judged topic has a document of grade 1 or more"],
            id="all judgments zero",
        ),
        pytest.param(
            ["1 0 a 1", "1 0 b 0"],
            [rows_of("1", "b")],
            ["A: every measure of relevance is 0 for every topic"],
            id="all measures zero",
        ),
        pytest.param(
            ["1 0 d1#0_1 1", "1 0 d1#1_2 1"],
            [rows_of("1", "d1", "d2")],
            [
                "A: no row is judged; its ids look like 'd1', those of the judgments like 'd1#1_2'",
                "A: its rows are documents, the judgments segments: 1 of the first 2 rows are of a judged document",
            ],
            id="documents against segments",
        ),
        pytest.param(
            ["1 0 d1 1"],
            [rows_of("1", "d1#0_1", "d1#5_5", "d2#0_1")],
            [
                "A: no row is judged; its ids look like 'd1#0_1', those of the judgments like 'd1'",
                "A: its rows are segments, the judgments documents: 2 of the first 3 rows are of a judged document",
            ],
            id="segments against documents",
        ),
        pytest.param(
            ["1 0 MED-1 1"],
            [rows_of("1", "1")],
            ["A: no row is judged; its ids look like '1', those of the judgments like 'MED-1'"],
            id="other documents",
        ),
        pytest.param(
            ["1 0 a 1"],
            [["1 Q0 a 1 0.1 t", "1 Q0 b 2 0.2 t", "1 Q0 c 3 0.2 t"]],
            ["A: scores grow from row to row, so the last row of a topic is ranked first; are they distances?"],
            id="distances",
        ),
        pytest.param(
            ["1 0 a 1", "1 0 b 1"],
            [["1 Q0 b 1 1e39 t", "1 Q0 a 2 1e39 t"]],
            [],
            id="scores beyond float32",
        ),
        pytest.param(
            ["1 0 a 1", "2 0 a 1"],
            [["1 Q0 a 1 1 t", "1 Q0 b 2 1 t", "2 Q0 a 1 2 t", "2 Q0 b 2 2 t"]],
            ["A: all scores of a topic are equal, so document ids order its rows, not their places in the file"],
            id="equal scores",
        ),
        pytest.param(
            ["1 0 a 1", "2 0 a 1"],
            [[*rows_of("1", "a"), *rows_of("2", "b", "a")]] * 2,
            ["A and B: the same numbers for every topic"],
            id="the same run twice",
        ),
        pytest.param(
            ["1 0 a 1"],
            [rows_of("1", "a", "b"), rows_of("1", "b", "a")],
            ["A and B: no paired test, because only one topic is judged"],
            id="one topic",
        ),
        pytest.param(
            ["1 0 a 1", "2 0 a 1"],
            [[*rows_of("1", "a", "b"), *rows_of("2", "a", "b")], [*rows_of("1", "b", "a"), *rows_of("2", "b", "a")]],
            ["A and B: no paired test of MRR, MAP, because all topics differ by the same amount"],
            id="a constant difference",
        ),
        pytest.param(
            ["1 0 a 1", "2 0 a 1"],
            [
                [*rows_of("1", "a", "b", "c"), *rows_of("2", "b", "a", "c")],
                [*rows_of("1", *"adefghijkl"), *rows_of("2", *"adefghijkl")],
            ],
            [
                "rankings of unequal depth: A has 3 rows for each topic, B 10; not comparable by MRR, MAP",
                "the first 10 documents are not judged alike: A 33%, B 10%; unjudged documents count as not relevant, "
                "so compare with --bounds or --condensed",
            ],
            id="unequal depth",
        ),
    ],
)
def test_misleading_numbers_get_a_caution(
    tmp_path: Path, qrels: list[str], runs: list[list[str]], expected: list[str]
) -> None:
    judgments = write_rows(tmp_path / "qrels", *qrels)
    paths = [write_rows(tmp_path / name, *rows) for name, rows in zip("AB", runs, strict=False)]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # also warnings of SciPy
        measures = [parse_measure(name) for name in ("MRR", "MAP", "judged@3")]
        found = build_report(evaluate_files(paths, judgments, measures))["warnings"]
    assert [caution.replace(f"{tmp_path}/", "") for caution in found] == expected


def test_the_p_value_equals_that_of_scipy() -> None:
    from scipy.stats import ttest_rel

    rng = np.random.default_rng(0)
    for topics in (2, 3, 50):
        one, other = rng.random(topics), rng.random(topics)
        first, second = (Evaluation("", tuple(map(str, range(topics))), {"m": values}) for values in (one, other))
        assert run_paired_test(first, second)["m"] == pytest.approx(float(ttest_rel(one, other).pvalue))
    assert [format_p_value(p) for p in (0.0, 0.00099, 0.001, 0.0494, 1.0, math.nan)] == [
        "< .001", "< .001", "0.001", "0.049", "1.000", "-",
    ]  # fmt: skip


@pytest.mark.slow
def test_one_deep_topic_among_many_takes_only_the_memory_of_its_rows(tmp_path: Path) -> None:
    """If all arrays had the width of the deepest topic, they would take 24 GB, and the hash tables 200 GB of writes."""
    topics, depth = 20_000, 100_000
    qrels = write_rows(tmp_path / "qrels", *(f"{t} 0 d{t} 1" for t in range(topics)), f"0 0 d{depth - 1} 1")
    deep, others = rows_of("0", *(f"d{i}" for i in range(depth))), (f"{t} Q0 d{t} 1 1 t" for t in range(1, topics))
    run = write_rows(tmp_path / "run", *deep, *others)
    evaluate_files([run], qrels)  # compiles the loops before memory is counted
    tracemalloc.start()
    (found,) = evaluate_files([run], qrels)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1000 * (topics + depth)
    assert found.mean("MRR") == 1.0
    assert found.values["MAP"][0] == pytest.approx((1 + 2 / depth) / 2)


@pytest.mark.slow
def test_the_command_prints_the_requested_measures(tmp_path: Path) -> None:
    qrels = write_rows(tmp_path / "qrels", "1 0 a 1", "1 0 b 2", "2 0 a 2")
    run = write_rows(tmp_path / "run", "1 Q0 a 1 2 t", "1 Q0 b 2 1 t", "1 Q0 c 3 0 t", "2 Q0 b 1 1 t")
    asked = ["-m", "MRR", "-m", "judged@10", "-m", "nDCG@20", "--relevant-from", "2"]
    done = keystone("evaluate", run, "--qrels", qrels, "--quiet", *asked)
    assert done.stdout.splitlines()[0].split() == ["run", "MRR(rel=2)", "judged@10", "nDCG@20"]
    assert done.stdout.split()[-3:] == ["0.2500", "0.3333", "0.4299"]
    refused = keystone("evaluate", run, "--qrels", qrels, "-m", "F1@10")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("error: measure 'F1@10': unknown; expected one of nDCG, R, P, MAP,")


@pytest.mark.slow
def test_the_command_prints_the_judged_share_and_warnings(tmp_path: Path) -> None:
    qrels = write_rows(tmp_path / "qrels", "1 0 a 1", "2 0 a 1")
    run = write_rows(tmp_path / "run", *rows_of("1", "a", "b", "c"))
    report_path = tmp_path / "out.json"
    done = keystone("evaluate", run, "--qrels", qrels, "-m", "MAP", "-m", "R(rel=2)@10", "--out", report_path)
    assert done.stdout.split()[-3:] == [str(run), "0.5000", "-"]
    lines = done.stderr.splitlines()
    assert f"{run}: 1 of 2 judged topics answered, 1 of 3 rows judged, 33.3%" in lines
    warned = [line.removeprefix("warning: ") for line in lines if line.startswith("warning: ")]
    assert len(warned) == 2
    report = json.loads(report_path.read_text())
    assert report["warnings"] == warned
    assert report["runs"][0]["counts"] == {
        "judged_topics": 2, "answered_topics": 1, "rows": 3, "judged_rows": 1, "depth": 3,
    }  # fmt: skip
    assert report["runs"][0]["mean"] == {"MAP": 0.5, "R(rel=2)@10": None}


def test_the_default_measures() -> None:
    assert " ".join(map(str, DEFAULT_MEASURES)) == "nDCG@10 nDCG@30 nDCG@100 R@100 MAP MRR judged@10"
