"""The current service: when its folder gets another index, new requests get that one, in one step.

Requests under way finish on the service that they began with. Its files are closed soon after the last of them.
"""

import asyncio
import gc
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from keystone.indexing.errors import UserError
from keystone.indexing.index import open_index
from keystone.runs.config.run_config import RunConfig
from keystone.runs.pipeline.job import Job, open_job
from keystone.runs.serving.call_log import CallLog
from keystone.runs.serving.service import Service, make_service, open_models
from keystone.runs.wording import count_documents

LOOK_S = 1.0
"""The pause between two looks at the folder of the index. A look asks the system for the state of one file."""

_log = logging.getLogger(__name__)


class Served:
    """A service that another one can replace while requests use it. Only one event loop may use it.

    `open_next` opens the service of the index that the folder holds by now. `tell` gets a sentence about each change.
    """

    def __init__(
        self,
        service: Service,
        open_next: Callable[[], Service] | None = None,
        tell: Callable[[str], object] = _log.info,
    ) -> None:
        self._service, self._open_next, self._tell = service, open_next, tell
        self._uses = Counter[Service]()
        self._has_left = False
        self.changes = 0
        """How often a service was replaced."""

    @contextmanager
    def use(self) -> Iterator[Service]:
        """Use the current service in a block. It has all its files until the block ends."""
        service = self._service
        self._uses[service] += 1
        try:
            yield service
        finally:
            self._uses[service] -= 1
            self._forget_if_left(service)

    @asynccontextmanager
    async def follow(self) -> AsyncIterator[None]:
        """Watch the folder during a block, and go over to each new index in it."""
        looking = asyncio.create_task(self._look_again())
        looking.add_done_callback(_tell_fault)
        try:
            yield
        finally:
            looking.cancel()
            await asyncio.wait([looking])

    async def _look_again(self) -> None:
        seen = None
        while self._open_next:
            found = await asyncio.to_thread(_identify, self._service.index.folder)
            if found not in (None, seen):
                seen = found
                await self._go_over(found)
            if self._has_left:
                self._has_left = False
                await asyncio.to_thread(gc.collect)  # else objects that refer to each other keep them
            await asyncio.sleep(LOOK_S)

    async def _go_over(self, found: tuple[int, ...] | None) -> None:
        """Go over to the index in the folder, unless the service has it already. After an error, the service stays."""
        folder, before = self._service.index.folder, self._service.index
        opening = asyncio.create_task(asyncio.to_thread(self._open_if_other))
        try:
            service = await asyncio.shield(opening)
        except asyncio.CancelledError:
            await asyncio.wait([opening])  # the thread needs what is closed after this task
            raise
        except UserError as error:
            if await asyncio.to_thread(_identify, folder) == found:  # else there is a newer one
                _log.error("%s; the index %s is still served", error, before.key)
            return
        except (OSError, MemoryError) as error:
            why = str(error) or type(error).__name__
            _log.error("%s cannot be opened: %s; the index %s is still served", folder, why, before.key)
            return
        if service is not None:
            self._replace(service)

    def _open_if_other(self) -> Service | None:
        assert self._open_next
        return None if open_index(self._service.index.folder).key == self._service.index.key else self._open_next()

    def _replace(self, service: Service) -> None:
        before, self._service = self._service, service
        self.changes += 1
        service.bm25.batches.count_on(before.bm25.batches)
        self._forget_if_left(before)
        now, was = (f"{count_documents(one.index.documents)} ({one.index.key})" for one in (service, before))
        self._tell(f"{service.name} is replaced: {now} are served in place of {was}")

    def _forget_if_left(self, service: Service) -> None:
        """Forget a service that has been replaced, if no request uses it."""
        if service is not self._service and not self._uses[service]:
            del self._uses[service]
            self._has_left = True


@contextmanager
def open_served(
    config: RunConfig,
    log: CallLog,
    threads: int = 1,
    tell: Callable[[str], object] = _log.info,
    only_bm25: bool = False,
) -> Iterator[Served]:
    """Open the service of a configuration, as `open_service` does, and those that take its place.

    All of them share the model. With `only_bm25`, they open no more of an index than the search by BM25 needs.
    """

    def open_service_job() -> Job:
        return open_job(config, threads, topics=[], held=True)

    first = [open_service_job()]
    with open_models(first[0].config, first[0].threads) as models:
        service = make_service(first.pop(), models, log, only_bm25)  # nothing here keeps the files of the first index
        served = Served(service, lambda: make_service(open_service_job(), models, log, only_bm25), tell)
        del service
        yield served


def _tell_fault(looking: "asyncio.Task[None]") -> None:
    """Log an error that ends the watch of the folder. The index then stays as it is."""
    if not looking.cancelled() and (error := looking.exception()):
        _log.critical("no other index is taken until the server restarts", exc_info=error)


def _identify(folder: Path) -> tuple[int, ...] | None:
    """Identify the description in a folder: another one differs in its file or its time. None without a description."""
    try:
        found = (folder / "index.json").stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns
