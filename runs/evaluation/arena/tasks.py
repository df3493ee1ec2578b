"""The battles of a tournament: which two answers, on which narrative, and which of them is shown first.

Source: castorini/RAGDoll at 1f06719, which names the track's evaluator's ids and order.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import combinations

from keystone.runs.evaluation.arena.answers import AnswerSet

SEED = 13
"""The seed of the order of two answers."""


@dataclass(frozen=True, slots=True)
class Task:
    """One battle: two runs by the order of their files, a narrative, and the run that is shown first, as A.

    `repeat` counts from 0 if the same battle is judged several times.
    """

    left: str
    right: str
    topic_id: str
    a: str
    repeat: int = 0
    swapped: bool = False
    """Whether this is the second battle of a pair, in the other order."""

    @property
    def b(self) -> str:
        """The run that is shown second."""
        return self.right if self.a == self.left else self.left

    @property
    def id(self) -> str:
        """The track's id of the battle. A swapped or repeated one has an ending, as the track has neither."""
        ending = (":swapped" if self.swapped else "") + (f":{self.repeat + 1}" if self.repeat else "")
        return f"arena:{self.left}:{self.right}:{self.topic_id}{ending}"


@dataclass(frozen=True, slots=True)
class Match:
    """Two runs, by the order of their files, that both answer a narrative: what a tournament can choose to judge."""

    left: str
    right: str
    topic_id: str


def list_matches(sets: Sequence[AnswerSet]) -> list[Match]:
    """List all pairs of runs on all narratives that both answer."""
    return [
        Match(left.run_id, right.run_id, topic_id)
        for left, right in combinations(sets, 2)
        for topic_id in sorted(left.texts.keys() & right.texts.keys())
    ]


def list_tasks(match: Match, seed: int = SEED, both_orders: bool = False, repeats: int = 1) -> Iterator[Task]:
    """List the battles of a match: one in the track's order, or one in each order, each of them `repeats` times."""
    first = choose_first(seed, match.left, match.right, match.topic_id)
    other = match.right if first == match.left else match.left
    for repeat in range(repeats):
        yield Task(match.left, match.right, match.topic_id, first, repeat)
        if both_orders:
            yield Task(match.left, match.right, match.topic_id, other, repeat, swapped=True)


def choose_first(seed: int, left: str, right: str, topic_id: str) -> str:
    """Choose the run that is shown first: the left one if the first byte of a hash is even.

    The hash is the SHA-256 of the seed, both runs in sorted order and the topic, with a NUL between them.
    """
    key = "\0".join([str(seed), min(left, right), max(left, right), topic_id])
    return right if sha256(key.encode("utf-8", "surrogatepass")).digest()[0] % 2 else left
