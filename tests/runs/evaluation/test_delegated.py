"""Measures that `ir_measures` computes, and those of diversity: names, subtopics, and the numbers of other tools."""

import math
import random
import sys
from collections.abc import Callable
from itertools import permutations
from pathlib import Path
from typing import Any

import ir_measures
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keystone.indexing.errors import UserError
from keystone.runs.evaluation.evaluate import Evaluation, evaluate
from keystone.runs.evaluation.measures import parse_measure, read_ir_measure, set_relevant_grade
from keystone.runs.trec.run_files import read_qrels, write_qrels
from keystone.runs.trec.types import make_run
from tests.support.runs.qrels import grades_of

ALWAYS = "Rprec Bpref SetF IPrec@0.1 Success@5 Compat NumRet infAP AP(judged_only=True)@10".split()
OF_CWL = ["RBP(rel=1)", "RBP(p=0.5,rel=2)", "BPM(T=2.0,min_rel=0,max_rel=3)@10"]
PACKAGE_OF = dict.fromkeys(ALWAYS, "pytrec_eval") | dict.fromkeys(OF_CWL, "cwl")
Key = tuple[str, str, str]
"""Topic, subtopic and document."""
JUDGMENTS = st.dictionaries(
    st.tuples(
        st.sampled_from("123"), st.sampled_from(["0", "s1", "s2"]), st.sampled_from([f"d{n}" for n in range(12)])
    ),
    st.integers(-1, 3),
    min_size=1,
)
HITS = st.dictionaries(st.sampled_from("1234"), st.lists(st.sampled_from("abcdefghijxyz"), unique=True))


def write_judgments(path: Path, judged: dict[Key, int]) -> Path:
    path.write_text("".join(f"{t} {s}  {d}\t{grade}\n" for (t, s, d), grade in judged.items()))
    return path


def evaluate_lists(hits: dict[str, list[str]], qrels: Path, *names: str) -> Evaluation:
    run = make_run("run", {topic: [(doc, float(-i)) for i, doc in enumerate(docs)] for topic, docs in hits.items()})
    return evaluate("run", run, read_qrels(qrels), [parse_measure(name) for name in names])


@settings(max_examples=15, deadline=None)
@given(JUDGMENTS, HITS)
@pytest.mark.parametrize("name", PACKAGE_OF)
def test_a_delegated_measure_has_the_values_of_ir_measures(
    name: str,
    tmp_path_factory: pytest.TempPathFactory,
    judged: dict[Key, int],
    hits: dict[str, list[str]],
) -> None:
    pytest.importorskip(PACKAGE_OF[name])
    if max(judged.values()) < 2:
        return
    path = write_judgments(tmp_path_factory.mktemp("judged") / "qrels", judged)
    found = evaluate_lists(hits, path, name)
    measure = read_ir_measure(name)
    best = grades_of(read_qrels(path))
    lift = {t: max(own.values()) < 0 for t, own in best.items()}  # trec_eval would read memory beyond its arrays
    rows = [ir_measures.Qrel(t, d, 0 if lift[t] else grade) for t, own in best.items() for d, grade in own.items()]
    run = [ir_measures.ScoredDoc(t, d, float(len(docs) - i)) for t, docs in hits.items() for i, d in enumerate(docs)]
    expected = dict.fromkeys(found.topics, math.nan)
    expected |= {one.query_id: one.value for one in ir_measures.iter_calc([measure], rows, run)}
    assert found.values[str(parse_measure(name))] == pytest.approx(
        [expected[topic] for topic in found.topics], abs=1e-6, nan_ok=True
    )


def test_alpha_ndcg_and_subtopic_recall_of_a_small_example(tmp_path: Path) -> None:
    """By hand: b repeats the subtopic of a, so its gain is halved (Clarke et al., SIGIR 2008)."""
    qrels = write_judgments(tmp_path / "qrels", {("1", "s1", "a"): 1, ("1", "s1", "b"): 1, ("1", "s2", "c"): 1})
    found = evaluate_lists({"1": ["a", "b", "c"]}, qrels, "alpha_nDCG@3", "StRecall@2")
    gain = 1 + 0.5 / math.log2(3) + 1 / math.log2(4)
    ideal = 1 + 1 / math.log2(3) + 0.5 / math.log2(4)
    assert found.values["alpha_nDCG@3"] == pytest.approx([gain / ideal])
    assert found.values["StRecall@2"] == pytest.approx([0.5])
    assert found.cautions == ()


