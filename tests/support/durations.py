"""How long tests take: `make durations` records it in `tests/durations.json`, which orders files and checks marks.

The time of a test is the processor time of its process and of all processes below it, or, if that is longer, the time
for which it was not waiting for a processor. So it hardly depends on what else the machine does. What a fixture of a
file or of the whole run takes is counted for the file alone.
"""

import json
import os
import time
from collections import defaultdict
from collections.abc import Generator, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.places import ROOT

RECORDED_FILE = ROOT / "tests/durations.json"
QUICK_S = 0.2
"""A case that takes less may not have the mark `slow`. From 0.3 s on, it should; in between, chance decides."""
SHARED = ""
"""Stands for a file's shared fixtures, among the names of its tests."""
UNKNOWN_S = 10.0
"""How long a file without a record is assumed to take."""
_TICKS = os.sysconf("SC_CLK_TCK")

Durations = Mapping[str, Mapping[str, float]]
"""For each file: the mean seconds of a case of each test, and the seconds of the shared fixtures."""


def read_durations() -> Durations:
    """The recorded durations; none before the first record."""
    found: Durations = json.loads(RECORDED_FILE.read_text()) if RECORDED_FILE.exists() else {}
    return found


def sort_longest_first(items: list[pytest.Item], recorded: Durations) -> None:
    """Put the files that take longest first. If one began last, other processes would have no work while it runs."""
    seconds: dict[str, float] = {}
    for item in items:
        file, name = _split(item.nodeid)
        tests = recorded.get(file, {SHARED: UNKNOWN_S})
        seconds[file] = seconds.get(file, tests.get(SHARED, 0)) + tests.get(name, 0)
    items.sort(key=lambda item: -seconds[_split(item.nodeid)[0]])


def list_wrong_marks(items: Iterable[pytest.Item], recorded: Durations) -> list[str]:
    """The tests that have the mark `slow` although their cases are recorded as quick."""
    marked = {_split(item.nodeid) for item in items if item.get_closest_marker("slow")}
    quick = {(file, name): recorded.get(file, {}).get(name, QUICK_S) for file, name in marked}
    return sorted(f"{file}::{name}: {seconds:g} s" for (file, name), seconds in quick.items() if seconds < QUICK_S)


def _split(case: str) -> tuple[str, str]:
    file, _, name = case.partition("::")
    return file, name.split("[")[0]


class _Moment(NamedTuple):
    used: float
    held: float


def _look() -> _Moment:
    """The processor time so far of this process and of those below it, and the time that it was not kept waiting."""
    parents, used = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(errors="replace").rsplit(")", 1)[1].split()
        except OSError:  # it has just ended
            continue
        parents[int(stat.parent.name)] = int(fields[1])
        used[int(stat.parent.name)] = sum(map(int, fields[11:15]))
    below = defaultdict(list)
    for process, parent in parents.items():
        below[parent].append(process)
    found = [os.getpid()]
    for process in found:
        found += below[process]
    kept_waiting = int(Path("/proc/self/schedstat").read_text().split()[1]) / 1e9
    return _Moment(sum(used[process] for process in found) / _TICKS, time.monotonic() - kept_waiting)


def _measure(before: _Moment) -> float:
    now = _look()
    return max(now.used - before.used, now.held - before.held, 0)


class Recorder:
    """A plugin that measures each test and each shared fixture, and writes the record at the end. It needs Linux."""

    def __init__(self) -> None:
        self._begun, self._shared = _look(), 0.0
        self._skipped: set[str] = set()
        self._tests: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: "pytest.FixtureDef[Any]") -> Generator[None, Any, Any]:
        before = _look()
        try:
            return (yield)
        finally:
            if fixturedef.scope != "function":
                self._shared += _measure(before)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Generator[None, Any, Any]:
        self._begun, self._shared = _look(), 0.0
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, call: "pytest.CallInfo[None]") -> Generator[None, Any, Any]:
        report = yield
        if call.when == "teardown":
            taken = max(_measure(self._begun) - self._shared, 0)
            report.user_properties.append(("seconds", [taken, self._shared]))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        file, name = _split(report.nodeid)
        if report.skipped:
            self._skipped.add(report.nodeid)
        for key, value in report.user_properties:
            if key == "seconds" and isinstance(value, list) and report.nodeid not in self._skipped:
                self._tests[file][name].append(value[0])
                self._tests[file][SHARED].append(value[1])

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if hasattr(session.config, "workerinput"):
            return
        record = {file: dict(tests) for file, tests in read_durations().items() if (ROOT / file).exists()}
        for file, tests in self._tests.items():
            shared = sum(tests.pop(SHARED))
            means = {name: round(sum(taken) / len(taken), 2) for name, taken in sorted(tests.items())}
            record[file] = {**record.get(file, {}), SHARED: round(shared, 1), **means}
        RECORDED_FILE.write_text(json.dumps(dict(sorted(record.items())), indent=0) + "\n")
