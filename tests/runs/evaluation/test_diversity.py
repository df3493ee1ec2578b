"""Measures of diversity: ndeval's numbers, beside any other measure, whatever the ids and the depth."""

import math
import random
from itertools import permutations
from pathlib import Path

import ir_measures
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keystone.runs.evaluation.evaluate import Evaluation, evaluate
from keystone.runs.evaluation.measures import parse_measure, read_ir_measure
from keystone.runs.trec.run_files import read_qrels
from keystone.runs.trec.types import make_run

NAMES = [
    "alpha_nDCG@20", "alpha_nDCG(alpha=0.8)@3", "alpha_nDCG(rel=2)@4", "alpha_DCG@5", "StRecall@2", "StRecall(rel=2)@3",
    "ERR_IA@10", "ERR_IA(rel=2)@10", "nERR_IA@4", "P_IA@5", "P_IA(rel=2)@3", "AP_IA", "AP_IA(rel=2)", "NRBP",
    "NRBP(alpha=0.9,beta=0.8)", "nNRBP", "nNRBP(rel=2)",
]  # fmt: skip
DOCS, SUBTOPICS = [f"d{n}" for n in range(7)], ["s1", "s2", "s10", "s3"]
JUDGMENTS = st.dictionaries(
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
    JUDGMENTS, st.lists(st.sampled_from([*DOCS, "x", "y"]), unique=True, min_size=1), st.randoms(use_true_random=False)
)
def test_each_measure_has_the_value_of_ndeval(
    tmp_path_factory: pytest.TempPathFactory, judged: Judged, ranking: list[str], rng: random.Random
) -> None:
    """Ndeval orders equal documents of the ideal ranking by ids: where renaming changes its value, it has several."""
    pytest.importorskip("pyndeval")
    names = [name for name in NAMES if max(judged.values()) >= parse_measure(name).relevant_from]
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
    """After c of two subtopics, a of two would gain less than after b: ndeval's ideal depends on which comes first."""
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
