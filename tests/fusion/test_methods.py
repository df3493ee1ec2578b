"""All fusion methods and normalisations: equal to plain formulas and, outside its traps, to ranx; fair to lists."""

import json
import math
import os
import sys
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import fmean, median, pstdev

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keystone.fusion.fuse import FusionSettings, fuse
from keystone.fusion.lists import Groups, gather_hits
from keystone.fusion.methods import METHODS, NORMS, find_impossible_setting
from keystone.retrieval.types import Rankings, ranked
from tests.support import programs
from tests.support.places import ROOT

ScoredList = dict[int, float]
"""A list: document -> score."""

SCORES = st.sampled_from([-2.5, -1.0, 0.0, 0.25, 0.5, 1.0, 1.5, 3.0, 7.0, 20.5])
LISTS = st.lists(st.dictionaries(st.integers(0, 9), SCORES, max_size=7), min_size=1, max_size=5)
WEIGHTS = st.lists(st.sampled_from([0, 0.1, 0.3, 1, 1.7, 2]), min_size=5, max_size=5)


def rankings(lists: Sequence[ScoredList]) -> Rankings:
    docs = [np.array(list(own), dtype=np.int32) for own in lists]
    scores = [np.array(list(own.values()), dtype=np.float64) for own in lists]
    return ranked([str(i) for i in range(len(lists))], docs, scores, 10**6)


def fuse_lists(
    lists: Sequence[ScoredList],
    method: str,
    weights: Sequence[float] | None = None,
    norm: str | None = None,
    depth: int = 99,
) -> Rankings:
    groups = Groups(["t"], [[(0, i) for i in range(len(lists))]], None if weights is None else [weights])
    return fuse([rankings(lists)], groups, FusionSettings(method, depth, norm))


def scores_of(found: Rankings) -> ScoredList:
    return dict(zip(found.of(0).tolist(), found.scores_of(0).tolist(), strict=True))


def sort_docs(own: ScoredList) -> list[int]:
    return sorted(own, key=lambda doc: (-own[doc], doc))


Norm = Callable[[list[float]], list[float]]

PLAIN_NORMS: dict[str, Norm] = {
    "none": lambda s: s,
    "min-max": lambda s: [(x - min(s)) / (max(s) - min(s)) if max(s) > min(s) else 1 for x in s],
    "min-max-inverted": lambda s: [(max(s) - x) / (max(s) - min(s)) if max(s) > min(s) else 1 for x in s],
    "max": lambda s: [x / abs(max(s)) if max(s) else x for x in s],
    "sum": lambda s: [(x - min(s)) / sum(y - min(s) for y in s) if max(s) > min(s) else 1 / len(s) for x in s],
    "zmuv": lambda s: [(x - fmean(s)) / pstdev(s) if max(s) > min(s) else 0 for x in s],
    "rank": lambda s: [1 - i / len(s) for i in range(len(s))],
}


def count_borda(lists: Sequence[ScoredList]) -> list[ScoredList]:
    found = {doc for own in lists for doc in own}
    points = [dict.fromkeys(found, (len(found) - len(own) + 1) / 2) for own in lists]
    for own, scores in zip(lists, points, strict=True):
        scores.update({doc: len(found) - place for place, doc in enumerate(sort_docs(own))})
    return points


def normalise(lists: Sequence[ScoredList], norm: str) -> list[ScoredList]:
    if norm == "borda":
        number = len({doc for own in lists for doc in own})
        return [{doc: points / number for doc, points in own.items()} for own in count_borda(lists)]
    return [
        dict(zip(sort_docs(own), PLAIN_NORMS[norm]([own[doc] for doc in sort_docs(own)]), strict=True)) for own in lists
    ]


Row = tuple[float, int, float]
"""Weight, rank and score of a document in one list."""

