"""Rows of the benchmark table, and the taking of turns that makes their ratios worth something."""

import resource
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison. `ratio` says how many times better ours is; without a `target` the row is for orientation."""

    name: str
    ours: float
    peer: float
    unit: str
    ratio: float
    target: float | None
    bound_by: str

    @property
    def met(self) -> bool | None:
        """Whether the ratio reaches the target; None where there is none."""
        return None if self.target is None else self.ratio >= self.target


def faster(name: str, ours: float, peer: float, target: float | None, bound_by: str, unit: str = "s") -> Row:
    """A row for costs (seconds, bytes): the ratio is the peer's cost over ours."""
    return Row(name, ours, peer, unit, peer / ours, target, bound_by)


def take_turns(jobs: Mapping[str, Callable[[], object]], repeats: int, cpu: bool = False) -> dict[str, float]:
    """The median seconds of each job (wall, or processor time of all threads), after one unmeasured round.

    The jobs take turns, so that other work on the machine falls on all of them alike.
    """
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for turn in range(repeats + 1):
        for name, job in jobs.items():
            start = processor_time() if cpu else time.perf_counter()
            job()
            if turn:
                seconds[name].append((processor_time() if cpu else time.perf_counter()) - start)
    return {name: median(values) for name, values in seconds.items()}


def processor_time() -> float:
    """Seconds of processor time that all threads of this process have used."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
