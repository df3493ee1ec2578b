"""The join of evaluations and ratings to the rows of a sheet, as a table."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from keystone.runs.evaluation.arena.tournament import Leaderboard, SlotBias, Standing
from keystone.runs.evaluation.evaluate import Evaluation
from keystone.runs.evaluation.sheet import COLUMNS, Row, join_scores

COUNTS: list[Row] = [{"run": "a", "answers": 2, "errors": 0}, {"run": "b", "answers": 1, "errors": 3}]


def make(name: str, **values: Sequence[float]) -> Evaluation:
    return Evaluation(name, ("1", "2"), {measure: np.array(own) for measure, own in values.items()})


def rate(**ratings: float) -> Leaderboard:
    """Make a leaderboard of these ratings; a run of 1000 had no battle."""
    nowhere = (math.nan, math.nan)
    standings = tuple(
        Standing(rank, name, rating, nowhere, nowhere, int(rating != 1000), 0, 0, 0)
        for rank, (name, rating) in enumerate(ratings.items(), 1)
    )
    return Leaderboard(standings, SlotBias(0.5, nowhere), "rules", 1, 1, 0, 0.0, (), True)


RUBRICS = {"rubric": [0.5, 1.0], "rubric_binary": [0.0, 1.0]}


@pytest.mark.parametrize(
    ("evaluations", "board", "columns"),
    [
        pytest.param({}, None, {}, id="nothing is judged"),
        pytest.param(
            {"rubrics": [make("b", **RUBRICS), make("a", **RUBRICS)]},
            None,
            {"rubric": [0.75, 0.75], "rubric_binary": [0.5, 0.5]},
            id="rubrics in another order",
        ),
        pytest.param(
            {"rubrics": [make("a", rubric=[-1.0, 0.0], rubric_binary=[0.0, 0.0])]},
            None,
            {"rubric": [-0.5, None], "rubric_binary": [0.0, None]},
            id="a run that nobody graded, and a score below 0",
        ),
        pytest.param(
            {"ranking": [make("b", **{"nDCG@10": [0.25, 0.75], "judged@10": [1.0, math.nan]})]},
            None,
            {"nDCG@10": [None, 0.5], "judged@10": [None, 1.0]},
            id="one run has a ranking, and a measure lacks a topic",
        ),
        pytest.param(
            {},
            rate(b=1100.0, a=900.0),
            {"rating": [900.0, 1100.0], "battles": [1, 1]} | {key: [0, 0] for key in ("wins", "losses", "ties")},
            id="ratings",
        ),
        pytest.param(
            {},
            rate(b=1000.0, a=1200.0),
            {"rating": [1200.0, None], "battles": [1, None]} | {key: [0, None] for key in ("wins", "losses", "ties")},
            id="a run without a battle",
        ),
        pytest.param(
            {"support": [make(name, **{one: [1.0, math.nan] for one in COLUMNS["support"]}) for name in "ab"]},
            None,
            {head: [1.0, 1.0] for head in COLUMNS["support"].values()},
            id="support, whose columns say so",
        ),
        pytest.param(
            {"nuggets": [make("a", V_strict=[math.nan] * 2, A_strict=[0.0, 0.0], W=[1.0, 1.0])]},
            None,
            {"V_strict": [None, None], "A_strict": [0.0, None]},
            id="only the measures of the track, and one that failed",
        ),
        pytest.param(
            {"nuggets": [make("b", **{key: [1.0, 0.0] for key in ("V_strict", "A_strict", "coverage_strict")})]},
            None,
            {key: [None, 0.5] for key in ("V_strict", "A_strict", "coverage_strict")},
            id="nuggets that name sub-narratives",
        ),
    ],
)
def test_each_run_has_a_row_with_all_columns(
    evaluations: Mapping[str, Sequence[Evaluation]],
    board: Leaderboard | None,
    columns: Mapping[str, Sequence[float | None]],
) -> None:
    rows = join_scores(COUNTS, evaluations, board)
    expected = [counts | {head: own[place] for head, own in columns.items()} for place, counts in enumerate(COUNTS)]
    assert rows == expected
    assert [*rows[0]] == [*rows[1]] == [*expected[0]]
