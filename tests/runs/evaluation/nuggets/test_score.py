"""Scores of answers: exact numbers by hand, bounds, missing topics, and labels that failed."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keystone.generation.grading.nuggets import Assignment, Importance
from keystone.generation.types import Support
from keystone.indexing.errors import UserError
from keystone.runs.evaluation.nuggets.cited import Citation, CitedText
from keystone.runs.evaluation.nuggets.files import Nugget, read_nuggets, write_nuggets
from keystone.runs.evaluation.nuggets.score import (
    CITATION_MEASURES,
    COVERAGE_MEASURES,
    FROM_FILES,
    NUGGET_MEASURES,
    score_citations,
    score_nuggets,
)
from keystone.runs.evaluation.scored_answers import compare_labels, score_answers

LABELS: dict[str, Assignment] = {"2": "support", "1": "partial_support", "0": "not_support", "-": "failed"}


def make_nuggets(written: str) -> list[Nugget]:
    """Make nuggets from pairs such as v2 (vital, support) and o1 (okay, partial); ? has no importance."""
    kinds: dict[str, Importance | None] = {"v": "vital", "o": "okay", "f": "failed", "?": None}
    return [Nugget("a", kinds[one[0]], LABELS[one[1]]) for one in written.split()]


@pytest.mark.parametrize(
    ("written", "scores"),
    [
        ("v2 v1 v0 o2 o1 o0", (0.5, 2 / 6, 0.5, 1 / 3, 0.5, 1 / 3)),
        ("v2 v2 v1 v0 o2 o1 o0", (4 / 7, 3 / 7, 0.625, 0.5, 3.25 / 5.5, 2.5 / 5.5)),
        ("v2 v2 o0 o0", (0.5, 0.5, 1, 1, 2 / 3, 2 / 3)),
        ("v1 o2", (0.75, 0.5, 0.5, 0, 1 / 1.5, 0.5 / 1.5)),
        ("o2 o1", (0.75, 0.5, 0, 0, 0.75, 0.5)),
        ("v0 f2", (0.5, 0.5, 0, 0, 0.5 / 1.5, 0.5 / 1.5)),
        ("?2 ?0", (0.5, 0.5, 0.5, 0.5, 0.5, 0.5)),
        ("", (0, 0, 0, 0, 0, 0)),
    ],
)
def test_nugget_scores_are_exact(written: str, scores: tuple[float, ...]) -> None:
    assert score_nuggets(make_nuggets(written)) == pytest.approx(scores, abs=1e-12)


def test_a_sub_narrative_is_covered_by_its_best_nugget(tmp_path: Path) -> None:
    names = {"2": "support", "1": "partial_support", "0": "not_support"}
    nuggets = [
        {"text": "a", "mapped_sub_narrative": f'"{part}"', "importance": kind, "assignment": names[label]}
        for part, kind, label in (
            *(("a", "vital", "2"), ("a", "vital", "2"), ("b", "vital", "1"), ("c", "vital", "0")),
            *(("b", "okay", "2"), ("c", "okay", "1"), ("d", "okay", "0")),
        )
    ]
    failed = [{"text": "a", "mapped_sub_narrative": "a", "assignment": "failed"}]
    unnamed = [{"text": "a", "assignment": label} for label in ("support", "support", "not_support", "not_support")]
    banks = {"1": nuggets, "2": failed, "3": unnamed}
    rows = [{"qid": topic, "run_id": "r", "nuggets": own} for topic, own in banks.items()]
    path = write_rows(tmp_path / "assigned", *rows)
    (found,) = score_answers([path])
    assert list(found.values) == [*NUGGET_MEASURES, *COVERAGE_MEASURES]
    assert found.values["coverage"] == pytest.approx([0.625, math.nan, 0.5], nan_ok=True)
    assert found.values["coverage_strict"] == pytest.approx([0.5, math.nan, 0.5], nan_ok=True)
    assert found.values["V_strict"][0] == 0.5
    write_nuggets(tmp_path / "again", read_nuggets(path))
    assert read_nuggets(tmp_path / "again") == read_nuggets(path)


@given(st.lists(st.sampled_from(["v2", "v1", "v0", "o2", "o1", "o0"]), min_size=1, max_size=9))
def test_strict_scores_are_lower_and_weighted_ones_lie_between(written: list[str]) -> None:
    a, a_strict, v, v_strict, w, w_strict = score_nuggets(make_nuggets(" ".join(written)))
    assert 0 <= a_strict <= a <= 1
    assert (v_strict <= v, w_strict <= w) == (True, True)
    if any(one.startswith("v") for one in written):
        assert min(a, v) - 1e-12 <= w <= max(a, v) + 1e-12


def cite(*supports: Support | None) -> CitedText:
    return CitedText("a", tuple(Citation("d", support=one) for one in supports))


@pytest.mark.parametrize(
    ("sentences", "scores"),
    [
        pytest.param([cite("full"), cite("partial"), cite("none"), cite()], (0.5, 1.5 / 4, 0.5, 1.5 / 4), id="plain"),
        pytest.param([cite("none", "full"), cite("full")], (0.5, 0.5, 0.75, 0.75), id="the first one or all"),
        pytest.param([cite(), cite()], (0, 0, 0, 0), id="no citation"),
        pytest.param([], (0, 0, 0, 0), id="no sentence"),
        pytest.param([cite(None), cite("full"), cite()], (1, 0.5, 1, 0.5), id="a sentence without a rating"),
        pytest.param([cite(None), cite()], (math.nan,) * 4, id="no rating"),
        pytest.param([cite(None, "partial"), cite("full")], (1, 1, 0.75, 0.75), id="a later rating"),
    ],
)
def test_citation_scores_are_exact(sentences: list[CitedText], scores: tuple[float, ...]) -> None:
    found = dict(zip(CITATION_MEASURES, score_citations(sentences), strict=True))
    names = ("precision", "recall", "precision_all", "recall_all")
    assert [found[name] for name in names] == pytest.approx(scores, abs=1e-12, nan_ok=True)


BY_DIGIT: dict[str, Support | None] = {"2": "full", "1": "partial", "0": "none", "-": None}


@pytest.mark.parametrize(
    ("labels", "most_cited", "scores"),
    [
        pytest.param(
            ["201", "1", "", "-2", "-"],
            None,
            (0.75, 0.5, 0.6, 0.5, 1 / 3, 0.4, 2 / 3, 0.5, 4 / 7, 0.8),
            id="failed ratings",
        ),
        pytest.param(
            ["2", "1", "02", "-", ""],
            None,
            (0.5, 0.375, 3 / 7, 1 / 3, 0.25, 2 / 7, 2 / 3, 0.5, 4 / 7, 0.8),
            id="as RAGDoll's test",
        ),
        pytest.param(["202", "1"], 1, (0.75, 0.75, 0.75, 0.5, 0.5, 0.5, 0.75, 0.75, 0.75, 1), id="only the first"),
        pytest.param(["0", "0"], None, (0,) * 9 + (1,), id="nothing supports"),
    ],
)
def test_all_columns_of_support_are_exact(labels: list[str], most_cited: int | None, scores: tuple[float, ...]) -> None:
    sentences = [cite(*map(BY_DIGIT.get, digits)) for digits in labels]
    assert score_citations(sentences, most_cited) == pytest.approx(scores, abs=1e-12)


def test_agreement_counts_the_citations_that_both_rated(tmp_path: Path) -> None:
    def write(name: str, codes: str) -> Path:
        sentences = [{"text": "a", "citations": [{"reference": "d", "support": code}]} for code in codes.split()]
        return write_rows(tmp_path / name, {"topic_id": "1", "run_id": "r", "sentences": sentences})

    ours = [write("ours", "2 2 1 0 -1")]
    found = compare_labels(ours, [write("theirs", "2 1 1 0 2")]).report()
    assert found == {
        "citations": 4,
        "equal": 0.75,
        "kappa": pytest.approx(7 / 11),
        "weighted_kappa": pytest.approx(5 / 7),
    }
    with pytest.raises(UserError, match="none: labels no citation"):
        compare_labels(ours, [write("none", "-1")])


def write_rows(path: Path, *rows: Any) -> Path:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def make_row(run: str, topic: str, *labels: str) -> dict[str, Any]:
    nuggets = [{"text": "a", "importance": "vital", "assignment": label} for label in labels]
    return {"query": "", "qid": topic, "run_id": run, "nuggets": nuggets}


def test_the_topics_that_are_named_decide_and_no_other_file_does(tmp_path: Path) -> None:
    first = write_rows(tmp_path / "a", make_row("a", "1", "support"), make_row("a", "9", "support"))
    second = write_rows(tmp_path / "b", make_row("b", "1", "not_support"), make_row("b", "2", "support"))
    (alone,) = score_answers([first], ["1", "2", "3", "4"])
    beside, _ = score_answers([first, second], ["1", "2", "3", "4"])
    for one in (alone, beside):
        assert (one.topics, one.mean("A"), one.counts.answered_topics) == (("1", "2", "3", "4"), 0.25, 1)
        assert one.cautions == (
            "a: judged topics without an answer, which count 0: 3 of 4, such as 2",
            "a: topics without a nugget, which are left out: 1 of 2, such as 9",
        )
    (unnamed,) = score_answers([first])
    assert (unnamed.mean("A"), unnamed.cautions) == (1, (FROM_FILES,))
    with pytest.raises(UserError, match=r"run 'a': has none of the topics: .* like '1', those .* like '7'"):
        score_answers([first], ["7"])


def test_runs_are_scored_on_the_topics_of_all_files(tmp_path: Path) -> None:
    first = write_rows(tmp_path / "a", make_row("a", "1", "support"), make_row("a", "2", "failed", "support"))
    second = write_rows(tmp_path / "b", make_row("b", "1", "not_support"))
    one, other = score_answers([first, second])
    assert (one.name, one.topics, one.mean("A")) == ("a", ("1", "2"), 1)
    assert math.isnan(one.values["V"][1])
    assert one.cautions == (
        FROM_FILES,
        "a: topics with a nugget that failed, which are left out: 1 of 2, such as 2",
    )
    assert (other.values["A"].tolist(), other.counts.answered_topics) == ([0, 0], 1)
    assert other.cautions == (
        FROM_FILES,
        "b: judged topics without an answer, which count 0: 1 of 2, such as 2",
    )
    assert list(one.values) == list(NUGGET_MEASURES)
    (unnamed,) = score_answers([write_rows(tmp_path / "c", make_row("", "1", "support"))])
    assert unnamed.name == str(tmp_path / "c")


def test_two_runs_with_one_id_are_scored_apart_and_named(tmp_path: Path) -> None:
    rows = [make_row("a", "1", "support"), make_row("a", "1", "not_support")]
    first, second = (write_rows(tmp_path / name, row) for name, row in zip("xy", rows, strict=True))
    one, other = score_answers([first, second], ["1"])
    assert (one.name, one.mean("A")) == ("a (x)", 1)
    assert (other.name, other.mean("A")) == ("a (y)", 0)
    (caution,) = one.cautions
    assert caution == f"the run id 'a' is that of several runs, which have names of their own: {first}, {second}"
    of_teams = [row | {"metadata": {"team_id": team}} for row, team in zip(rows, "st", strict=True)]
    named = score_answers([write_rows(tmp_path / "z", of_teams[0]), write_rows(first, of_teams[1])], ["1"])
    assert [one.name for one in named] == ["s-a", "t-a"]
    with pytest.raises(UserError, match="occurs more than once"):
        score_answers([write_rows(tmp_path / "z", *rows)])


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            {"qid": "1", "nuggets": [{"text": "a"}]},
            "b:1: topic '1': 'a' is not assigned to an answer: `keystone nuggets assign` makes",
        ),
        (
            {"topic_id": "1", "run_id": "a", "sentences": []},
            "b: holds another kind of scored answers than .*a; expected one kind",
        ),
    ],
)
def test_files_that_cannot_be_scored_together_are_refused(tmp_path: Path, row: Any, message: str) -> None:
    paths = [write_rows(tmp_path / "a", make_row("a", "1", "support")), write_rows(tmp_path / "b", row)]
    with pytest.raises(UserError, match=message):
        score_answers(paths)
