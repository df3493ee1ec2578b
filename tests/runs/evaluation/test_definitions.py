"""Measures by the names of `ir_measures`, beside plain computations of their definitions, on odd ids and grades."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keystone.indexing.errors import UserError
from keystone.runs.evaluation.evaluate import Evaluation, evaluate, evaluate_files
from keystone.runs.evaluation.measures import (
    GradedTopic,
    compute_best_f1,
    parse_measure,
    parse_measures,
    set_relevant_grade,
)
from keystone.runs.report.terminal import print_evaluations, print_topics
from keystone.runs.trec.types import make_qrels, make_run

Grades = dict[str, int]
TOPICS = ["-", "2", "1-2", "02", "2024-7", "a.b", "x y", "日本-7", "7" * 300, "_"]
DOCS = [*TOPICS, "#1", "d-1", "d 1", "q\u0301", "00", "0"]
JUDGMENTS = st.dictionaries(
    st.sampled_from(TOPICS), st.dictionaries(st.sampled_from(DOCS), st.integers(-2, 10), min_size=1), min_size=1
)
HITS = st.dictionaries(st.sampled_from(TOPICS), st.lists(st.sampled_from([*DOCS, "other", "o-2"]), unique=True))


@dataclass(frozen=True)
class Topic:
    judged: Grades
    ranked: Sequence[int]
    """The grades of its rows; -1 marks a row without a judgment."""
    top: int
    """The highest grade of all topics."""


def compute_err(topic: Topic, cutoff: int) -> float:
    value, reading = 0.0, 1.0
    for rank, grade in enumerate(topic.ranked[:cutoff], start=1):
        stop = (2 ** max(grade, 0) - 1) / 2 ** max(topic.top, 4)
        value, reading = value + reading * stop / rank, reading * (1 - stop)
    return value


def compute_ndcg(topic: Topic, cutoff: int) -> float:
    def add(grades: Sequence[int]) -> float:
        return math.fsum((2 ** max(grade, 0) - 1) / math.log2(i + 2) for i, grade in enumerate(grades[:cutoff]))

    best = add(sorted(topic.judged.values(), reverse=True))
    return add(topic.ranked) / best if best else 0


def compute_accuracy(topic: Topic, cutoff: int) -> float:
    flags = [grade >= 1 for grade in topic.ranked[:cutoff]]
    pairs = [(i, j) for i, one in enumerate(flags) for j, other in enumerate(flags) if one and not other]
    return sum(i < j for i, j in pairs) / len(pairs) if pairs else float(any(flags))


def compute_iprec(topic: Topic, share: float) -> float:
    total, found, best = sum(grade >= 1 for grade in topic.judged.values()), 0, 0.0
    for rank, grade in enumerate(topic.ranked, start=1):
        found += grade >= 1
        if found >= share * total - 1e-9:
            best = max(best, found / rank)
    return best


def count_relevant(topic: Topic, grade: int) -> float:
    return sum(own >= grade for own in topic.judged.values())


def compute_rprec(topic: Topic, grade: int) -> float:
    total = count_relevant(topic, grade)
    return sum(own >= grade for own in topic.ranked[: int(total)]) / total if total else 0


def compute_bpref(topic: Topic, grade: int) -> float:
    total, others = count_relevant(topic, grade), sum(0 <= own < grade for own in topic.judged.values())
    value, above = 0.0, 0
    for own in topic.ranked:
        if own >= grade:
            value += 1 - min(above, total) / min(total, others) if above else 1
        above += 0 <= own < grade
    return value / total if total else 0


def compute_success(topic: Topic, cutoff: int) -> float:
    return float(any(grade >= 1 for grade in topic.ranked[:cutoff]))


def count_found(topic: Topic, grade: int) -> float:
    return sum(own >= grade for own in topic.ranked)


def compute_set_f(topic: Topic, grade: int) -> float:
    found = count_found(topic, grade)
    return 2 * found / (len(topic.ranked) + count_relevant(topic, grade)) if found else 0


def compute_rbp(topic: Topic, grade: int) -> float:
    return sum(0.2 * 0.8**i for i, own in enumerate(topic.ranked) if own >= grade)


DEFINITIONS: dict[str, tuple[Callable[[Topic, Any], float], float]] = {
    "ERR@3": (compute_err, 3),
    "ERR": (compute_err, 99),
    "nDCG(dcg='exp-log2')@2": (compute_ndcg, 2),
    "nDCG(dcg='exp-log2')": (compute_ndcg, 99),
    "Accuracy": (compute_accuracy, 99),
    "Accuracy@4": (compute_accuracy, 4),
    "IPrec@0.3": (compute_iprec, 0.3),
    "IPrec@0.125": (compute_iprec, 0.125),
    "IPrec@1.0": (compute_iprec, 1.0),
    "NumRel": (count_relevant, 1),
    "NumRel(rel=2)": (count_relevant, 2),
    "NumRet(rel=5)": (count_found, 5),
    "Rprec": (compute_rprec, 1),
    "Rprec(rel=3)": (compute_rprec, 3),
    "Bpref": (compute_bpref, 1),
    "Bpref(rel=2)": (compute_bpref, 2),
    "SetF(rel=2)": (compute_set_f, 2),
    "Success@2": (compute_success, 2),
    "RBP(rel=4)": (compute_rbp, 4),
}


@settings(max_examples=60, deadline=None)
@given(JUDGMENTS, HITS)
def test_each_measure_has_the_value_of_its_definition(judged: dict[str, Grades], hits: dict[str, list[str]]) -> None:
    top = max(grade for own in judged.values() for grade in own.values())
    measures = [one for one in map(parse_measure, DEFINITIONS) if one.relevant_from <= top]
    if not measures:
        return
    found = evaluate_lists(judged, hits, *map(str, measures))
    for name in map(str, measures):
        compute, parameter = DEFINITIONS[name]
        expected = [
            compute(Topic(judged[topic], [judged[topic].get(doc, -1) for doc in hits.get(topic, [])], top), parameter)
            for topic in found.topics
        ]
        assert found.values[name].tolist() == pytest.approx(expected, abs=1e-6), name


def evaluate_lists(judged: dict[str, Grades], hits: dict[str, list[str]], *names: str) -> Evaluation:
    run = make_run("run", {topic: [(doc, float(-i)) for i, doc in enumerate(docs)] for topic, docs in hits.items()})
    return evaluate("run", run, make_qrels(judged), [parse_measure(name) for name in names])


@pytest.mark.parametrize(
    ("judged", "hits", "err", "ndcg"),
    [
        pytest.param(
            {"2": {"a": 4}, "1-2": {"b": 4}},
            {"2": ["x", "a"], "1-2": ["b", "x"]},
            {"2": 0.46875, "1-2": 0.9375},
            {"2": 0.63093, "1-2": 1},
            id="ids that end alike",
        ),
        pytest.param({"é_1": {"a": 5}}, {"é_1": ["x", "a"]}, {"é_1": 31 / 64}, {"é_1": 0.63093}, id="a grade above 4"),
        pytest.param({"1": {"a": 2000}}, {"1": ["a"]}, {"1": 1}, {"1": 1}, id="a grade whose gain is no number"),
    ],
)
def test_err_and_exponential_ndcg(
    judged: dict[str, Grades], hits: dict[str, list[str]], err: dict[str, float], ndcg: dict[str, float]
) -> None:
    found = evaluate_lists(judged, hits, "ERR@10", "nDCG(dcg='exp-log2')@10")
    first, second = (dict(zip(found.topics, own.tolist(), strict=True)) for own in found.values.values())
    assert first == pytest.approx(err)
    assert second == pytest.approx(ndcg, abs=1e-5)


def test_accuracy_counts_a_topic_without_a_relevant_row_as_zero() -> None:
    judged, hits = {"1": {"a": 1}, "2": {"b": 1}}, {"1": ["a", "x"], "2": ["x"]}
    alone, beside = evaluate_lists(judged, hits, "Accuracy"), evaluate_lists(judged, hits, "Accuracy", "Rprec")
    assert alone.mean("Accuracy") == beside.mean("Accuracy") == 0.5


def test_the_number_of_relevant_documents_takes_the_relevant_grade_and_needs_no_row() -> None:
    (measure,) = set_relevant_grade([parse_measure("NumRel")], 2)
    qrels = make_qrels({"1": {"a": 1, "b": 2, "c": 3}, "2": {"a": 2}})
    found = evaluate("run", make_run("run", {"1": [("a", 1.0)]}), qrels, [measure])
    assert {name: own.tolist() for name, own in found.values.items()} == {"NumRel(rel=2)": [2, 1]}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("bpref", "Bpref"),
        ("num_ret", "NumRet"),
        ("num_rel_ret", "NumRet(rel=1)"),
        ("success_5", "Success@5"),
        ("set_P", "SetP"),
        ("set_F.0.5", "SetF(beta=0.5)"),
        ("iprec_at_recall_0.10", "IPrec@0.1"),
        ("iprec_at_recall.0.25,0.5", "IPrec@0.25 IPrec@0.5"),
        ("P_5,10", "P@5 P@10"),
        ("ndcg_cut.5,10", "nDCG@5 nDCG@10"),
        ("success", "Success@1 Success@5 Success@10"),
        *((name, " ".join(f"{own}@{k}" for k in (5, 10, 15, 20, 30, 100, 200, 500, 1000)))
          for name, own in {"ndcg_cut": "nDCG", "map_cut": "AP", "P": "P", "recall": "R"}.items()),
        ("set", "NumQ NumRel NumRet(rel=1) NumRet SetF SetP SetAP SetR SetP(relative=True)"),
    ],
)  # fmt: skip
def test_names_of_trec_eval_are_read(name: str, expected: str) -> None:
    assert " ".join(map(str, parse_measures([name]))) == expected


def test_the_official_measures_of_trec_eval_are_read_but_for_the_geometric_mean(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = list(map(str, parse_measures(["official"])))
    assert len(found) == 9 + 11 + 8
    assert {"P@1000", "IPrec@0.0", "AP", "RR", "Bpref", "Rprec", "NumQ"} < {*found}
    assert capsys.readouterr().out == ""


def test_names_are_printed_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    found = replace(evaluate_lists({"doc:key:1": {"a": 1}}, {"doc:key:1": ["a"]}, "P@5"), name="[red]:fire:")
    print_evaluations([found])
    print_topics(found)
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines() if line] == [
        "run",
        "[red]:fire:",
        "[red]:fire:",
        "doc:key:1",
        "mean",
    ]


def test_many_measures_are_rows_of_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    judged, hits = {"1": {"a": 1}}, {"1": ["a"]}
    names = list(map(str, parse_measures(["official"])))
    found = evaluate_lists(judged, hits, *names)
    print_evaluations([found, replace(found, name="again")])
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.split() == ["measure", "run", "again", "p", "(paired", "t-test)"]
    assert [row.split()[0] for row in rows] == names
    assert rows[0].split() == ["P@5", "0.2000", "0.2000", "-"]


@pytest.mark.parametrize("name", ["runid", "prefs", "P_10x", "P_5,x", "P_5,0", "success_5.5", "bpref_3"])
def test_other_names_of_trec_eval_are_refused(name: str) -> None:
    with pytest.raises(UserError, match=r"^measure '[^\n]*$"):
        parse_measures([name])


def test_a_name_of_several_measures_is_refused_where_one_is_expected() -> None:
    with pytest.raises(UserError, match="measure 'P_5,10': stands for 2 measures; expected one, such as P@5"):
        parse_measure("P_5,10")


@pytest.mark.parametrize(
    ("judged", "ranked", "value"),
    [
        pytest.param([1, 1, 0], [1, 0, 1, -1], 0.8, id="after the third row"),
        pytest.param([1, 1], [1, -1, -1, -1], 2 / 3, id="after the first row"),
        pytest.param([1], [], 0.0, id="no row"),
        pytest.param([0], [0, -1], 0.0, id="nothing relevant"),
    ],
)
def test_the_best_cut_counts(judged: list[int], ranked: list[int], value: float) -> None:
    topic = GradedTopic(np.array(judged, dtype=np.int64), np.array(ranked, dtype=np.int64), 1)
    assert compute_best_f1(topic) == pytest.approx(value)


def test_a_grade_of_the_development_judgments_is_relevant_at_its_cut_and_no_row_scores_0(tmp_path: Path) -> None:
    """Fixture 10 of the track's measures: a line of the judgments of 2025, and a topic without a submitted row."""
    qrels, run = tmp_path / "qrels", tmp_path / "run"
    qrels.write_text("14 0 shard_04439_8336 4\n14 0 shard_00001_1 1\n31 0 shard_00001_2 2\n")
    run.write_text("14 Q0 shard_00001_1 1 2.0 r\n14 Q0 shard_04439_8336 2 1.0 r\n")
    measures = set_relevant_grade([parse_measure(name) for name in ("SetP", "SetR", "SetF")], 2)
    (found,) = evaluate_files([run], qrels, measures)
    assert found.topics == ("14", "31")
    assert [values.tolist() for values in found.values.values()] == [
        pytest.approx([0.5, 0.0]), pytest.approx([1.0, 0.0]), pytest.approx([2 / 3, 0.0])]  # fmt: skip
