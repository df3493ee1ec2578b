"""Wins of one answer file over another, with intervals, from verdicts on both orders of each pair of answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan, sqrt

from runs.wording import plural

NORMAL_QUANTILE = 1.959963984540054
"""The 0.975 quantile of the normal distribution, for intervals of 95 %."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The outcome of comparing two answer files topic by topic."""

    first: str
    second: str
    outcomes: dict[str, float]
    """By topic: 1 if the first file wins, 0.5 for a tie, 0 if the second file wins."""
    first_slot_rate: float
    """The share of the model's choices that name the answer shown first. Without bias it is about 0.5. NaN: no choice."""
    unjudged: tuple[str, ...] = ()
    """The topics without a verdict, because the model gave none."""

    def count(self, outcome: float) -> int:
        """Count the topics with this outcome."""
        return list(self.outcomes.values()).count(outcome)

    def __str__(self) -> str:
        topics = len(self.outcomes)
        wins, ties, losses = self.count(1.0), self.count(0.5), self.count(0.0)
        shares = [
            f"{plural(number, *noun)} ({low:.1%} to {high:.1%})"
            for number, noun in ((wins, ("win",)), (ties, ("tie",)), (losses, ("loss", "losses")))
            for low, high in [compute_wilson_interval(number, topics)]
        ]
        slot = "-" if isnan(self.first_slot_rate) else f"{self.first_slot_rate:.1%}"
        return f"{self.first} against {self.second}: {', '.join(shares)} of {plural(topics, 'topic')}; first slot {slot}"


def compute_wilson_interval(successes: int, trials: int) -> tuple[float, float]:
    """Compute the 95 % interval of a share (Wilson 1927). Without a trial it is (0, 1)."""
    if not trials:
        return 0.0, 1.0
    share, z = successes / trials, NORMAL_QUANTILE
    centre = share + z * z / (2 * trials)
    margin = z * sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    scale = 1 + z * z / trials
    return max(0.0, (centre - margin) / scale), min(1.0, (centre + margin) / scale)


def compute_first_slot_rate(choices: Sequence[str]) -> float:
    """Compute the share of choices of a slot, `A` or `B`, that name the first one. NaN if none names a slot."""
    slots = [choice for choice in choices if choice in ("A", "B")]
    return slots.count("A") / len(slots) if slots else float("nan")
