"""Pools for assessors: what they hold, and in which order."""

import pytest

from keystone.runs.evaluation.pooling import pool_documents

RUNS = {"a": {"1": ["x", "y", "z"], "2": ["u"]}, "b": {"1": ["y", "w", "v"]}}


@pytest.mark.parametrize(
    ("depth", "judged", "expected"),
    [
        (1, None, {"1": {"x", "y"}, "2": {"u"}}),
        (2, None, {"1": {"x", "y", "w"}, "2": {"u"}}),
        (9, {"1": {"x"}, "2": {"u"}}, {"1": {"y", "z", "w", "v"}, "2": set()}),
    ],
)
def test_a_pool_holds_each_unjudged_document_within_the_depth_once(
    depth: int, judged: dict[str, set[str]] | None, expected: dict[str, set[str]]
) -> None:
    pool = pool_documents(RUNS, depth, judged)
    assert {topic: set(docs) for topic, docs in pool.items()} == expected
    assert all(len(docs) == len(set(docs)) for docs in pool.values())


def test_the_order_depends_on_the_seed_and_not_on_the_order_of_runs() -> None:
    runs = {"a": {"1": [str(doc) for doc in range(50)]}, "b": {"1": [str(doc) for doc in range(25, 75)]}}
    pool = pool_documents(runs, 50)
    assert pool == pool_documents(dict(reversed(runs.items())), 50)
    assert pool != pool_documents(runs, 50, seed=1)


def test_a_depth_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="depth is 0"):
        pool_documents(RUNS, 0)