PLAIN: dict[str, Callable[[list[Row]], float]] = {
    "min": lambda rows: min(s for _, _, s in rows),
    "med": lambda rows: median(s for _, _, s in rows),
    "max": lambda rows: max(s for _, _, s in rows),
    "sum": lambda rows: sum(s for _, _, s in rows),
    "anz": lambda rows: fmean(s for _, _, s in rows),
    "mnz": lambda rows: sum(s for _, _, s in rows) * len(rows),
    "gmnz": lambda rows: sum(s for _, _, s in rows) * len(rows),
    "wsum": lambda rows: sum(w * s for w, _, s in rows),
    "wmnz": lambda rows: sum(s for _, _, s in rows) * sum(w for w, _, _ in rows),
    "mixed": lambda rows: sum(w * s for w, _, s in rows) * math.sqrt(len(rows)),
    "isr": lambda rows: len(rows) * sum(1 / r**2 for _, r, _ in rows),
    "log_isr": lambda rows: math.log(len(rows)) * sum(1 / r**2 for _, r, _ in rows),
    "logn_isr": lambda rows: math.log(len(rows) + 0.01) * sum(1 / r**2 for _, r, _ in rows),
    "rrf": lambda rows: sum(w / (60 + r) for w, r, _ in rows),
    "rbc": lambda rows: sum(0.2 * 0.8 ** (r - 1) for _, r, _ in rows),
}


def fuse_plainly(lists: Sequence[ScoredList], method: str, weights: Sequence[float], norm: str) -> ScoredList:
    kept = [(weight, own) for weight, own in zip(weights, lists, strict=True) if weight]
    rows: dict[int, list[Row]] = {}
    if method in ("bordafuse", "w_bordafuse"):
        for (weight, _), points in zip(kept, count_borda([own for _, own in kept]), strict=True):
            for doc, score in points.items():
                rows.setdefault(doc, []).append((weight, 0, score))
        return {doc: PLAIN["wsum"](own) for doc, own in rows.items()}
    formula = PLAIN["isr" if method == "log_isr" and sum(bool(own) for _, own in kept) < 2 else method]
    for (weight, own), values in zip(kept, normalise([own for _, own in kept], norm), strict=True):
        places = {doc: place for place, doc in enumerate(sort_docs(own), start=1)}
        for doc, score in values.items():
            rows.setdefault(doc, []).append((weight, places.get(doc, len(own) + 1), score))
    return {doc: formula(own) for doc, own in rows.items()}


@pytest.mark.parametrize("method", [name for name, method in METHODS.items() if method.several])
def test_a_method_that_compares_lists_keeps_the_order_of_the_only_one_with_documents(method: str) -> None:
    assert fuse_lists([{1: 1.0, 2: 2.0, 3: 3.0}, {}], method).of(0).tolist() == [3, 2, 1]


def fit_weights(method: str, drawn: Sequence[float], lists: Sequence[ScoredList]) -> list[float]:
    return [w if METHODS[method].weighted else float(w > 0) for w in drawn[: len(lists)]]


@pytest.mark.parametrize("method", sorted(set(METHODS) - {"condorcet", "w_condorcet", "frequency"}))
@settings(max_examples=40)
@given(lists=LISTS, drawn=WEIGHTS, norm=st.sampled_from(sorted(NORMS)))
def test_a_method_equals_its_plain_formula(method: str, lists: list[ScoredList], drawn: list[float], norm: str) -> None:
    weights = fit_weights(method, drawn, lists)
    of_scores = METHODS[method].of_scores
    found = fuse_lists(lists, method, weights, norm if of_scores else None)
    assert scores_of(found) == pytest.approx(
        fuse_plainly(lists, method, weights, norm if of_scores else "none"), abs=1e-12
    )
    assert found.of(0).tolist() == sort_docs(scores_of(found))