def test_ties_have_the_order_of_trec_eval_in_every_measure(tmp_path: Path) -> None:
    qrels = write_judgments(tmp_path / "qrels", {("1", "0", "b"): 1, ("1", "0", "a"): 0})
    run = make_run("run", {"1": [("a", 1.0), ("b", 1.0)]})
    found = evaluate("run", run, read_qrels(qrels), [parse_measure("Success@1"), parse_measure("MRR")])
    assert found.values["Success@1"].tolist() == found.values["MRR"].tolist() == [1.0]


def test_judgments_by_subtopic_are_kept(tmp_path: Path) -> None:
    judged = {("2", "s1", "a"): 1, ("1", "s2", "a"): 0, ("2", "s2", "a"): 3, ("1", "s1", "b"): -1}
    qrels = read_qrels(write_judgments(tmp_path / "qrels", judged))
    assert grades_of(qrels) == {"2": {"a": 3}, "1": {"a": 0, "b": -1}}
    write_qrels(tmp_path / "again", qrels.select(["1", "2"]))
    assert sorted((tmp_path / "again").read_text().splitlines()) == sorted(
        f"{t} {s} {d} {grade}" for (t, s, d), grade in judged.items()
    )


def test_two_grades_for_one_subtopic_are_refused(tmp_path: Path) -> None:
    (tmp_path / "qrels").write_text("1 s1 a 1\n1 s2 a 2\n1 s1 a 1\n1 s1  a 0\n")
    with pytest.raises(UserError, match=r"qrels:4: document a has two grades for 1, see line 1"):
        read_qrels(tmp_path / "qrels")


def test_subtopics_and_their_absence_get_a_caution(tmp_path: Path) -> None:
    qrels = write_judgments(tmp_path / "qrels", {("1", "s1", "a"): 1, ("1", "s2", "a"): 2})
    found = evaluate_lists({"1": ["a"]}, qrels, "MRR").cautions
    assert found == ("1 of 2 judgments are of a document's further subtopics; measures without subtopics take its "
                     "highest grade",)  # fmt: skip
    qrels = write_judgments(tmp_path / "plain", {("1", "0", "a"): 1})
    found = evaluate_lists({"1": ["a"]}, qrels, "StRecall@5", "MRR").cautions
    assert found == ("StRecall@5: the judgments name no subtopics in their second column",)


def test_topics_whose_grades_are_all_negative_count_zero(tmp_path: Path) -> None:
    qrels = write_judgments(tmp_path / "qrels", {("1", "0", "a"): -1, ("2", "0", "a"): 1})
    found = evaluate_lists({"1": ["a"], "2": ["a"]}, qrels, "Rprec", "Bpref")
    assert np.array_equal(found.values["Rprec"], [0, 1])


def test_a_fault_of_ir_measures_is_an_error_that_names_the_measures(tmp_path: Path) -> None:
    qrels = write_judgments(tmp_path / "qrels", {("1", "0", "a"): 1})
    with pytest.raises(UserError, match=r"BPM.*: ir_measures cannot compute it on these judgments: min_rel must be"):
        evaluate_lists({"1": ["a"]}, qrels, "BPM(min_rel=3,max_rel=3)@5")


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("Rprec", "Rprec"),
        ("NumRelRet", "NumRet(rel=1)"),
        ("Success(rel=2)@5", "Success(rel=2)@5"),
        ("nDCG(gains={1: 5})@10", "nDCG(gains={1:5})@10"),
    ],
)
def test_a_name_of_ir_measures_is_printed_as_it_prints_it(name: str, printed: str) -> None:
    assert str(parse_measure(name)) == printed
    assert parse_measure(printed) == parse_measure(name)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Success", "expected the parameter cutoff"),
        ("Rprec(rel=a)", "unknown"),
        ("Rprec(grade=2)", "unsupported params found: ['grade']"),
        ("alpha_ndgc@20", "alpha_nDCG@20 is the nearest"),
        ("nDCG(dcg='exp-log2', gains={1: 2})@5", "only with other parameters"),
        ("ERR@0", "expected a cutoff from 1 to 1,000,000"),
        ("P_IA@1000001", "expected a cutoff from 1 to 1,000,000"),
        ("Success@True", "found cutoff=True, expected a whole number"),
        ("P_IA", "expected a cutoff, as in P_IA@10"),
        ("StRecall(rel=2)", "expected a cutoff, as in StRecall@10"),
        ("NRBP(alpha=2.0)", "expected alpha between 0 and 1"),
        ("__import__('os')", "unknown"),
    ],
)
def test_an_impossible_name_is_refused_with_the_reason(name: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_measure(name)
    assert message in str(caught.value)


def test_a_measure_whose_package_is_missing_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ir_measures.cwl_eval, "_is_available", False)
    with pytest.raises(UserError, match=r"it needs: pip install ir-measures\[cwl_eval\]"):
        parse_measure("RBP")


