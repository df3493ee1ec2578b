"""Wins of one answer file over another, with intervals, from verdicts on both orders of each pair of answers."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import isnan, sqrt
from typing import Any

from keystone.runs.wording import plural

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
    """The share of the model's choices that name the answer shown first; about 0.5 without bias. NaN: no choice."""
    unjudged: tuple[str, ...] = ()
    """The topics without a verdict, because the model gave none."""

    @property
    def counts(self) -> dict[str, int]:
        """The numbers of wins, ties and losses of the first file."""
        outcomes = list(self.outcomes.values())
        return {"win": outcomes.count(1.0), "tie": outcomes.count(0.5), "loss": outcomes.count(0.0)}

    @property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """The 95 % intervals of the shares of wins, ties and losses."""
        return {name: compute_wilson_interval(count, len(self.outcomes)) for name, count in self.counts.items()}

    def __str__(self) -> str:
        shares = [
            f"{plural(count, name, 'losses' if name == 'loss' else '')} ({low:.1%} to {high:.1%})"
            for (name, count), (low, high) in zip(self.counts.items(), self.intervals.values(), strict=True)
        ]
        slot = "-" if isnan(self.first_slot_rate) else f"{self.first_slot_rate:.1%}"
        between = f"{self.first} against {self.second}"
        found = f"{between}: {', '.join(shares)} of {plural(len(self.outcomes), 'topic')}; first slot {slot}"
        if not self.unjudged:
            return found
        return f"{found}; no verdict on {plural(len(self.unjudged), 'topic')}, such as {self.unjudged[0]}"


def report_comparison(comparison: Comparison) -> dict[str, Any]:
    """Report a comparison as values of JSON, with its counts and their intervals."""
    return asdict(comparison) | {"counts": comparison.counts, "intervals": comparison.intervals}


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