@pytest.mark.parametrize("norm", sorted(NORMS))
@settings(max_examples=60)
@given(own=st.dictionaries(st.integers(0, 9), SCORES, max_size=4))
def test_a_normalisation_equals_its_plain_formula(norm: str, own: ScoredList) -> None:
    found = scores_of(fuse_lists([own, {}], "max", norm=norm))
    expected = normalise([own, {}], norm)
    assert found == pytest.approx({doc: max(x[doc] for x in expected if doc in x) for doc in own})


@pytest.mark.parametrize("method", sorted(METHODS))
@settings(max_examples=40)
@given(lists=LISTS, drawn=WEIGHTS, order=st.permutations(range(5)), norm=st.sampled_from(sorted(NORMS)))
def test_the_order_of_the_lists_changes_no_bit(
    method: str, lists: list[ScoredList], drawn: list[float], order: list[int], norm: str
) -> None:
    weights, used = fit_weights(method, drawn, lists), norm if METHODS[method].of_scores else None
    order = [i for i in order if i < len(lists)]
    one = fuse_lists(lists, method, weights, used)
    other = fuse_lists([lists[i] for i in order], method, [weights[i] for i in order], used)
    assert one.docs.tobytes() == other.docs.tobytes()
    assert one.scores.tobytes() == other.scores.tobytes()
    assert np.all(np.isfinite(one.scores))


@pytest.mark.parametrize("method", sorted(METHODS))
@settings(max_examples=20)
@given(lists=LISTS, depth=st.integers(1, 9))
def test_a_smaller_depth_cuts_each_group_by_itself(method: str, lists: list[ScoredList], depth: int) -> None:
    groups = Groups(["x", "y", "z"], [[(0, i) for i in range(len(lists))], [], [(0, 0)]])
    deep, cut = (fuse([rankings(lists)], groups, FusionSettings(method, d)) for d in (99, depth))
    assert cut.query_ids == ("x", "y", "z")
    for i in range(3):
        assert cut.of(i).tolist() == deep.of(i).tolist()[:depth]
    assert deep.of(0).tolist() == fuse_lists(lists, method).of(0).tolist()
    assert set(deep.of(2).tolist()) == set(lists[0])


@settings(max_examples=40)
@given(lists=LISTS, drawn=WEIGHTS, k=st.sampled_from([0, 10, 60]))
def test_rrf_in_the_table_equals_the_fast_one(lists: list[ScoredList], drawn: list[float], k: float) -> None:
    groups = Groups(["t"], [[(0, i) for i in range(len(lists))]], [drawn[: len(lists)]])
    hits = gather_hits([rankings(lists)], groups)
    fast = fuse([rankings(lists)], groups, FusionSettings("rrf", 99, parameters={"k": k}))
    assert dict(zip(hits.docs.tolist(), METHODS["rrf"].score(hits, k).tolist(), strict=True)) == scores_of(fast)


@settings(max_examples=60)
@given(lists=LISTS, drawn=WEIGHTS)
def test_condorcet_never_ranks_a_document_above_one_that_outvotes_it(
    lists: list[ScoredList], drawn: list[float]
) -> None:
    weights = drawn[: len(lists)]
    places = [{doc: place for place, doc in enumerate(sort_docs(own))} for own in lists]

    def count_votes(doc: int, other: int) -> float:
        won = [w for w, own in zip(weights, places, strict=True) if own.get(doc, 99) < own.get(other, 99)]
        return sum(sorted(won))

    found = fuse_lists(lists, "w_condorcet", weights).of(0).tolist()
    assert all(count_votes(doc, after) >= count_votes(after, doc) for doc, after in pairwise(found))


def test_drawn_votes_of_condorcet_keep_the_order_of_borda() -> None:
    found = fuse_lists([{1: 5.0, 2: 4.0, 3: 3.0}, {3: 5.0, 1: 4.0, 2: 3.0}], "condorcet")
    assert scores_of(found) == {1: 3, 3: 2, 2: 1}