def test_the_relevant_grade_reaches_delegated_measures() -> None:
    names = ["Rprec", "Success(rel=3)@5", "NumRet", "Compat"]
    assert " ".join(map(str, set_relevant_grade(list(map(parse_measure, names)), 2))) == (
        "Rprec(rel=2) Success(rel=3)@5 NumRet Compat"
    )


NAMES = [
    *PACKAGE_OF,
    "nDCG(dcg='exp-log2')@10",
    "nDCG(gains={0: 0, 1: 5})",
    "AP(judged_only=False)",
    "P@None",
    "RBP(p=-1)",
    "RBP(0.8)",
    "RBP(p=(1,))",
    "RBP(p=b'1')",
    "RBP(q=1)",
    "RBP(**{})",
    "RBP(p={**{}})",
    "RBP(p={{}: 1})",
    "nothing@10",
    "P@10@10",
    "P@",
    "P@x",
    "P, P",
    "P; P",
    "P = 1",
    "a.P@1",
    "lambda: P",
    "",
    "P(" * 50,
    "P\0",
]


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="ir_measures 0.4 cannot read names there")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", NAMES)
def test_names_are_read_as_ir_measures_reads_them(name: str) -> None:
    assert describe_reading(read_ir_measure, name) == describe_reading(ir_measures.parse_measure, name)


def describe_reading(read: Callable[[str], Any], name: str) -> str:
    """The measure as it prints itself, or the type of the error."""
    try:
        return repr(read(name))
    except (ValueError, NameError, TypeError, KeyError, RecursionError) as error:
        return type(error).__name__


DIVERSE = [
    "alpha_nDCG@20", "alpha_nDCG(alpha=0.8)@3", "alpha_nDCG(rel=2)@4", "alpha_DCG@5", "StRecall@2", "StRecall(rel=2)@3",
    "ERR_IA@10", "ERR_IA(rel=2)@10", "nERR_IA@4", "P_IA@5", "P_IA(rel=2)@3", "AP_IA", "AP_IA(rel=2)", "NRBP",
    "NRBP(alpha=0.9,beta=0.8)", "nNRBP", "nNRBP(rel=2)",
]  # fmt: skip
DOCS, SUBTOPICS = [f"d{n}" for n in range(7)], ["s1", "s2", "s10", "s3"]
SUBTOPIC_JUDGMENTS = st.dictionaries(
    st.tuples(st.sampled_from(SUBTOPICS), st.sampled_from(DOCS)), st.integers(-1, 3), min_size=1
)
Judged = dict[tuple[str, str], int]
"""Grades of one topic by subtopic and document."""


def evaluate_list(folder: Path, judged: Judged, ranking: list[str], *names: str) -> Evaluation:
    path = folder / "qrels"
    path.write_text("".join(f"1 {subtopic} {doc} {grade}\n" for (subtopic, doc), grade in judged.items()))
    run = make_run("run", {"1": [(doc, float(-place)) for place, doc in enumerate(ranking)]})
    return evaluate("run", run, read_qrels(path), [parse_measure(name) for name in names])


def measure_by_ndeval(judged: Judged, ranking: list[str], name: str) -> float:
    qrels = [ir_measures.Qrel("1", doc, grade, subtopic) for (subtopic, doc), grade in judged.items()]
    run = [ir_measures.ScoredDoc("1", doc, float(-place)) for place, doc in enumerate(ranking)]
    (found,) = ir_measures.iter_calc([read_ir_measure(name)], qrels, run)
    return float(np.nan_to_num(found.value))  # nNRBP of a topic without a relevant document is 0 / 0 there


