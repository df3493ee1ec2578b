"""What the long work of a build runs on: this machine, or Ray. What it makes has the same bytes."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from indexing.corpora.corpus import Read, read_files
from indexing.vectors.shards import Embed, embed_shards


@dataclass(frozen=True, slots=True)
class Engine:
    """How the files of a corpus are read and how shards of documents are embedded."""

    read: Read
    embed: Embed


LOCAL = Engine(read_files, embed_shards)


@contextmanager
def engine_of(name: str, threads: int) -> Iterator[Engine]:
    """The engine `local` or `ray`, for as long as the block lasts. `UserError` where there is no Ray."""
    if name == "local":
        yield LOCAL
        return
    from indexing.build.ray import cluster, embed_shards, read_files

    with cluster(threads):
        yield Engine(read_files, embed_shards)