@settings(max_examples=60)
@given(lists=LISTS, top=st.integers(1, 5))
def test_frequency_orders_by_appearances_then_rrf_then_id(lists: list[ScoredList], top: int) -> None:
    by_rrf = fuse_lists(lists, "rrf").of(0).tolist()
    tops = [sort_docs(own)[:top] for own in lists]
    groups = Groups(["t"], [[(0, i) for i in range(len(lists))]])
    found = fuse([rankings(lists)], groups, FusionSettings("frequency", parameters={"top": top}))
    count = {doc: sum(doc in own for own in tops) for doc in by_rrf}
    assert found.of(0).tolist() == sorted(by_rrf, key=lambda doc: (-count[doc], by_rrf.index(doc)))
    assert {doc: math.floor(score) for doc, score in scores_of(found).items()} == count


@pytest.mark.parametrize("method", ["isr", "logn_isr", "rrf", "rbc", "bordafuse", "frequency"])
@settings(max_examples=40)
@given(lists=LISTS, data=st.data())
def test_a_document_moved_to_first_in_a_list_loses_no_place(
    method: str, lists: list[ScoredList], data: st.DataObject
) -> None:
    own = data.draw(st.sampled_from(lists))
    if own:
        doc = data.draw(st.sampled_from(sorted(own)))
        raised = [{**other, doc: 99.0} if other is own else other for other in lists]
        before, after = (fuse_lists(x, method).of(0).tolist().index(doc) for x in (lists, raised))
        assert after <= before


@pytest.mark.parametrize("method", ["min", "med", "max", "sum", "anz", "mnz", "gmnz", "wsum", "wmnz", "mixed"])
@settings(max_examples=40)
@given(lists=LISTS, data=st.data())
def test_a_document_with_a_higher_score_in_a_list_loses_no_place(
    method: str, lists: list[ScoredList], data: st.DataObject
) -> None:
    own = data.draw(st.sampled_from(lists))
    if own:
        doc = data.draw(st.sampled_from(sorted(own)))
        raised = [{**other, doc: own[doc] + 1.5} if other is own else other for other in lists]
        before, after = (fuse_lists(x, method, norm="none").of(0).tolist().index(doc) for x in (lists, raised))
        assert after <= before


@pytest.mark.parametrize(
    ("norm", "scores"),
    [
        pytest.param("min-max", [1, 1], id="min-max"),
        pytest.param("min-max-inverted", [1, 1], id="min-max-inverted"),
        pytest.param("max", [1, 1], id="max"),
        pytest.param("sum", [0.5, 0.5], id="sum"),
        pytest.param("zmuv", [0, 0], id="zmuv"),
        pytest.param("rank", [1, 0.5], id="rank"),
        pytest.param("borda", [1, 0.5], id="borda"),
    ],
)
def test_equal_scores_are_normalised_without_division_by_zero(norm: str, scores: list[float]) -> None:
    assert list(scores_of(fuse_lists([{1: 0.1, 2: 0.1}], "sum", norm=norm)).values()) == scores


@pytest.mark.parametrize(
    ("method", "norm", "parameters", "uneven", "key", "why"),
    [
        pytest.param("mean", None, {}, False, "method", "found 'mean', expected one of min, med,", id="unknown method"),
        pytest.param("sum", "l2", {}, False, "norm", "found 'l2', expected one of none, min-max,", id="unknown norm"),
        pytest.param("isr", "max", {}, False, "norm", "looks at ranks", id="norm with a method of ranks"),
        pytest.param(
            "sum",
            None,
            {},
            True,
            "weights",
            "expected equal weights, or a method among wsum, wmnz,",
            id="weights with a method that has none",
        ),
        pytest.param("rrf", None, {"phi": 0.5}, False, "phi", "expected one of k", id="parameter of another method"),
        pytest.param("sum", None, {"k": 5}, False, "k", "expected none", id="parameter of a method that has none"),
        pytest.param("rbc", None, {"phi": 1}, False, "phi", "found 1, expected 0.001 to 0.999", id="out of range"),
        pytest.param("rrf", None, {"k": math.nan}, False, "k", "found nan, expected 0 to", id="not a number"),
    ],
)
def test_an_impossible_setting_is_named_with_its_reason(
    method: str, norm: str | None, parameters: dict[str, float], uneven: bool, key: str, why: str
) -> None:
    found = find_impossible_setting(method, norm, parameters, uneven)
    assert found is not None
    assert found[0] == key
    assert why in found[1]
    with pytest.raises(ValueError, match=key):
        fuse(
            [rankings([{1: 1.0}, {2: 1.0}])],
            Groups(["t"], [[(0, 0), (0, 1)]], [[1, 1 + uneven]]),
            FusionSettings(method, 9, norm, parameters),
        )