@settings(max_examples=25, deadline=None)
@given(
    SUBTOPIC_JUDGMENTS,
    st.lists(st.sampled_from([*DOCS, "x", "y"]), unique=True, min_size=1),
    st.randoms(use_true_random=False),
)
def test_each_measure_has_the_value_of_ndeval(
    tmp_path_factory: pytest.TempPathFactory, judged: Judged, ranking: list[str], rng: random.Random
) -> None:
    """Ndeval orders equal documents of the ideal ranking by id. So renaming documents can give it several values."""
    pytest.importorskip("pyndeval")
    names = [name for name in DIVERSE if max(judged.values()) >= parse_measure(name).relevant_from]
    if not names:
        return
    found = evaluate_list(tmp_path_factory.mktemp("judged"), judged, ranking, *names)
    renamings = [dict(zip(DOCS, rng.sample(DOCS, len(DOCS)), strict=True)) for _ in range(8)]
    for name in names:
        expected = [
            measure_by_ndeval(
                {(s, ids[d]): grade for (s, d), grade in judged.items()}, [ids.get(d, d) for d in ranking], name
            )
            for ids in renamings
        ]
        (value,) = found.values[str(parse_measure(name))].tolist()
        assert min(expected) - 1e-6 <= value <= max(expected) + 1e-6, name


def test_a_tie_of_the_ideal_ranking_is_not_broken_by_ids(tmp_path: Path) -> None:
    """Since c shares a subtopic with a and another with b, ndeval's ideal depends on which document comes first."""
    kinds = {"a": "12", "b": "34", "c": "13"}
    found = set()
    for names in permutations(["d1", "d2", "d3"]):
        for numbers in ("1234", "4321", "9a0b"):
            judged = {
                (numbers[int(subtopic) - 1], doc): 1
                for doc, own in zip(names, kinds.values(), strict=True)
                for subtopic in own
            }
            values = evaluate_list(tmp_path, judged, [names[0]], "alpha_nDCG@3", "nERR_IA@3").values
            found.add(tuple(round(float(own[0]), 12) for own in values.values()))
    assert len(found) == 1


@pytest.mark.parametrize(
    ("asked", "beside"),
    [
        ("ERR_IA@10", "ERR_IA(rel=2)@10"),
        ("alpha_nDCG(alpha=0.9)@10", "alpha_nDCG@10"),
        ("StRecall(rel=2)@10", "alpha_nDCG@10"),
        ("alpha_nDCG(judged_only=True)@10", "alpha_nDCG@10"),
    ],
)
def test_measures_of_other_parameters_change_nothing(tmp_path: Path, asked: str, beside: str) -> None:
    judged = {("1", "a"): 1, ("2", "a"): 2, ("2", "b"): 1, ("3", "c"): 3}
    ranking = ["x", "b", "c", "a"]
    alone = [evaluate_list(tmp_path, judged, ranking, name).values[name][0] for name in (asked, beside)]
    together = evaluate_list(tmp_path, judged, ranking, asked, beside)
    assert [own[0] for own in together.values.values()] == alone
    assert all(alone)
    assert alone[0] != alone[1]


def test_cutoffs_beyond_20_and_the_first_rank_are_measured(tmp_path: Path) -> None:
    """Ndeval has no value below rank 20, and does not divide ERR-IA and alpha-DCG at rank 1 by the best value."""
    judged = {(str(n % 2), f"d{n}"): 1 for n in range(40)}
    ranking = [f"x{n}" for n in range(24)] + ["d0", "d1"]
    found = evaluate_list(
        tmp_path, judged, ranking, "StRecall@25", "P_IA@30", "alpha_nDCG@25", "ERR_IA@1", "alpha_DCG@1"
    )
    ideal = sum(0.5 ** (rank // 2) / math.log2(rank + 2) for rank in range(25))
    assert [own[0] for own in found.values.values()] == pytest.approx([0.5, 2 / 60, 1 / math.log2(26) / ideal, 0, 0])
    best = evaluate_list(tmp_path, {("1", "a"): 1, ("2", "a"): 1, ("3", "b"): 1}, ["a"], "ERR_IA@1", "alpha_DCG@1")
    assert [own[0] for own in best.values.values()] == pytest.approx([2 / 3, 2 / 3])
