"""`keystone index --update CORPUS --watch`: updates of an index as often as its corpora change, until an interrupt."""

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from keystone.indexing.builds.changes import Reading
from keystone.indexing.errors import UserError
from keystone.runs.report.say import say

QUIET_MS, MOST_MS = 500, 5_000
"""An update begins when nothing has changed for so long, or so long after the first change at the latest."""
LOOK_MS = 500
"""The pause between two looks whether another file or folder has taken the place of a corpus."""


def keep_updated(corpora: Sequence[Path], update: Callable[[Reading], Reading], quiet: bool) -> None:
    """Update an index, and again after each burst of changes of its corpora. An interrupt ends the process with 0.

    `update` gets what the updates before have read, and returns that with what it has read. `UserError` of the first
    update, and for a corpus that is no file or folder. Those of later updates are told, and the index stays as it is.
    """
    for path in corpora:
        if not path.exists():
            raise UserError(f"--watch: found {path}, expected a file or a folder that exists")
    bursts = watch_bursts(corpora)
    next(bursts)  # a change during the first update counts, too
    since = update(Reading())
    if not quiet:
        say(f"{', '.join(map(str, corpora))}: watched for changes; Ctrl-C ends this", err=True)
    try:
        for _ in bursts:
            try:
                since = update(since)
            except UserError as error:
                say(f"error: {error}; the index stays as it is", err=True)
    except KeyboardInterrupt:
        sys.stdout.flush()
        os._exit(0)  # at once, without waiting for threads that still compute


def watch_bursts(paths: Sequence[Path]) -> Iterator[None]:
    """Yield when files and folders begin to be watched, and then after each burst of changes in them.

    If another file or folder takes the place of one, or it is missing for a while, watching begins anew.
    """
    from watchfiles import watch

    while True:
        known, begins = _identify(paths), True
        there = [path for path, found in zip(paths, known, strict=True) if found]
        try:
            for changes in watch(
                *there, watch_filter=None, step=QUIET_MS, debounce=MOST_MS, rust_timeout=LOOK_MS, yield_on_timeout=True
            ):
                if _identify(paths) != known:
                    break
                if begins or changes:
                    begins = False
                    yield
        except FileNotFoundError:  # it was there a moment ago
            time.sleep(LOOK_MS / 1000)


def _identify(paths: Sequence[Path]) -> list[tuple[int, int] | None]:
    """Identify each file or folder, None for one that is missing."""
    found: list[tuple[int, int] | None] = []
    for path in paths:
        try:
            state = path.stat()
        except OSError:
            found.append(None)
        else:
            found.append((state.st_dev, state.st_ino))
    return found
