"""One table of the engines that do the long work of a build: this machine, or Ray. They make the same bytes.

To add an engine, write its opener and add a line here. Keystone imports an engine's module when a build names it.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING

from keystone.indexing.corpora.corpus import Read, read_files
from keystone.indexing.errors import UserError

if TYPE_CHECKING:
    from keystone.indexing.vectors.shards import Embed


@dataclass(frozen=True, slots=True)
class Engine:
    """How a build reads the files of a corpus, and how it embeds shards of documents."""

    read: Read
    embed: "Embed | None" = None
    """None for this process, so that a build without vectors need not import what makes them."""


ENGINES = {"local": "keystone.indexing.builds.engines:open_local", "ray": "keystone.indexing.builds.ray:open_ray"}
"""For each engine the import path, `MODULE:FUNCTION`, of a function of (threads): a context manager of an `Engine`."""


def open_engine(name: str, threads: int) -> AbstractContextManager[Engine]:
    """Open an engine for the length of a block. `UserError` for an unknown name, and if the engine cannot start."""
    if name not in ENGINES:
        raise UserError(f"engine: found {name!r}, expected one of {', '.join(ENGINES)}")
    engine: AbstractContextManager[Engine] = resolve_name(ENGINES[name])(threads)
    return engine


@contextmanager
def open_local(_threads: int) -> Iterator[Engine]:
    """Open the engine that works in this process."""
    yield Engine(read_files)
