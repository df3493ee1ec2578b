"""Grades beyond the pool: down the ranking, and to the neighbours of good documents, as long as it pays.

Documents are taken in groups. A group pays if one of its documents comes among the first k by Parasol. After a group
that does not pay, or at the limit, grading ends. Neighbours of good documents and documents of the ranking take turns,
as in Adaptive Re-Ranking with a Corpus Graph (MacAvaney, Tonellotto and Macdonald, CIKM 2022).
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest

import numpy as np

from keystone.fusion.parasol import Floats, Top, extend_top
from keystone.generation.context.topic import TopicContext

GROUP_DOCUMENTS = 10
"""The documents that are graded together."""
GOOD_GRADE = 2.0
"""The least grade for one query that makes a document good, so that its neighbours are graded."""

FindNeighbours = Callable[[Sequence[int]], Awaitable[list[list[int]]]]
"""Finds the neighbours of each document, as rows."""
GradeRows = Callable[[Sequence[int]], Awaitable[Floats]]
"""Grades documents for all queries: float64[queries, documents], NaN where a grade failed."""


@dataclass(frozen=True, slots=True)
class Beyond:
    """The documents beyond a topic's candidates: the rows of its whole ranking, and the neighbours of good documents.

    At most `most` documents are graded. `read` reads the documents in some rows, with the queries of the candidates.
    """

    ranking: Sequence[int]
    find_neighbours: FindNeighbours
    read: Callable[[Sequence[int]], Awaitable[TopicContext]]
    most: int


async def grade_deeper(top: Top, rows: Sequence[int], k: int, beyond: Beyond, grade: GradeRows) -> Top:
    """Grade groups beyond the pool, whose documents are `rows`, until a group does not pay.

    Returns the first k of all graded documents, which stand in the order in which `grade` got them.
    """
    graded, near, expanded = list(rows), dict[int, None](), set[int]()
    limit = len(graded) + beyond.most
    while left := limit - len(graded):
        good = [row for row in _list_good(top, graded) if row not in expanded]
        expanded.update(good)
        near |= dict.fromkeys(chain.from_iterable(await beyond.find_neighbours(good)))
        group = choose_group(graded, list(near), beyond.ranking, min(left, GROUP_DOCUMENTS))
        if not group:
            break
        before = len(graded)
        graded += group
        top = extend_top(top, await grade(group), k)
        if not (top.scores[top.documents >= before] > 0).any():
            break
    return top


def choose_group(graded: Sequence[int], near: Sequence[int], ranking: Sequence[int], most: int) -> list[int]:
    """Choose at most `most` rows that are not graded: the next of `near` and the next of `ranking` in turn."""
    known = set(graded)
    lists = ([row for row in rows if row not in known] for rows in (near, ranking))
    turns = dict.fromkeys(chain.from_iterable(zip_longest(*lists)))
    return [row for row in turns if row is not None][:most]


def _list_good(top: Top, rows: Sequence[int]) -> list[int]:
    """List the rows of the first k documents that have a good grade for some query, best first."""
    grades = np.nan_to_num(top.grades, nan=0.0)
    return [rows[place] for place in top.documents.tolist() if grades[:, place].max(initial=0.0) >= GOOD_GRADE]
