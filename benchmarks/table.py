"""Rows of the benchmark table, and measuring jobs in turns so that their ratios are fair."""

import resource
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison. `ratio` is the factor by which Keystone is better; a row without `target` is for orientation."""

    name: str
    ours: float
    peer: float
    unit: str
    ratio: float
    target: float | None
    bound_by: str

    @property
    def met(self) -> bool | None:
        """Whether the ratio reaches the target; None if there is no target."""
        return None if self.target is None else self.ratio >= self.target


def compare_costs(name: str, ours: float, peer: float, target: float | None, bound_by: str, unit: str = "s") -> Row:
    """A row for costs, such as seconds or bytes. Its ratio is the peer's cost divided by Keystone's."""
    return Row(name, ours, peer, unit, peer / ours, target, bound_by)


def take_turns(jobs: Mapping[str, Callable[[], object]], repeats: int, cpu: bool = False) -> dict[str, float]:
    """The median seconds of each job (wall, or processor time of all threads), after one unmeasured round.

    The jobs take turns, so that other work on the machine slows all of them alike.
    """
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for turn in range(repeats + 1):
        for name, job in jobs.items():
            start = read_processor_time() if cpu else time.perf_counter()
            job()
            if turn:
                seconds[name].append((read_processor_time() if cpu else time.perf_counter()) - start)
    return {name: median(values) for name, values in seconds.items()}


def read_processor_time() -> float:
    """The seconds of processor time that all threads of this process have used."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
