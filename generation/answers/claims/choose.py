"""The claims of an answer: those that say the same become one, and a set is chosen that covers the queries."""

from collections.abc import Sequence
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from keystone.fusion.coverage import choose
from keystone.fusion.parasol import log_terms
from keystone.generation.answers.claims.collect import Claim
from keystone.generation.answers.claims.quotes import MOST_CITATIONS
from keystone.generation.rules.sentences import SAME_COSINE
from keystone.generation.rules.words import find_stems
from keystone.generation.types import Citation
from keystone.indexing.vectors.types import Vectors

SAME_WORDS_SHARE = 0.8
"""The least share of the shorter claim's content words that two claims have in common if they say the same."""
NEAR_COSINE = 0.8
"""The least cosine of two claims that say the same in nearly the same words."""
BEST_UTILITY = 3.0
"""The utility of a query's first claim, as the highest grade. Its second has half of that, its third a third."""


def merge_claims(claims: Sequence[Claim], vectors: Vectors) -> list[Claim]:
    """Merge the claims that say the same, by words and embedding: `vectors` is float32[claims, d], unit vectors.

    Two say the same if their cosine is at least `SAME_COSINE`. They also do if it is at least `NEAR_COSINE` and they
    share `SAME_WORDS_SHARE` of the content words of the shorter one. A claim joins the first claim that says the same;
    that one keeps its text, and has the quotes, citations and queries of both.
    """
    stems = [find_stems(claim.text) for claim in claims]
    groups: list[list[int]] = []
    for number in range(len(claims)):
        for group in groups:
            cosine = float(vectors[group[0]] @ vectors[number])
            one, other = stems[group[0]], stems[number]
            alike = len(one & other) >= SAME_WORDS_SHARE * max(1, min(len(one), len(other)))
            if cosine >= SAME_COSINE or (cosine >= NEAR_COSINE and alike):
                group.append(number)
                break
        else:
            groups.append([number])
    return [_join([claims[number] for number in group]) for group in groups]


def _join(claims: Sequence[Claim]) -> Claim:
    """Join claims that say the same: the text of the first, and for each query the best place."""
    uses = dict(sorted((use for claim in claims for use in claim.uses), key=lambda use: -use[1]))
    quotes = dict.fromkeys(quote for claim in claims for quote in claim.quotes)
    return Claim(claims[0].text, tuple(quotes), join_citations(claims), tuple(sorted(uses.items())))


def join_citations(claims: Sequence[Claim]) -> tuple[Citation, ...]:
    """Join the citations of claims, at most `MOST_CITATIONS`: the best of each claim, then the second of each."""
    in_turn = (citation for rank in zip_longest(*(claim.citations for claim in claims)) for citation in rank)
    return tuple(dict.fromkeys(citation for citation in in_turn if citation))[:MOST_CITATIONS]


def compute_claim_utilities(claims: Sequence[Claim], queries: int) -> NDArray[np.float64]:
    """Compute the utility of each claim for each query: float64[queries, claims], 0 to 3 as UMBRELA grades.

    A claim has a utility only for the queries that it was collected for, by the order in which the model named it.
    """
    utility = np.zeros((queries, len(claims)))
    for number, claim in enumerate(claims):
        for query, place in claim.uses:
            utility[query, number] = BEST_UTILITY / (1 + place)
    return utility


def choose_claims(claims: Sequence[Claim], queries: int, words: int) -> list[Claim]:
    """Choose claims that cover the queries within `words` words, in the order of their queries.

    It is the better of two greedy sets: by gain, and by gain a word. So its coverage is at least (1 - 1/e) / 2 of the
    optimum. Source: Leskovec et al., *Cost-effective outbreak detection in networks*, KDD 2007, section 3.2.
    """
    utility = compute_claim_utilities(claims, queries)
    costs = [len(claim.text.split()) for claim in claims]
    sets = [choose(utility, costs, words, per_cost=per_cost) for per_cost in (False, True)]
    best = max(sets, key=lambda chosen: float(log_terms(utility[:, chosen].sum(axis=1)).sum()))
    return sorted((claims[number] for number in best), key=lambda claim: claim.uses[0])