def test_the_page_on_fusion_names_every_method_and_normalisation() -> None:
    page = (ROOT / "docs" / "methods.md").read_text()
    assert [name for name in [*METHODS, *NORMS] if f"| `{name}` |" not in page] == []


RANX: list[tuple[str, str | None]] = [(method, None) for method in METHODS if method != "frequency"]
RANX += [("wsum", norm) for norm in NORMS if norm not in ("none", "borda")] + [("sum", "borda")]


RANX_PROGRAM = """
import json, sys, warnings
import ranx

warnings.simplefilter("ignore")
for line in sys.stdin:
    lists, norm, method, parameters = json.loads(line)
    found = ranx.fuse([ranx.Run({"t": own}) for own in lists], norm, method, parameters)
    print(json.dumps(found.to_dict()["t"]))
"""


def make_lists_for_ranx(method: str) -> list[ScoredList]:
    """Three lists without ties and without a cycle of majorities."""
    if "condorcet" in method:
        return [{doc: 20.0 - (doc + shift) % 20 for doc in range(12)} for shift in (0, 0, 3)]
    random = np.random.default_rng(3)
    return [
        {
            int(doc): float(s)
            for doc, s in zip(random.permutation(20)[:12], random.permutation(99)[:12] + 1, strict=True)
        }
        for _ in range(3)
    ]


def weigh_for_ranx(method: str) -> list[float] | None:
    return [0.2, 0.5, 0.4] if METHODS[method].weighted and method != "rrf" else None


@pytest.fixture(scope="module")
def scores_of_ranx() -> dict[tuple[str, str | None], ScoredList]:
    """The scores by ranx for all of `RANX`. Its loops run as plain Python, since compiling them takes minutes."""
    jobs = []
    for method, norm in RANX:
        runs = [
            {f"d{doc:02d}": score for doc, score in sorted(own.items(), key=lambda hit: -hit[1])}
            for own in make_lists_for_ranx(method)
        ]
        known = METHODS[method].parameters
        parameters: dict[str, object] = {name: value for name, value in (("gamma", 1.0), ("phi", 0.8)) if name in known}
        if weights := weigh_for_ranx(method):
            parameters["weights"] = weights
        jobs.append([runs, norm or ("min-max" if METHODS[method].of_scores else None), method, parameters])
    done = programs.run(
        [sys.executable, "-c", RANX_PROGRAM],
        input="".join(json.dumps(job) + "\n" for job in jobs),
        capture_output=True,
        text=True,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return {asked: {int(doc[1:]): score for doc, score in own.items()} for asked, own in zip(RANX, found, strict=True)}


@pytest.mark.parametrize(("method", "norm"), RANX)
def test_ranx_gives_the_same_scores_outside_its_traps(
    method: str, norm: str | None, scores_of_ranx: dict[tuple[str, str | None], ScoredList]
) -> None:
    """No ties, no empty list, the same topics everywhere, lists in order, no cycle of majorities."""
    found = fuse_lists(make_lists_for_ranx(method), method, weigh_for_ranx(method), norm)
    assert scores_of(found) == pytest.approx(scores_of_ranx[method, norm])
