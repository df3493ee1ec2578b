"""Which process runs which test file, and what is left to run if a test ends its process."""

from contextlib import suppress
from typing import Any

from xdist.scheduler import LoadFileScheduling

TOGETHER = {"tests/generation/readers/agent/test_agent_on_vllm.py": "tests/generation/llm/test_vllm.py"}
"""Files that the process of another file runs, too, since both use one server of vLLM."""


class FileScheduling(LoadFileScheduling):  # type: ignore[misc]
    """A process gets a whole file. A test that ends its process fails, and is not run again.

    xdist itself gives such a test to process after process. It then also waits forever for a process that has one test
    left to run.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = str(super()._split_scope(nodeid))
        return TOGETHER.get(file, file)

    def remove_node(self, node: Any) -> str | None:
        """Remove a process; returns the test that it was running, if any. Other processes run the rest of its tests."""
        units = self.assigned_work[node].values()
        running = next((name for unit in units for name, finished in unit.items() if not finished), None)
        if running is None:
            super().remove_node(node)
            return None
        for unit in units:
            if running in unit:
                unit[running] = True
        left = self.assigned_work.pop(node)
        self.workqueue.update({scope: unit for scope, unit in left.items() if not all(unit.values())})
        for other in self.assigned_work:
            self._reschedule(other)
        return str(running)

    def _reschedule(self, node: Any) -> None:
        if node in self.registered_collections:  # one that has not read the tests gets its work when it has
            super()._reschedule(node)

    def _assign_work_unit(self, node: Any) -> None:
        with suppress(OSError):  # the process has just ended, and `remove_node` will give its tests to others
            super()._assign_work_unit(node)

    def schedule(self) -> None:
        """Give work to the processes. A new one gets two files, since a process runs a test once it knows the next."""
        begun = self.collection is not None
        super().schedule()
        if begun:
            super().schedule()
