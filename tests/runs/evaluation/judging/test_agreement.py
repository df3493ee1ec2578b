"""Agreement of two judges: against scikit-learn and scipy, on tables by hand, and on three real files of judgments."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.runs.evaluation.agreement import compare_judgments, compute_tau
from keystone.runs.trec.run_files import read_qrels
from keystone.runs.trec.types import make_qrels
from tests.support.places import ROOT

MATERIAL = ROOT.parent / "shared/data/trec-rag-material"
JUDGES = ("codex", "ministral", "qwen3.5")
GRADES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=40)


def kappas_of(pairs: list[tuple[int, int]], relevant_from: int = 2) -> tuple[float, float]:
    first, second = ({"1": {f"d{n}": pair[side] for n, pair in enumerate(pairs)}} for side in (0, 1))
    agreement = compare_judgments(make_qrels(first), make_qrels(second))
    return agreement.compute_kappa(), agreement.compute_binary_kappa(relevant_from)


@given(GRADES)
def test_kappa_equals_that_of_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    first, second = zip(*pairs, strict=True)
    plain, binary = kappas_of(pairs)
    for found, one, other in (
        (plain, first, second),
        (binary, [grade >= 2 for grade in first], [grade >= 2 for grade in second]),
    ):
        if len({*one, *other}) > 1:  # with one grade alone, scikit-learn warns
            assert found == pytest.approx(metrics.cohen_kappa_score(one, other))
        else:
            assert np.isnan(found)


def test_kappa_of_a_table_by_hand() -> None:
    """Of 50 pairs, 35 agree, where chance lets half agree: (0.7 - 0.5) / (1 - 0.5)."""
    pairs = [(2, 2)] * 20 + [(2, 0)] * 5 + [(0, 2)] * 10 + [(0, 0)] * 15
    assert kappas_of(pairs) == pytest.approx((0.4, 0.4))


def test_only_documents_that_both_judged_for_a_topic_count() -> None:
    first = make_qrels({"1": {"a": 1, "b": 0}, "2": {"a": 3}})
    second = make_qrels({"3": {"a": 1}, "1": {"b": 1, "c": 2, "a": 1}})
    agreement = compare_judgments(first, second)
    assert agreement.grades == (0, 1)
    assert agreement.counts.tolist() == [[0, 1], [0, 1]]
    assert np.isnan(compare_judgments(first, make_qrels({"9": {"a": 1}})).compute_kappa())


@pytest.mark.parametrize(
    ("first", "second", "tau"),
    [
        pytest.param([0.1, 0.2, 0.3], [1, 2, 3], 1.0, id="the same order"),
        pytest.param([0.1, 0.2, 0.3], [3, 2, 1], -1.0, id="the other order"),
        pytest.param([0.1, 0.2, 0.3], [2, 1, 3], 1 / 3, id="one exchange"),
        pytest.param([0.1, 0.1, 0.3], [1, 2, 3], 2 / 6**0.5, id="a tie"),
        pytest.param([0.1, 0.1], [1, 2], float("nan"), id="no order"),
    ],
)
def test_tau(first: list[float], second: list[float], tau: float) -> None:
    assert compute_tau(first, second) == pytest.approx(tau, nan_ok=True)


@pytest.mark.skipif(not MATERIAL.is_dir(), reason="needs the judgments of three models beside the repository")
@pytest.mark.parametrize(("one", "other"), list(combinations(JUDGES, 2)))
def test_real_judges_agree_as_scikit_learn_says(one: str, other: str) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    files: list[Path] = [MATERIAL / f"qrels.rag25-dev22.climbmix-umbrela.{name}.txt.gz" for name in (one, other)]
    first, second = map(read_qrels, files)
    agreement = compare_judgments(first, second)
    rows = [{tuple(row[:3:2]): row[3] for row in list_rows(path)} for path in files]
    shared = sorted(rows[0].keys() & rows[1].keys())
    assert agreement.counts.sum() == len(shared) > 26_000
    grades = [np.array([int(side[pair]) for pair in shared]) for side in rows]
    assert agreement.counts.tolist() == metrics.confusion_matrix(*grades).tolist()
    assert agreement.compute_kappa() == pytest.approx(metrics.cohen_kappa_score(*grades))
    assert agreement.compute_binary_kappa(2) == pytest.approx(metrics.cohen_kappa_score(*(g >= 2 for g in grades)))


def list_rows(path: Path) -> list[list[str]]:
    import gzip

    return [line.split() for line in gzip.decompress(path.read_bytes()).decode().splitlines()]
