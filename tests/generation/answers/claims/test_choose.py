"""The choice of claims: repeats are said once, and the queries are covered within the words."""

import math
from itertools import combinations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from keystone.fusion.parasol import choose_covering
from keystone.generation.answers.claims import (
    Claim,
    choose_claims,
    compute_claim_utilities,
    join_citations,
    merge_claims,
)

LEAST_SHARE = (1 - 1 / math.e) / 2


def claim(text: str, *uses: tuple[int, int], citations: tuple[str, ...] = ("d#0",)) -> Claim:
    return Claim(text, (f"quote of {text}",), citations, uses)


CLAIMS = st.lists(
    st.tuples(st.integers(1, 6), st.dictionaries(st.integers(0, 3), st.integers(0, 3), min_size=1)), max_size=8
).map(
    lambda made: [claim(f"{n} " + "word " * (words - 1), *sorted(uses.items())) for n, (words, uses) in enumerate(made)]
)


def count(claims: list[Claim]) -> int:
    return sum(len(one.text.split()) for one in claims)


def cover(claims: list[Claim]) -> float:
    """Compute the coverage of claims by its definition: `sum_q log(1 + sum_c 3 / (1 + place))`."""
    sums = [0.0] * 4
    for one in claims:
        for query, place in one.uses:
            sums[query] += 3 / (1 + place)
    return sum(math.log1p(value) for value in sums)


@given(CLAIMS, st.integers(0, 20))
def test_the_chosen_claims_fit_and_cover_at_least_a_third_of_the_optimum(claims: list[Claim], words: int) -> None:
    chosen = choose_claims(claims, 4, words)
    assert count(chosen) <= words
    assert len({one.text for one in chosen}) == len(chosen)
    assert [one.uses[0] for one in chosen] == sorted(one.uses[0] for one in chosen)
    sets = [list(some) for size in range(len(claims) + 1) for some in combinations(claims, size)]
    best = max(cover(some) for some in sets if count(some) <= words)
    assert cover(chosen) >= LEAST_SHARE * best - 1e-6
    for rest in claims:
        if rest not in chosen:
            assert count(chosen) + count([rest]) > words, "a claim that fits is taken"


def test_every_query_gets_its_first_claim_before_any_gets_a_second() -> None:
    claims = [claim(f"query {q} rank {rank}", (q, rank)) for q in range(4) for rank in range(3)]
    assert [one.uses[0] for one in choose_claims(claims, 4, 16)] == [(q, 0) for q in range(4)]
    assert len(choose_claims(claims, 4, 24)) == 6


def test_short_claims_win_where_a_long_one_would_fill_the_answer() -> None:
    long = claim("word " * 20, (0, 0), (1, 1))
    short = [claim(f"short {n}", (n, 1)) for n in range(4)]
    assert choose_claims([long, *short], 4, 20) == short
    by_gain = choose_covering(compute_claim_utilities([long, *short], 4), [20, 2, 2, 2, 2], 20)
    assert by_gain == [0], "the plain greedy choice takes the long one"


def test_claims_that_say_the_same_become_one() -> None:
    claims = [
        claim("Bees dance in the hive.", (0, 1), citations=("a", "b")),
        claim("In hives the bees dance.", (1, 0), (0, 0), citations=("c", "a")),
        claim("Bees dance to music.", (2, 0)),
        claim("Their movements are a language.", (2, 1), citations=("e",)),
    ]
    near = np.array([[1, 0, 0], [0.85, 0.5268, 0], [0.85, -0.5268, 0], [0.96, 0.28, 0]], dtype=np.float32)
    merged = merge_claims(claims, near)
    assert [one.text for one in merged] == ["Bees dance in the hive.", "Bees dance to music."]
    assert merged[0].citations == ("a", "c", "e")
    assert merged[0].uses == ((0, 0), (1, 0), (2, 1))
    assert len(merged[0].quotes) == 3
    assert merged[1] == claims[2], "its words or its embedding alone do not make it a repeat"
    assert merge_claims([], np.empty((0, 3), dtype=np.float32)) == []


@given(CLAIMS)
def test_merging_loses_no_query_and_no_claim_twice(claims: list[Claim]) -> None:
    alone = merge_claims(claims, np.eye(max(1, len(claims)), dtype=np.float32)[: len(claims)])
    assert alone == claims
    as_one = merge_claims(claims, np.ones((len(claims), 1), dtype=np.float32))
    assert len(as_one) == min(1, len(claims))
    assert {query for one in as_one for query, _ in one.uses} == {query for one in claims for query, _ in one.uses}


def test_joined_citations_begin_with_the_best_of_each_claim() -> None:
    assert join_citations([claim("A", (0, 0), citations=("a", "b")), claim("B", (0, 1), citations=("c",))]) == (
        "a",
        "c",
        "b",
    )
